"""`captioning evaluate`, `calibrate` and `ground`: a model against a data set."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from captioning.commands.options import (
    DataOptions,
    Maps,
    MetricOptions,
    ModelOptions,
    SearchOptions,
)
from captioning.errors import InputError, printable
from captioning.progress_bar import say
from captioning.shelf import folder_beside

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.evaluation.grounding import GroundingReport

Features = Annotated[
    Path | None, Parameter(help="Use the cached annotations of `captioning features` there.")
]


def evaluate(
    *,
    data: DataOptions,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    metrics: MetricOptions = MetricOptions(),
    out: Path | None = None,
    features: Features = None,
) -> dict[str, float]:
    """Score a model on a split of a data set.

    Args:
        out: The folder of the results; by default beside the model.
    """
    from captioning.evaluation.assessment import assess
    from captioning.evaluation.calibration_report import CalibrationReport
    from captioning.evaluation.captions import split_captions, training_captions
    from captioning.evaluation.pictures import save_calibration
    from captioning.evaluation.report import Report, scenes_right
    from captioning.files import made_folder, write_json
    from captioning.metrics.scores import Scores

    scorers = metrics.scorers()
    reader = data.reader()
    records = reader.read(data.split)[: data.limit]
    photos = {record.image_id: record.image for record in records}
    by_photos = metrics.photo_scorers(photos, data.max_megapixels, model_options.device)
    captioner = model_options.load(data.max_megapixels)
    captioning_search = search_options.search(captioner)
    is_right = scenes_right(data.data[0], data.split) if len(data.data) == 1 else None
    folder = made_folder(out or folder_beside(model_options.model) / f"evaluation-{data.split}")
    # What is good is decided by drawn scenes, or by people's captions of the same photo.
    is_decided = is_right is not None or any(len(record.captions) > 1 for record in records)
    calibration = captioner.calibration if is_decided else None
    if calibration is not None:
        assessed = assess(
            captioner, records, captioning_search, is_right, model_options.batch_size, features
        )
        captions = assessed.captions
    else:
        captions = split_captions(
            captioner, records, captioning_search, model_options.batch_size, features
        )
    report = Report.of(
        captions,
        {record.image_id: record.captions for record in records},
        scorers,
        training_captions(reader),
        captioner.vocabulary.words,
        () if is_right is None else (Scores.of("right", is_right(captions).astype(float)),),
        by_photos,
        captioner.vocabulary.tokenizer,
        captioner.vocabulary.repeatable,
    )
    report.write(folder, {"name": data.name, "split": data.split})
    metrics.note_on_cider(len(captions))
    say(*report.table().split("\n"), file=sys.stdout)
    if calibration is not None:
        calibration_report = CalibrationReport.of((assessed, calibration))
        write_json(folder / "calibration.json", calibration_report.as_json())
        save_calibration(calibration_report, folder / "calibration.png")
        say(calibration_report.line(), file=sys.stdout)
    if features is None:  # with them, the photos may be missing
        grounded = _grounded(
            captioner, data, captions, model_options.batch_size, search_options.seed
        )
        if grounded is not None:
            write_json(folder / "grounding.json", grounded.as_json())
            say(grounded.line(), file=sys.stdout)
    print(printable(folder))
    return report.summary


def _grounded(
    captioner: "Captioner",
    data: DataOptions,
    captions: Mapping[int | str, str],
    batch_size: int,
    seed: int,
) -> "GroundingReport | None":
    """Where the model looked for the words of its captions; None if the data set has no boxes."""
    from captioning.evaluation import grounding

    records = data.reader(objects=True).read(data.split)
    names = grounding.categories(records)
    if not names or any(record.phrases for record in records):  # those are of references
        return None
    lexicon = grounding.Lexicon.of(names)
    [report] = grounding.ground(
        captioner,
        records[: data.limit],
        captions,
        lexicon,
        batch_size=batch_size,
        seed=seed,
    ).values()
    return report


def calibrate(
    file: Annotated[Path, Parameter(name="FILE", help="Where to write the model (safetensors).")],
    /,
    *,
    data: DataOptions,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    features: Features = None,
) -> Path:
    """Write a model with calibrated probabilities, and a confidence of each caption.

    The split should be one that the model was neither trained on nor chosen by. The confidence
    holds for the search that is given, which becomes the model's own. Few photos move little of a
    calibration that the model has.
    """
    from captioning.captioner import export
    from captioning.evaluation.assessment import assess, calibrated, pattern_vectors
    from captioning.evaluation.calibration_report import CalibrationReport
    from captioning.evaluation.pictures import save_calibration
    from captioning.evaluation.report import scenes_right
    from captioning.files import made_folder

    reader = data.reader()
    records = reader.read(data.split)[: data.limit]
    captioner = model_options.load(data.max_megapixels)
    is_right = scenes_right(data.data[0], data.split) if len(data.data) == 1 else None
    captioning_search = search_options.search(captioner)
    names = [f"{name}/" for name in getattr(reader, "readers", ())]
    sets = [
        number
        for record in records
        for number, name in enumerate(names)
        if str(record.image_id).startswith(name)
    ]
    assessed = assess(
        captioner, records, captioning_search, is_right, model_options.batch_size, features, sets
    )
    patterns = pattern_vectors(captioner)
    calibration = calibrated(assessed, captioner.calibration, patterns)
    report, *reports_of_sets = CalibrationReport.across_halves(
        assessed, captioner.calibration, patterns
    )
    picture = made_folder(file.parent) / f"{file.stem}-calibration.png"
    export(model_options.path, file, calibration=calibration, search=captioning_search)
    save_calibration(report, picture)
    print("Calibrated on each half of the photos, on the other half:")
    print(f"{report.line()}; temperature {calibration.temperature:.4f}")
    for name, report_of_set in zip(names, reports_of_sets, strict=False):
        print(f"{printable(name)} {report_of_set.line()}")
    print(printable(file))
    print(printable(picture))
    return file


def ground_model(
    *,
    data: DataOptions,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    maps: Maps = (),
    words: Path | None = None,
    references: bool = False,
    out: Path | None = None,
    wandb: bool = False,
) -> dict[str, dict[str, float]]:
    """Test maps of words against the boxes and masks of the objects that the words name.

    `--map all` tests all maps that the model has.

    Args:
        words: JSON: the words that name each category; by default everyday words for COCO's
            categories, and for others their own names.
        references: Test the words of all reference captions, not of the model's own: more words,
            and the same for every model.
        out: The folder of the results; by default beside the model.
        wandb: Log the report to W&B too.
    """
    from captioning.evaluation import grounding
    from captioning.evaluation.captions import split_captions
    from captioning.evaluation.pictures import save_grounding
    from captioning.files import made_folder, write_json
    from captioning.maps import available_maps, known_maps

    records = data.reader(objects=True).read(data.split)
    names = grounding.categories(records)
    if not names:
        raise InputError(
            f"{data.name}: split {data.split!r} has no boxes; "
            "give a data set with instances_*.json in COCO's format"
        )
    if any(record.phrases for record in records) and not references:
        raise InputError(
            f"{data.name}: only the words of its references have boxes; give --references"
        )
    # Categories are those of the whole split, so that a limit does not change them.
    lexicon = grounding.Lexicon.load(words) if words else grounding.Lexicon.of(names)
    records = records[: data.limit]
    captioner = model_options.load(data.max_megapixels)
    asked = available_maps(captioner.model) if "all" in maps else maps
    tested = known_maps(asked, captioner.model) or (captioner.default_map,)
    folder = made_folder(out or folder_beside(model_options.model) / f"grounding-{data.split}")
    captions = None
    if not references:
        captions = split_captions(
            captioner, records, search_options.search(captioner), model_options.batch_size
        )
    compares = len(tested) > 1
    reports = grounding.ground(
        captioner,
        records,
        captions,
        lexicon,
        batch_size=model_options.batch_size,
        seed=search_options.seed,
        maps=tested,
        curves=compares,
    )
    report = next(iter(reports.values()))
    write_json(folder / "grounding.json", report.as_json())
    if compares:
        write_json(folder / "maps.json", grounding.maps_json(reports, captioner.default_map))
    pictures = save_grounding(report, folder, int(data.max_megapixels * 1e6))
    if wandb:
        from captioning.training.loggers import log_grounding

        log_grounding(report, pictures, folder, {"data": data.name, "split": data.split})
    say(*grounding.grounding_table(reports).split("\n"), file=sys.stdout)
    print(printable(folder))
    return {name: report.summary for name, report in reports.items()}

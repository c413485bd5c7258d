"""`captioning evaluate`, `calibrate` and `ground`: a model against a data set."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from captioning.commands.options import (
    DataOptions,
    MapNames,
    MetricOptions,
    ModelOptions,
    SearchOptions,
)
from captioning.errors import InputError, printable
from captioning.progress_bar import say
from captioning.shelf import folder_beside

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.captioner.calibration import Calibration
    from captioning.data.records import Record
    from captioning.evaluation.assessment import Assessment
    from captioning.evaluation.grounding import Lexicon
    from captioning.evaluation.report import Judge
    from captioning.search import Search

Features = Annotated[
    Path | None, Parameter(help="Use the cached annotations of `captioning features` there.")
]


def evaluate(
    *,
    data_options: DataOptions,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    metric_options: MetricOptions = MetricOptions(),
    out: Path | None = None,
    features: Features = None,
) -> dict[str, float]:
    """Score a model on a split of a data set.

    Args:
        out: The folder of the results; by default beside the model.
    """
    from captioning.captioner.checkpoint import REWARD_KEY, read
    from captioning.evaluation.captions import training_captions
    from captioning.evaluation.report import Report, scene_judge
    from captioning.files import made_folder
    from captioning.metrics.scores import Scores

    data, split, batch_size = data_options.data, data_options.split, model_options.batch_size
    scorers = metric_options.scorers()
    needs_boxes = features is None  # with features, the photos may be missing
    data_set = data_options.read(data_options.reader(objects=needs_boxes))
    records = data_set.records(split)[: data_options.limit]
    photos = {record.image_id: record.image for record in records}
    photo_scorers = metric_options.photo_scorers(
        photos, data_options.max_megapixels, model_options.device
    )
    captioner = model_options.load(data_options.max_megapixels)
    search = search_options.search(captioner)
    is_right = scene_judge(data[0], split) if len(data) == 1 else None
    folder = made_folder(out or folder_beside(model_options.model) / f"evaluation-{split}")
    captions, assessment = _caption_records(
        captioner, records, search, judge=is_right, batch_size=batch_size, features=features
    )
    references = {record.image_id: record.captions for record in records}
    report = Report.of(
        captions,
        references,
        scorers,
        training=training_captions(data_set),
        vocabulary=captioner.vocabulary.words,
        further=() if is_right is None else [Scores.of("right", is_right(captions).astype(float))],
        photo_scorers=photo_scorers,
        tokenizer=captioner.vocabulary.tokenizer,
        repeatable=captioner.vocabulary.repeatable,
    )
    reward = read(model_options.path)[0].get(REWARD_KEY)
    report.write(folder, {"name": data_options.name, "split": split}, reward)
    metric_options.note_on_cider(len(captions))
    say(*report.table().split("\n"), file=sys.stdout)
    if reward is not None:
        say(f"trained by rewards: {printable(reward)}", file=sys.stdout)
    if assessment is not None and captioner.calibration is not None:
        _write_reliability(assessment, captioner.calibration, folder)
    lexicon = _lexicon_of_objects(data_set.records(split)) if needs_boxes else None
    if lexicon is not None:
        seed = search_options.seed
        _write_grounding(captioner, records, captions, lexicon, batch_size, seed, folder)
    print(printable(folder))
    return report.summary


def _caption_records(
    captioner: "Captioner",
    records: "Sequence[Record]",
    search: "Search",
    *,
    judge: "Judge | None",
    batch_size: int,
    features: Path | None,
) -> "tuple[Mapping[int | str, str], Assessment | None]":
    """Caption the photos; assess the captions too, if the model is calibrated.

    Which captions are good is decided by drawn scenes, or by people's captions of the same photo.
    """
    from captioning.evaluation.assessment import assess
    from captioning.evaluation.captions import split_captions

    is_decided = judge is not None or any(len(record.captions) > 1 for record in records)
    if captioner.calibration is None or not is_decided:
        captions = split_captions(
            captioner, records, search, batch_size=batch_size, features=features
        )
        return captions, None
    assessment = assess(
        captioner, records, search, judge=judge, batch_size=batch_size, features=features
    )
    return assessment.captions, assessment


def _write_reliability(assessment: "Assessment", calibration: "Calibration", folder: Path) -> None:
    """Write and print how reliable the model's probabilities and confidences are."""
    from captioning.evaluation.calibration_report import CalibrationReport
    from captioning.evaluation.pictures import save_calibration
    from captioning.files import write_json

    report = CalibrationReport.of((assessment, calibration))
    write_json(folder / "calibration.json", report.as_json())
    save_calibration(report, folder / "calibration.png")
    say(report.line(), file=sys.stdout)


def _lexicon_of_objects(records: "Sequence[Record]") -> "Lexicon | None":
    """Return the words of the data set's categories; None if it has no boxes of objects.

    Boxes of phrases are left out, since they are of the references' words.
    """
    from captioning.evaluation import grounding

    names = grounding.categories(records)
    if not names or any(record.phrases for record in records):
        return None
    return grounding.Lexicon.of(names)


def _write_grounding(
    captioner: "Captioner",
    records: "Sequence[Record]",
    captions: Mapping[int | str, str],
    lexicon: "Lexicon",
    batch_size: int,
    seed: int,
    folder: Path,
) -> None:
    """Write and print whether the model looked at what its words name."""
    from captioning.evaluation import grounding
    from captioning.files import write_json

    reports = grounding.ground(
        captioner, records, captions, lexicon, batch_size=batch_size, seed=seed
    )
    [report] = reports.values()
    write_json(folder / "grounding.json", report.as_json())
    say(report.line(), file=sys.stdout)


def calibrate(
    file: Annotated[Path, Parameter(name="FILE", help="Where to write the model (safetensors).")],
    /,
    *,
    data_options: DataOptions,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    features: Features = None,
) -> Path:
    """Write a model with calibrated probabilities, a confidence of each caption, and reviews.

    The split should be one that the model was neither trained on nor chosen by. The confidence
    holds for the search that is given, which becomes the model's own. Few photos move little of a
    calibration that the model has.
    """
    from captioning.captioner import export
    from captioning.evaluation.assessment import assess
    from captioning.evaluation.calibration_fit import fit_calibration, pattern_vectors
    from captioning.evaluation.calibration_report import CalibrationReport
    from captioning.evaluation.pictures import save_calibration
    from captioning.evaluation.report import scene_judge
    from captioning.evaluation.review_fit import fit_review
    from captioning.files import made_folder

    data, split = data_options.data, data_options.split
    reader = data_options.reader()
    records = data_options.read(reader).records(split)[: data_options.limit]
    captioner = model_options.load(data_options.max_megapixels)
    is_right = scene_judge(data[0], split) if len(data) == 1 else None
    search = search_options.search(captioner)
    prefixes = [f"{name}/" for name in getattr(reader, "readers", ())]  # of the ids of each set
    sets: list[int] = []
    for record in records:
        for number, prefix in enumerate(prefixes):
            if str(record.image_id).startswith(prefix):
                sets.append(number)
    assessment = assess(
        captioner,
        records,
        search,
        judge=is_right,
        batch_size=model_options.batch_size,
        features=features,
        data_sets=sets,
    )
    patterns = pattern_vectors(captioner)
    start = captioner.calibration
    review = fit_review(captioner, records, captioner.review_calibration, features)
    calibration = replace(fit_calibration(assessment, start, patterns), review=review)
    report, *set_reports = CalibrationReport.across_halves(
        assessment, captioner.calibration, patterns
    )
    picture = made_folder(file.parent) / f"{file.stem}-calibration.png"
    export(model_options.path, file, calibration=calibration, search=search)
    save_calibration(report, picture)
    print("Calibrated on each half of the photos, on the other half:")
    print(f"{report.line()}; temperature {calibration.temperature:.4f}")
    for prefix, set_report in zip(prefixes, set_reports, strict=False):
        print(f"{printable(prefix)} {set_report.line()}")
    print(printable(file))
    print(printable(picture))
    return file


def ground_model(
    *,
    data_options: DataOptions,
    model_options: ModelOptions = ModelOptions(),
    search_options: SearchOptions = SearchOptions(),
    maps: MapNames = (),
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
    from captioning.maps import available_maps, resolve_map_names

    split, batch_size = data_options.split, model_options.batch_size
    reader = data_options.reader(objects=True)
    records = data_options.read(reader).records(split)
    # Of the whole split, so that a limit does not change the categories.
    lexicon = _lexicon(records, data_options, words, references)
    records = records[: data_options.limit]
    captioner = model_options.load(data_options.max_megapixels)
    map_names = available_maps(captioner.model) if "all" in maps else maps
    map_names = resolve_map_names(map_names, captioner.model) or (captioner.default_map,)
    has_several = len(map_names) > 1
    folder = made_folder(out or folder_beside(model_options.model) / f"grounding-{split}")
    captions = None
    if not references:
        search = search_options.search(captioner)
        captions = split_captions(captioner, records, search, batch_size=batch_size)
    seed = search_options.seed
    reports = grounding.ground(
        captioner,
        records,
        captions,
        lexicon,
        batch_size=batch_size,
        seed=seed,
        maps=map_names,
        curves=has_several,
    )
    report = next(iter(reports.values()))
    write_json(folder / "grounding.json", report.as_json())
    if has_several:
        write_json(folder / "maps.json", grounding.maps_json(reports, captioner.default_map))
    pictures = save_grounding(report, folder, int(data_options.max_megapixels * 1e6))
    if wandb:
        from captioning.training.loggers import log_grounding

        log_grounding(report, pictures, folder, {"data": data_options.name, "split": split})
    say(*grounding.grounding_table(reports).split("\n"), file=sys.stdout)
    print(printable(folder))
    return {name: report.summary for name, report in reports.items()}


def _lexicon(
    records: "Sequence[Record]", data_options: DataOptions, words: Path | None, references: bool
) -> "Lexicon":
    """Return the words that name the categories of objects in a split.

    Raises:
        InputError: the split has no boxes, or boxes of the references' words only.
    """
    from captioning.evaluation.grounding import Lexicon, categories

    names = categories(records)
    if not names:
        raise InputError(
            f"{data_options.name}: split {data_options.split!r} has no boxes; "
            "give a data set with instances_*.json in COCO's format"
        )
    if any(record.phrases for record in records) and not references:
        raise InputError(
            f"{data_options.name}: only the words of its references have boxes; give --references"
        )
    return Lexicon.load(words) if words else Lexicon.of(names)

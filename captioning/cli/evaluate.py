"""`captioning evaluate`: the scores of a model on a split."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.metric_options import (
    add_metrics,
    note_on_cider,
    photo_scorers_of,
    scorers_of,
)
from captioning.cli.model_options import (
    add_model,
    add_processes,
    add_search,
    model_and_search,
    processes_of,
)
from captioning.cli.options import add_data, add_limit, add_photo_limit
from captioning.shelf import folder_beside
from captioning.terminal import printable

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.evaluation.grounding import GroundingReport


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--data", required=True, metavar="DIR", help="the data set")
    parser.add_argument("--split", default="val", help="the split (default: val)")
    add_data(parser)
    add_limit(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="the folder of the results (default: beside the model)"
    )
    parser.add_argument(
        "--features",
        metavar="DIR",
        help="use the cached annotations of `train` or `features` in this folder, not the photos",
    )
    add_model(parser)
    add_photo_limit(parser)
    add_search(parser)
    add_metrics(parser)
    add_processes(parser)


def run(options: argparse.Namespace) -> int:
    """Score the model."""
    from captioning.data.readers import reader_for
    from captioning.evaluation import grounding
    from captioning.evaluation.calibration import CalibrationReport, assess
    from captioning.evaluation.captions import features_of, split_captions, training_captions
    from captioning.evaluation.report import Report, aligned, scenes_right
    from captioning.files import made_folder, write_json
    from captioning.metrics.scores import Scores

    processes = processes_of(options)
    scorers = scorers_of(options)
    reader = reader_for(options.data, False, options.images, options.caption_column)
    records = reader.read(options.split)[: options.limit]
    by_photos = photo_scorers_of(options, {record.image_id: record.image for record in records})
    captioner, search = model_and_search(options, processes)
    features = features_of(options.features, captioner, records)
    right = scenes_right(options.data, options.split)
    kind = "evaluation" if len(options.model) == 1 else "ensemble"
    beside = folder_beside(options.model[0])
    folder = made_folder(options.out or beside / f"{kind}-{options.split}")
    # What is good is decided by drawn scenes, or by people's captions of the same photo.
    is_decided = right is not None or any(len(record.captions) > 1 for record in records)
    assessed = None
    captions: Mapping[int | str, str] | None
    if captioner.calibration is not None and is_decided and processes.count == 1:
        assessed = assess(
            captioner, records, search, right, options.batch_size, options.seed, features
        )
        captions = assessed.captions
    else:
        captions = split_captions(
            captioner,
            records,
            search,
            batch_size=options.batch_size,
            seed=options.seed,
            features=features,
            processes=processes,
        )
    if captions is None:
        return 0  # the first process reports the results of all
    report = Report.of(
        captions,
        {record.image_id: record.captions for record in records},
        scorers,
        training_captions(reader),
        captioner.vocabulary.words,
        () if right is None else (Scores.of("right", right(captions).astype(float)),),
        by_photos,
        captioner.vocabulary.tokenizer,
    )
    name = Path(options.data).resolve().name  # not the place on this machine
    report.write(folder, {"name": name, "split": options.split})
    note_on_cider(options, len(captions))
    print(report.table())
    if assessed is not None and captioner.calibration is not None:
        from captioning.evaluation.pictures import save_calibration

        calibration = CalibrationReport.of(assessed, captioner.calibration)
        write_json(folder / "calibration.json", calibration.as_json())
        save_calibration(calibration, folder / "calibration.png")
        print("", aligned(calibration.table()), sep="\n")
    if (grounded := _grounded(options, captioner, captions)) is not None:
        grounded.write(folder / "grounding.json")
        print("", grounding.table(grounded), sep="\n")
    print(printable(folder))
    return 0


def _grounded(
    options: argparse.Namespace, captioner: "Captioner", captions: "Mapping[int | str, str]"
) -> "GroundingReport | None":
    """The grounding report; None without photos or boxes."""
    from captioning.data.readers import reader_for
    from captioning.evaluation.grounding import Lexicon, categories, ground

    if options.features is not None:  # the photos may be missing
        return None
    reader = reader_for(options.data, True, options.images, options.caption_column)
    split = reader.read(options.split)
    known = categories(split)
    if not known or any(record.phrases for record in split):  # phrases belong to references
        return None
    records = split[: options.limit]
    lexicon = Lexicon.of(known)
    return ground(captioner, records, captions, lexicon, options.batch_size, options.seed)

"""`captioning evaluate`: the scores of a trained model on a split."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.options import (
    Commands,
    add_model,
    add_processes,
    add_search,
    model_and_search,
    positive,
    processes_of,
)
from captioning.errors import InputError

if TYPE_CHECKING:
    from captioning.data.features import FeatureCache
    from captioning.data.records import Record
    from captioning.models import Captioner


def add(commands: Commands) -> None:
    """Tell the parser of this command."""
    parser = commands.add_parser("evaluate", help="score a trained model on a split")
    parser.add_argument("--data", required=True, metavar="DIR", help="the data set")
    parser.add_argument("--split", default="val", help="which part of it (default: val)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only its first N images")
    parser.add_argument(
        "--out", metavar="DIR", help="where results and scores go (default: beside the model)"
    )
    parser.add_argument(
        "--features",
        metavar="DIR",
        help="use the annotation vectors that `train` or `features` left here, not the photos",
    )
    add_model(parser)
    add_search(parser)
    add_processes(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score the model."""
    from captioning.data.readers import reader_for
    from captioning.files import made_folder
    from captioning.metrics.evaluation import evaluate, share_right
    from captioning.metrics.report import table
    from captioning.prediction.evaluation import evaluate_together

    processes = processes_of(options)
    records = reader_for(options.data).read(options.split)[: options.limit]
    captioner, search = model_and_search(options, processes)
    features = _features(options.features, captioner, records)
    folder = made_folder(options.out or Path(options.model).parent / f"evaluation-{options.split}")
    settings = {"batch_size": options.batch_size, "seed": options.seed, "features": features}
    if processes.count == 1:
        evaluation = evaluate(captioner, records, search, **settings)
    else:
        together = evaluate_together(processes, captioner, records, search, **settings)
        if together is None:
            return 0  # the first process tells what all have found
        evaluation = together
    evaluation.scores.update(share_right(evaluation.captions, options.data, options.split))
    evaluation.write(folder)
    print(table(evaluation.scores))
    print(folder)
    return 0


def _features(
    folder: str | None, captioner: "Captioner", records: "Sequence[Record]"
) -> "FeatureCache | None":
    """The annotation vectors of the records' images by the captioner's encoder, if wanted."""
    from captioning.data.features import FeatureCache

    if folder is None:
        return None
    if not captioner.encoder.is_frozen:
        raise InputError(
            f"{folder}: no features can be of this model, whose encoder was trained; "
            "leave out --features"
        )
    features = FeatureCache(folder)
    features.check(captioner.encoder, captioner.preprocessing, [record.image for record in records])
    return features

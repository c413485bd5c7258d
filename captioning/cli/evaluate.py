"""`captioning evaluate`: the scores of a trained model on a split."""

import argparse
from pathlib import Path

from captioning.cli.options import (
    Commands,
    add_model,
    add_search,
    model_and_search,
    positive,
)


def add(commands: Commands) -> None:
    """Tell the parser of this command."""
    parser = commands.add_parser("evaluate", help="score a trained model on a split")
    parser.add_argument("--data", required=True, metavar="DIR", help="the data set")
    parser.add_argument("--split", default="val", help="which part of it (default: val)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only its first N images")
    parser.add_argument(
        "--out", metavar="DIR", help="where results and scores go (default: beside the model)"
    )
    add_model(parser)
    add_search(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score the model."""
    from captioning.data.readers import reader_for
    from captioning.files import made_folder
    from captioning.metrics.evaluation import evaluate, share_right
    from captioning.metrics.report import table

    records = reader_for(options.data).read(options.split)[: options.limit]
    captioner, search = model_and_search(options)
    folder = made_folder(options.out or Path(options.model).parent / f"evaluation-{options.split}")
    evaluation = evaluate(captioner, records, search, options.batch_size)
    evaluation.scores.update(share_right(evaluation.captions, options.data, options.split))
    evaluation.write(folder)
    print(table(evaluation.scores))
    print(folder)
    return 0

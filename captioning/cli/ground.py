"""`captioning ground`: does a model look at what it names?"""

import argparse
from pathlib import Path

from captioning.cli.options import (
    Commands,
    add_model,
    add_photo_limit,
    add_search,
    model_and_search,
    positive,
)
from captioning.errors import InputError
from captioning.terminal import printable


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "ground", help="test attention against the boxes and masks of what words name"
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="a data set with boxes")
    parser.add_argument("--split", default="val", help="which part of it (default: val)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only its first N images")
    parser.add_argument(
        "--words",
        metavar="FILE",
        help="which words name which category, JSON (default: everyday words for COCO's "
        "categories; other categories by their own names)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="where report and pictures go (default: beside the model)"
    )
    parser.add_argument("--wandb", action="store_true", help="log the report to W&B too")
    add_model(parser)
    add_photo_limit(parser)
    add_search(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report, and write it with its pictures."""
    from captioning.data.readers import reader_for
    from captioning.evaluation.grounding import Lexicon, ground, table
    from captioning.evaluation.grounding.measure import categories
    from captioning.evaluation.split import split_captions
    from captioning.files import made_folder
    from captioning.viewing.grounding_pictures import save_pictures

    split = reader_for(options.data).read(options.split)
    if not categories(split):
        raise InputError(
            f"{options.data}: split {options.split!r} has no boxes; "
            "give a data set with instances_*.json in COCO's format"
        )
    # Categories are those of the whole split, so that a limit does not change them.
    lexicon = Lexicon.load(options.words) if options.words else Lexicon.of(categories(split))
    records = split[: options.limit]
    captioner, search = model_and_search(options)
    folder = made_folder(
        options.out or Path(options.model[0]).parent / f"grounding-{options.split}"
    )
    settings = {"batch_size": options.batch_size, "seed": options.seed}
    captions = split_captions(captioner, records, search, **settings)
    assert captions is not None  # this is the only process
    report = ground(captioner, records, captions, lexicon, **settings)
    report.write(folder / "grounding.json")
    pictures = save_pictures(report, folder, options.max_pixels)
    if options.wandb:
        from captioning.training.grounding_logger import log_grounding

        log_grounding(report, pictures, folder, {"data": options.data, "split": options.split})
    print(table(report))
    print(printable(folder))
    return 0

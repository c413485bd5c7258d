"""`captioning ground`: does a model look at what it names?"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.model_options import add_model, add_search, model_and_search
from captioning.cli.options import MAPS, Commands, add_maps, add_photo_limit, positive
from captioning.errors import InputError
from captioning.terminal import printable

if TYPE_CHECKING:
    from captioning.evaluation.grounding import GroundingReport

ALL = "all"


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
    parser.add_argument(
        "--heads",
        action="store_true",
        help="score the attention of every head of a model with several, and write heads.json",
    )
    parser.add_argument(
        "--references",
        action="store_true",
        help="let the model read all captions that people wrote, rather than write its own: more "
        "words to test",
    )
    add_maps(
        parser, "which map of a word is tested; several are compared in one table", (*MAPS, ALL)
    )
    parser.add_argument("--wandb", action="store_true", help="log the report to W&B too")
    add_model(parser)
    add_photo_limit(parser)
    add_search(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report, and write it with its pictures."""
    from captioning.data.readers import reader_for
    from captioning.evaluation.grounding import Lexicon, ground_maps, map_table, table
    from captioning.evaluation.grounding.heads import heads_json, heads_table
    from captioning.evaluation.grounding.measure import categories
    from captioning.evaluation.split import split_captions
    from captioning.files import made_folder, write_json
    from captioning.maps import known_maps
    from captioning.viewing.grounding_pictures import save_pictures

    split = reader_for(options.data).read(options.split)
    if not categories(split):
        raise InputError(
            f"{options.data}: split {options.split!r} has no boxes; "
            "give a data set with instances_*.json in COCO's format"
        )
    if any(record.phrases for record in split) and not options.references:
        raise InputError(
            f"{options.data}: only its own captions tell which words have boxes; give --references"
        )
    # Categories are those of the whole split, so that a limit does not change them.
    lexicon = Lexicon.load(options.words) if options.words else Lexicon.of(categories(split))
    records = split[: options.limit]
    captioner, search = model_and_search(options)
    heads = captioner.decoder.map_names if options.heads else ()
    if options.heads and not heads:
        raise InputError("this model has one map of attention alone; leave out --heads")
    folder = made_folder(
        options.out or Path(options.model[0]).parent / f"grounding-{options.split}"
    )
    settings = {"batch_size": options.batch_size, "seed": options.seed}
    captions = None
    if not options.references:
        captions = split_captions(captioner, records, search, **settings)
        assert captions is not None  # this is the only process
    takes_all = ALL in options.maps
    maps = MAPS if takes_all else known_maps(options.maps, shown=captioner.shown_map)
    several = len(maps) > 1
    found = ground_maps(
        *(captioner, records, captions, lexicon),
        **settings,
        maps=[*maps, *heads],
        curves=several,
        needs_all=not takes_all,
    )
    of_heads = {name: found.pop(name) for name in heads}
    reports, lacking = found, [name for name in maps if name not in found]
    report = next(iter(reports.values()))
    report.write(folder / "grounding.json")
    if several:
        write_json(folder / "maps.json", _as_json(reports))
    pictures = save_pictures(report, folder, options.max_pixels)
    if options.wandb:
        from captioning.training.loggers import log_grounding

        log_grounding(report, pictures, folder, {"data": options.data, "split": options.split})
    print(map_table(reports, captioner.shown_map) if several else table(report))
    if lacking:
        print(f"This model has no map {' or '.join(lacking)}.")
    if of_heads:
        write_json(folder / "heads.json", heads_json(of_heads))
        print(f"\n{heads_table(of_heads)}")
    print(printable(folder))
    return 0


def _as_json(reports: "Mapping[str, GroundingReport]") -> dict[str, object]:
    """The scores and costs of several maps, without each mention's scores."""
    return {
        name: {"milliseconds": report.milliseconds}
        | {key: value for key, value in report.as_json().items() if key != "mentions"}
        for name, report in reports.items()
    }

"""`captioning ground`: whether a model's maps point at the objects that its words name."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from captioning.cli.model_options import add_model, add_search, model_and_search
from captioning.cli.options import add_data, add_limit, add_maps, add_photo_limit
from captioning.errors import InputError
from captioning.shelf import folder_beside
from captioning.terminal import printable

if TYPE_CHECKING:
    from captioning.evaluation.grounding import GroundingReport

ALL = "all"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--data", required=True, metavar="DIR", help="a data set with boxes")
    parser.add_argument("--split", default="val", help="the split (default: val)")
    add_data(parser)
    add_limit(parser)
    parser.add_argument(
        "--words",
        metavar="FILE",
        help="JSON: the words that name each category (default: everyday words for COCO's "
        "categories; for others, their own names)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="the folder of the results (default: beside the model)"
    )
    parser.add_argument(
        "--references",
        action="store_true",
        help="test the words of all reference captions, not of the model's own: more words, and "
        "the same for every model",
    )
    add_maps(
        parser,
        f"the map to test; several are compared in one table, {ALL}: every map of the model",
    )
    parser.add_argument("--wandb", action="store_true", help="log the report to W&B too")
    add_model(parser)
    add_photo_limit(parser)
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Print the report, and write it with its pictures."""
    from captioning.data.readers import reader_for
    from captioning.evaluation.captions import split_captions
    from captioning.evaluation.grounding import Lexicon, categories, ground_maps, map_table, table
    from captioning.evaluation.pictures import save_grounding
    from captioning.files import made_folder, write_json
    from captioning.maps import available_maps, known_maps

    reader = reader_for(options.data, True, options.images, options.caption_column)
    split = reader.read(options.split)
    if not categories(split):
        raise InputError(
            f"{options.data}: split {options.split!r} has no boxes; "
            "give a data set with instances_*.json in COCO's format"
        )
    if any(record.phrases for record in split) and not options.references:
        raise InputError(
            f"{options.data}: only the words of its references have boxes; give --references"
        )
    # Categories are those of the whole split, so that a limit does not change them.
    lexicon = Lexicon.load(options.words) if options.words else Lexicon.of(categories(split))
    records = split[: options.limit]
    captioner, search = model_and_search(options)
    chosen = available_maps(captioner.model) if ALL in options.maps else options.maps
    maps = known_maps(chosen, captioner.model, captioner.default_map)
    folder = made_folder(
        options.out or folder_beside(options.model[0]) / f"grounding-{options.split}"
    )
    settings = {"batch_size": options.batch_size, "seed": options.seed}
    captions = None
    if not options.references:
        captions = split_captions(captioner, records, search, **settings)
        assert captions is not None  # this is the only process
    several = len(maps) > 1
    reports = ground_maps(
        *(captioner, records, captions, lexicon),
        **settings,
        maps=maps,
        curves=several,
    )
    report = next(iter(reports.values()))
    report.write(folder / "grounding.json")
    if several:
        write_json(folder / "maps.json", _as_json(reports))
    pictures = save_grounding(report, folder, options.max_pixels)
    if options.wandb:
        from captioning.training.loggers import log_grounding

        log_grounding(report, pictures, folder, {"data": options.data, "split": options.split})
    print(map_table(reports, captioner.default_map) if several else table(report))
    print(printable(folder))
    return 0


def _as_json(reports: "Mapping[str, GroundingReport]") -> dict[str, object]:
    """The scores and times of several maps, without the scores of each mention."""
    return {
        name: {"milliseconds": report.milliseconds}
        | {key: value for key, value in report.as_json().items() if key != "mentions"}
        for name, report in reports.items()
    }

"""`captioning compare`: two systems' captions of the same images, with tests of significance."""

import argparse

from captioning.cli.metric_options import (
    RESULTS,
    add_metrics,
    add_photos,
    add_references,
    add_tokenizer,
    note_on_cider,
    photo_scorers_of,
    photos_of,
    scorers_of,
)
from captioning.cli.options import add_imports, add_number
from captioning.errors import InputError
from captioning.numbers import Samples, Seed
from captioning.untrusted import short

FORMATS = ("text", "csv", "markdown", "latex")
"""The names in `captioning.evaluation.comparison`, which takes a while to import."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("first", metavar="A", help=f"system A's captions: {RESULTS}")
    parser.add_argument("second", metavar="B", help="system B's captions of the same images")
    add_references(parser)
    add_number(parser, "--samples", Samples, "samples of the paired bootstrap", 1000)
    add_number(parser, "--trials", Samples, "trials of the approximate randomisation", 10_000)
    add_number(parser, "--seed", Seed, "of samples and trials", 0)
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="of the table (default: text)"
    )
    parser.add_argument("--out", metavar="FILE", help="write the table to FILE, not to the screen")
    add_tokenizer(parser)
    add_photos(parser)
    add_imports(parser)
    add_metrics(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from captioning.data.references import read_references
    from captioning.data.results import read_results, scored_captions
    from captioning.evaluation import comparison
    from captioning.evaluation.report import Report
    from captioning.files import written_whole

    paths = (options.first, options.second)
    read = [read_results(path) for path in paths]
    references = read_references(options.references, options.split)
    first, second = (
        scored_captions(captions, references, path, options.references)
        for captions, path in zip(read, paths, strict=True)
    )
    for image in (*first, *second):
        for path, captions in zip(paths, (first, second), strict=True):
            if image not in captions:
                raise InputError(
                    f"{path}: no caption of image {short(image)}, which the other system has; "
                    "compare captions of the same images"
                )
    scorers = scorers_of(options)
    by_photos = photo_scorers_of(options, photos_of(options, first))
    reports = [
        Report.of(
            {image: captions[image] for image in first},
            references.captions,
            scorers,
            photo_scorers=by_photos,
            tokenizer=options.tokenizer,
        )
        for captions in (first, second)
    ]
    result = comparison.Comparison.of(
        reports[0].scores,
        reports[1].scores,
        paths,
        options.samples,
        options.trials,
        options.seed,
    )
    note_on_cider(options, len(first))
    table = comparison.FORMATS[options.format](result)
    if options.out is None:
        print(table)
    else:
        with written_whole(options.out) as temporary:
            temporary.write_text(f"{table}\n", encoding="utf-8")
    return 0

"""`captioning score`: scores of any model's captions, from a file."""

import argparse
import sys

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
from captioning.cli.options import add_imports, add_json, show_report


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("results", metavar="RESULTS", help=RESULTS)
    add_references(parser)
    add_json(parser, "the report, including the scores of every image")
    parser.add_argument(
        "--training",
        metavar="FILE",
        help="the training captions, in a format of REFERENCES; reports the share of results that "
        "differ from all of them",
    )
    parser.add_argument(
        "--save-frequencies",
        metavar="FILE",
        help="write the document frequencies of all REFERENCES, for --frequencies",
    )
    add_tokenizer(parser)
    add_photos(parser)
    add_imports(parser)
    add_metrics(parser)


def run(options: argparse.Namespace) -> int:
    """Print the scores."""
    from captioning.data.references import read_references
    from captioning.data.results import read_results, scored_captions
    from captioning.data.tokenizers import tokenizer
    from captioning.evaluation.report import Report
    from captioning.metrics.cider import DocumentFrequencies

    captions = read_results(options.results)
    found = read_references(options.references, options.split)
    captions = scored_captions(captions, found, options.results, options.references)
    references, training = found.captions, None
    if options.training is not None:
        known = read_references(options.training).captions
        training = [text for texts in known.values() for text in texts]
    by_photos = photo_scorers_of(options, photos_of(options, captions))
    report = Report.of(
        captions,
        references,
        scorers_of(options),
        training,
        photo_scorers=by_photos,
        tokenizer=options.tokenizer,
    )
    if options.save_frequencies is not None:
        written = [list(map(tokenizer(options.tokenizer), texts)) for texts in references.values()]
        DocumentFrequencies.of(written).save(options.save_frequencies)
    if missing := len(references) - len(captions):
        print(
            f"captioning: {missing} of the {len(references)} images in {options.references} have "
            f"no result; the scores are of the other {len(captions)}",
            file=sys.stderr,
        )
    note_on_cider(options, len(captions))
    show_report(report, options.json)
    return 0

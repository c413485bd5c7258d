"""`captioning score`: scores of any model's captions, from a file."""

import argparse
import sys

from captioning.cli.metric_options import (
    add_metrics,
    add_photos,
    note_on_cider,
    photo_scorers_of,
    photos_of,
    scorers_of,
)
from captioning.cli.options import add_imports, add_json, show_report
from captioning.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "results", metavar="RESULTS", help="JSON: a list of objects with image_id and caption"
    )
    parser.add_argument(
        "references",
        metavar="REFERENCES",
        help="the reference captions: COCO's captions_*.json, or Karpathy's dataset_*.json",
    )
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
    parser.add_argument(
        "--tokenizer",
        choices=("ptb", "characters", "japanese", "chinese", "thai"),
        default="ptb",
        help="what splits captions into words: the COCO evaluation's (default) or, for scripts "
        "without spaces, characters or the words of a language (extras ja, zh and th)",
    )
    add_photos(parser)
    add_imports(parser)
    add_metrics(parser)


def run(options: argparse.Namespace) -> int:
    """Print the scores."""
    from captioning.data.results import read_references, read_results, with_ids_of
    from captioning.data.tokenizers import tokenizer
    from captioning.evaluation.report import Report
    from captioning.metrics.cider import DocumentFrequencies

    captions, references = read_results(options.results), read_references(options.references)
    captions = with_ids_of(captions, references, options.results)
    if unknown := [image for image in captions if image not in references]:
        raise InputError(
            f"{options.results}: {len(unknown)} of {len(captions)} images have no caption in "
            f"{options.references}, such as {unknown[0]!r}; give the references of the same images"
        )
    training = None
    if options.training is not None:
        training = [text for texts in read_references(options.training).values() for text in texts]
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

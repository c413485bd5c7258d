"""`captioning judge`: how well metrics agree with people's ratings of captions."""

import argparse
import sys

from captioning.cli.metric_options import (
    add_metrics,
    add_photos,
    photo_scorers_of,
    photos_of,
    scorers_of,
)
from captioning.cli.options import add_imports, add_json, show_report


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "ratings",
        metavar="RATINGS",
        help="Flickr8k's ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, or a CSV file with "
        "the columns image, caption and rating",
    )
    parser.add_argument(
        "--references",
        required=True,
        metavar="FILE",
        help="the reference captions: Flickr8k.token.txt, COCO's captions_*.json, or Karpathy's "
        "dataset_*.json",
    )
    parser.add_argument(
        "--mean",
        action="store_true",
        help="compare with the mean rating of each caption (default: with each rating, as in "
        "published results for Flickr8k-Expert)",
    )
    add_photos(parser)
    add_json(parser, "the correlations and their intervals")
    parser.add_argument("--plot", metavar="FILE", help="draw the correlations as a PNG file")
    add_imports(parser)
    add_metrics(parser)


def run(options: argparse.Namespace) -> int:
    """Print the rank correlations."""
    from captioning.data.judgements import read_judgements
    from captioning.evaluation.agreement import Agreement

    judgements = read_judgements(options.ratings, options.references)
    by_photos = photo_scorers_of(options, photos_of(options, judgements.references))
    agreement = Agreement.of_judgements(judgements, scorers_of(options), options.mean, by_photos)
    if judgements.left_out:
        print(
            f"captioning: omitted {judgements.left_out} pairs whose caption is a reference of the "
            f"image; {agreement.pairs} remain",
            file=sys.stderr,
        )
    if judgements.not_references:
        print(
            f"captioning: omitted {judgements.not_references} references that are themselves rated "
            "captions of their image",
            file=sys.stderr,
        )
    if options.plot is not None:
        from captioning.evaluation.agreement_plot import save

        save(agreement, options.plot)
    show_report(agreement, options.json)
    return 0

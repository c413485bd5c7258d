"""The options of `evaluate` and `score` that choose metrics."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from captioning.metrics.scores import Scorer


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Options of the scores beside BLEU, ROUGE-L and CIDEr."""
    metrics = parser.add_argument_group(
        "scores", "beside BLEU, ROUGE-L and CIDEr, as the COCO evaluation computes them"
    )
    metrics.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        default=[],
        metavar="NAME",
        help="a further metric, by its name in captioning.metrics.registry",
    )
    for name, needs in (("METEOR", "pycocoevalcap"), ("SPICE", "Java 8 to 14")):
        metrics.add_argument(
            f"--{name.lower()}",
            dest="metrics",
            action="append_const",
            const=name,
            help=f"{name} too, which needs {needs}",
        )
    metrics.add_argument(
        "--meteor-java",
        dest="metrics",
        action="append_const",
        const="METEOR-Java",
        help="METEOR by its authors' program too, to compare with; needs Java",
    )
    metrics.add_argument(
        "--frequencies",
        metavar="FILE",
        help="CIDEr's document frequencies, as `score --save-frequencies` wrote them "
        "(default: those of the scored images)",
    )


def scorers_of(options: argparse.Namespace) -> "tuple[Scorer, ...]":
    """The scorers of the chosen metrics; imports the user's modules first.

    Raises:
        InputError: Java or a program that a metric needs is missing, or the document frequencies
            cannot be read.
        UsageError: a metric is unknown.
    """
    from functools import partial

    from captioning.metrics.cider import DocumentFrequencies, cider_scores
    from captioning.metrics.registry import scorers
    from captioning.user_modules import import_modules

    import_modules(options.modules)
    found = scorers(options.metrics)
    if options.frequencies is not None:
        frequencies = DocumentFrequencies.load(options.frequencies)
        found["CIDEr"] = partial(cider_scores, frequencies=frequencies)
    return tuple(found.values())

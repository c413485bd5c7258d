"""Which scores `evaluate` and `score` give."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from captioning.evaluation.report import Scorer


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Options of the scores beside BLEU, ROUGE-L and CIDEr."""
    metrics = parser.add_argument_group(
        "scores", "beside BLEU, ROUGE-L and CIDEr, as the COCO evaluation computes them"
    )
    metrics.add_argument("--meteor", action="store_true", help="METEOR too, which needs Java")
    metrics.add_argument("--spice", action="store_true", help="SPICE too, which needs Java 8 to 14")
    metrics.add_argument(
        "--frequencies",
        metavar="FILE",
        help="CIDEr's document frequencies, as `score --save-frequencies` wrote them "
        "(default: those of the scored images)",
    )


def scorers_of(options: argparse.Namespace) -> "tuple[Scorer, ...]":
    """What computes the scores that are wanted.

    Raises:
        InputError: Java or a program is missing that one of them needs, or the document
            frequencies cannot be read.
    """
    from functools import partial

    from captioning.metrics.bleu import bleu_scores
    from captioning.metrics.cider import DocumentFrequencies, cider_scores
    from captioning.metrics.meteor import Meteor
    from captioning.metrics.rouge import rouge_scores
    from captioning.metrics.spice import Spice

    given = options.frequencies
    frequencies = None if given is None else DocumentFrequencies.load(given)
    scorers: list[Scorer] = [
        bleu_scores,
        rouge_scores,
        partial(cider_scores, frequencies=frequencies),
    ]
    if options.meteor:
        scorers.append(Meteor())
    if options.spice:
        scorers.append(Spice())
    return tuple(scorers)

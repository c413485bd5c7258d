"""Kendall's tau-c of our scores with ratings by Flickr8k's experts; see docs/how-to/evaluate.md.

    python -m benchmarks.agreement FLICKR8K/ExpertAnnotations.txt FLICKR8K/Flickr8k.token.txt

As in Hessel et al. 2021, https://arxiv.org/abs/2104.08718: captions that were written for the rated
photo are left out, all captions of a photo are references, and each of three ratings counts.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from scipy.stats import kendalltau

from captioning.evaluation.report import Report


def main() -> None:
    """Print a line for each score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("tokens", type=Path)
    options = parser.parse_args()
    written: dict[str, str] = {}
    references: dict[str, list[str]] = defaultdict(list)
    for name, caption in rows(options.tokens):
        written[name] = caption.strip()
        references[name.partition(".")[0]].append(caption.strip())
    rated = [
        (written[name], references[photo.partition(".")[0]], int(rating))
        for photo, name, *ratings in rows(options.ratings)
        for rating in ratings
        if written[name] not in references[photo.partition(".")[0]]
    ]
    report = Report.of(
        {number: caption for number, (caption, _, _) in enumerate(rated)},
        {number: others for number, (_, others, _) in enumerate(rated)},
    )
    for name, scores in report.images.items():
        tau = kendalltau(scores, [rating for *_, rating in rated], variant="c").statistic
        print(f"{name:8} {100 * tau:5.1f}")


def rows(file: Path) -> list[list[str]]:
    """The values of a file separated by tabs."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


if __name__ == "__main__":
    main()

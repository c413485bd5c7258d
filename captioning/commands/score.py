"""`captioning score` and `captioning compare`: captions from files, of any model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from captioning.commands.options import (
    MAY_BEGIN_WITH_DASH,
    MaxMegapixels,
    MetricOptions,
    Tokenizer,
)
from captioning.errors import InputError
from captioning.progress_bar import say

if TYPE_CHECKING:
    from captioning.data.references import References
    from captioning.evaluation.report import Report


@Parameter(name="*", group="References")
@dataclass(frozen=True)
class ReferenceOptions:
    """How references are read."""

    split: str | None = None
    """Use the references of this split of the data set only."""
    tokenizer: Tokenizer = "ptb"
    """What splits captions into words: the COCO evaluation's or, for scripts without spaces,
    characters or the words of a language (extras ja, zh and th)."""
    photos: Path | None = None
    """The folder of the photos that the references name, for --clip."""
    max_megapixels: MaxMegapixels = 100.0


def score(
    results: Path,
    references: Path,
    /,
    *,
    caption_column: str | None = None,
    json: Annotated[str | None, MAY_BEGIN_WITH_DASH] = None,
    training: Path | None = None,
    save_frequencies: Path | None = None,
    reading: ReferenceOptions = ReferenceOptions(),
    metrics: MetricOptions = MetricOptions(),
) -> dict[str, float]:
    """Score captions from files, of any model.

    Args:
        results: The captions: COCO's results format (a list of objects with image_id and caption),
            a table of image and caption, a folder or lines of `captioning caption`, or a folder of
            `captioning evaluate`.
        references: The reference captions: COCO's `captions_*.json`, Karpathy's `dataset_*.json`,
            Flickr8k.token.txt, a table such as captions.csv, or a data set's folder.
        caption_column: The column of RESULTS' captions, if it is a table that leaves doubt.
        json: Write the report, including the scores of every image; - prints it in place of the
            table.
        training: The training captions, in a format of the references; reports the share of
            results that differ from all of them.
        save_frequencies: Write the document frequencies of all references, for --frequencies.
    """
    from captioning.data.tokenizers import tokenizer
    from captioning.errors import printable_json
    from captioning.files import write_json
    from captioning.metrics.cider import DocumentFrequencies

    found, [report] = _reports([results], references, reading, metrics, caption_column, training)
    if save_frequencies is not None:
        words = tokenizer(reading.tokenizer)
        written = [list(map(words, texts)) for texts in found.captions.values()]
        DocumentFrequencies.of(written).save(save_frequencies)
    if missing := len(found.captions) - len(report.captions):
        say(
            f"captioning: {missing} of the {len(found.captions)} images in {references} have "
            f"no result; the scores are of the other {len(report.captions)}"
        )
    if json == "-":
        print(printable_json(report.as_json()))
        return report.summary
    if json is not None:
        write_json(json, report.as_json())
    say(*report.table().split("\n"), file=sys.stdout)
    return report.summary


def compare(
    first: Annotated[Path, Parameter(name="A")],
    second: Annotated[Path, Parameter(name="B")],
    references: Path,
    /,
    *,
    caption_column: str | None = None,
    samples: PositiveInt = 1000,
    seed: int = 0,
    reading: ReferenceOptions = ReferenceOptions(),
    metrics: MetricOptions = MetricOptions(),
) -> dict[str, Any]:
    """Test whether one system's captions are better than another's.

    Args:
        first: System A's captions, in any form that `captioning score` reads.
        second: System B's captions of the same images.
        references: The reference captions, in any form that `captioning score` reads.
        caption_column: The column of A's and B's captions, if they are tables that leave doubt.
        samples: Samples of the paired bootstrap.
        seed: Of the samples.

    Returns:
        By score, a `Compared`: first, second, interval and p_value.
    """
    from captioning.errors import printable
    from captioning.evaluation.comparison import compared, comparison_table

    _, [one, other] = _reports([first, second], references, reading, metrics, caption_column)
    note = (
        f"A: {printable(first)}; B: {printable(second)}; {len(one.captions)} images; {samples} "
        f"bootstrap samples, seed {seed}"
    )
    comparison = compared(one.scores, other.scores, samples, seed)
    say(*comparison_table(comparison, note).split("\n"), file=sys.stdout)
    return comparison


def _reports(
    paths: Sequence[Path],
    references: Path,
    reading: ReferenceOptions,
    metrics: MetricOptions,
    caption_column: str | None,
    training: Path | None = None,
) -> "tuple[References, list[Report]]":
    """The references, and the scores of one or two systems' captions of the same images."""
    from captioning.data.references import (
        named_photos,
        read_references,
        read_results,
        scored_captions,
    )
    from captioning.data.tokenizers import tokenizer_hint
    from captioning.evaluation.report import Report

    found = read_references(references, reading.split)
    every = [text for texts in found.captions.values() for text in texts]
    if hint := tokenizer_hint(every, reading.tokenizer):
        print(f"captioning: {hint}", file=sys.stderr)
    systems = [
        scored_captions(read_results(path, caption_column), found, path, references)
        for path in paths
    ]
    images = systems[0].keys()
    if alone := sorted(images ^ systems[-1].keys(), key=str):
        raise InputError(
            f"{paths[-1 if alone[0] in images else 0]}: no caption of image {str(alone[0])[:80]}, "
            "which the other system has; compare captions of the same images"
        )
    known = None
    if training is not None:
        known = [text for texts in read_references(training).captions.values() for text in texts]
    scorers = metrics.scorers()
    photos = named_photos(found, reading.photos, images) if reading.photos else None
    by_photos = metrics.photo_scorers(photos, reading.max_megapixels)
    metrics.note_on_cider(len(images))
    return found, [
        Report.of(
            {image: captions[image] for image in images},
            found.captions,
            scorers,
            known,
            photo_scorers=by_photos,
            tokenizer=reading.tokenizer,
        )
        for captions in systems
    ]

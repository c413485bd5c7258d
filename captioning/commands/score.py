"""`captioning score` and `captioning compare`: captions from files, of any model."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from captioning.commands.options import (
    MAY_BEGIN_WITH_DASH,
    MaxMegapixels,
    MetricOptions,
)
from captioning.data.tokenizer_names import ScoreTokenizerName
from captioning.errors import InputError
from captioning.progress_bar import say

if TYPE_CHECKING:
    from captioning.evaluation.report import Report


@Parameter(name="*", group="References")
@dataclass(frozen=True)
class ReferenceOptions:
    """How references are read."""

    split: str | None = None
    """Use the references of this split of the data set only."""
    tokenizer: ScoreTokenizerName = "ptb"
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
    reference_options: ReferenceOptions = ReferenceOptions(),
    metric_options: MetricOptions = MetricOptions(),
) -> dict[str, float]:
    """Score captions from files, of any model.

    Args:
        results: The captions: COCO's results format (a list of objects with image_id and caption),
            a table of image and caption, a folder or lines of `captioning caption`, a folder of
            `captioning evaluate`, or a text file of one caption a line in the references' order.
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

    reference_captions, [report] = _reports(
        [results], references, reference_options, metric_options, caption_column, training
    )
    if save_frequencies is not None:
        tokenize = tokenizer(reference_options.tokenizer)
        tokenized = [list(map(tokenize, captions)) for captions in reference_captions.values()]
        DocumentFrequencies.of(tokenized).save(save_frequencies)
    if missing := len(reference_captions) - len(report.captions):
        say(
            f"captioning: {missing} of the {len(reference_captions)} images in {references} have "
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
    reference_options: ReferenceOptions = ReferenceOptions(),
    metric_options: MetricOptions = MetricOptions(),
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
        By score, a `Comparison`: first, second, interval and p_value.
    """
    from captioning.errors import printable
    from captioning.evaluation.comparison import compare_scores, comparison_table

    _, [report_of_a, report_of_b] = _reports(
        [first, second], references, reference_options, metric_options, caption_column
    )
    note = (
        f"A: {printable(first)}; B: {printable(second)}; {len(report_of_a.captions)} images; "
        f"{samples} bootstrap samples, seed {seed}"
    )
    comparison = compare_scores(report_of_a.scores, report_of_b.scores, samples=samples, seed=seed)
    say(*comparison_table(comparison, note).split("\n"), file=sys.stdout)
    return comparison


def _reports(
    paths: Sequence[Path],
    references: Path,
    reference_options: ReferenceOptions,
    metric_options: MetricOptions,
    caption_column: str | None,
    training: Path | None = None,
) -> "tuple[Mapping[Any, Sequence[str]], list[Report]]":
    """Score the captions of one or two systems of the same images.

    Returns:
        the reference captions by image id, and a report for each system.
    """
    from captioning.data.references import (
        named_photos,
        read_references,
        read_results,
        scored_captions,
    )
    from captioning.data.tokenizers import tokenizer_hint
    from captioning.evaluation.report import Report

    read = read_references(references, reference_options.split)
    reference_texts = [text for captions in read.captions.values() for text in captions]
    if hint := tokenizer_hint(reference_texts, reference_options.tokenizer):
        print(f"captioning: {hint}", file=sys.stderr)
    systems = [
        scored_captions(read_results(path, caption_column, read), read, path, references)
        for path in paths
    ]
    images = systems[0].keys()
    if differing := sorted(images ^ systems[-1].keys(), key=str):
        image = differing[0]
        raise InputError(
            f"{paths[-1 if image in images else 0]}: no caption of image {str(image)[:80]}, "
            "which the other system has; compare captions of the same images"
        )
    training_texts = None
    if training is not None:
        training_captions = read_references(training).captions.values()
        training_texts = [text for captions in training_captions for text in captions]
    scorers = metric_options.scorers()
    photos = None
    if reference_options.photos is not None:
        photos = named_photos(read, reference_options.photos, images)
    photo_scorers = metric_options.photo_scorers(photos, reference_options.max_megapixels)
    metric_options.note_on_cider(len(images))
    reports = [
        Report.of(
            {image: captions[image] for image in images},
            read.captions,
            scorers,
            training=training_texts,
            photo_scorers=photo_scorers,
            tokenizer=reference_options.tokenizer,
        )
        for captions in systems
    ]
    return read.captions, reports

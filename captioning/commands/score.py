"""`captioning score` and `captioning compare`: captions from files, of any model."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from captioning.commands.options import (
    MAY_BEGIN_WITH_DASH,
    MaxMegapixels,
    MetricOptions,
    Tokenizer,
)
from captioning.errors import InputError

if TYPE_CHECKING:
    from captioning.metrics.scores import PhotoScorer

RESULTS = (
    "COCO's results format (a list of objects with image_id and caption), a table of image and "
    "caption, a folder or lines of `captioning caption`, or a folder of `captioning evaluate`"
)
"""For help texts: where captions may be."""

References = Annotated[
    Path,
    Parameter(
        help="The reference captions: COCO's `captions_*.json`, Karpathy's "
        "`dataset_*.json`, Flickr8k.token.txt, a table such as captions.csv, or a data set's "
        "folder."
    ),
]


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

    def photo_scorers(
        self, metrics: MetricOptions, references: Path, images: Iterable[int | str]
    ) -> "tuple[PhotoScorer, ...]":
        """The scorers that need the photos of these images."""
        from captioning.data.results import named_photos

        photos = named_photos(references, self.photos, images) if self.photos else None
        return metrics.photo_scorers(photos, self.max_megapixels)


def score(
    results: Annotated[Path, Parameter(help=f"The captions: {RESULTS}.")],
    references: References,
    /,
    *,
    json: Annotated[str | None, MAY_BEGIN_WITH_DASH] = None,
    training: Path | None = None,
    save_frequencies: Path | None = None,
    reading: ReferenceOptions = ReferenceOptions(),
    metrics: MetricOptions = MetricOptions(),
) -> dict[str, float]:
    """Score captions from files, of any model.

    Args:
        json: Write the report, including the scores of every image; - prints it in place of the
            table.
        training: The training captions, in a format of the references; reports the share of
            results that differ from all of them.
        save_frequencies: Write the document frequencies of all references, for --frequencies.

    Returns:
        The scores.
    """
    from captioning.data.references import read_references
    from captioning.data.results import read_results, scored_captions
    from captioning.data.tokenizers import tokenizer
    from captioning.evaluation.report import Report
    from captioning.files import write_json
    from captioning.metrics.cider import DocumentFrequencies
    from captioning.terminal import printable_json

    found = read_references(references, reading.split)
    captions = scored_captions(read_results(results), found, results, references)
    known = None
    if training is not None:
        known = [text for texts in read_references(training).captions.values() for text in texts]
    report = Report.of(
        captions,
        found.captions,
        metrics.scorers(),
        known,
        photo_scorers=reading.photo_scorers(metrics, references, captions),
        tokenizer=reading.tokenizer,
    )
    if save_frequencies is not None:
        words = tokenizer(reading.tokenizer)
        written = [list(map(words, texts)) for texts in found.captions.values()]
        DocumentFrequencies.of(written).save(save_frequencies)
    if missing := len(found.captions) - len(captions):
        print(
            f"captioning: {missing} of the {len(found.captions)} images in {references} have "
            f"no result; the scores are of the other {len(captions)}",
            file=sys.stderr,
        )
    metrics.note_on_cider(len(captions))
    if json == "-":
        print(printable_json(report.as_json()))
        return report.summary
    if json is not None:
        write_json(json, report.as_json())
    print(report.table())
    return report.summary


def compare(
    first: Annotated[Path, Parameter(name="A", help=f"System A's captions: {RESULTS}.")],
    second: Annotated[Path, Parameter(name="B", help="System B's captions of the same images.")],
    references: References,
    /,
    *,
    samples: int = 1000,
    trials: int = 10_000,
    seed: int = 0,
    format: Literal["text", "csv", "markdown"] = "text",
    out: Path | None = None,
    reading: ReferenceOptions = ReferenceOptions(),
    metrics: MetricOptions = MetricOptions(),
) -> None:
    """Test whether one system's captions are better than another's.

    Args:
        samples: Samples of the paired bootstrap.
        trials: Trials of the approximate randomisation.
        seed: Of samples and trials.
        format: Of the table.
        out: Write the table to this file, not to the screen.
    """
    from captioning.data.references import read_references
    from captioning.data.results import read_results, scored_captions
    from captioning.evaluation import comparison
    from captioning.evaluation.report import Report
    from captioning.files import written_whole

    paths = (first, second)
    found = read_references(references, reading.split)
    systems = [scored_captions(read_results(path), found, path, references) for path in paths]
    if alone := sorted(systems[0].keys() ^ systems[1].keys(), key=str):
        path = paths[alone[0] in systems[0]]
        raise InputError(
            f"{path}: no caption of image {str(alone[0])[:80]}, which the other system has; "
            "compare captions of the same images"
        )
    scorers = metrics.scorers()
    by_photos = reading.photo_scorers(metrics, references, systems[0])
    scores = [
        Report.of(
            {image: captions[image] for image in systems[0]},
            found.captions,
            scorers,
            photo_scorers=by_photos,
            tokenizer=reading.tokenizer,
        ).scores
        for captions in systems
    ]
    names = (str(first), str(second))
    result = comparison.Comparison.of(scores[0], scores[1], names, samples, trials, seed)
    metrics.note_on_cider(len(systems[0]))
    table = result.table(format)
    if out is None:
        print(table)
    else:
        with written_whole(out) as temporary:
            temporary.write_text(f"{table}\n", encoding="utf-8")

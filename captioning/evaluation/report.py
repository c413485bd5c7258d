"""The scores of a set of captions: as numbers, as a table, and in files."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokens import words_of
from captioning.data.vocabulary import repeatable_words
from captioning.files import write_json
from captioning.metrics import registry
from captioning.metrics.corpus import corpus_tokens
from captioning.metrics.scores import (
    LEVEL,
    Estimate,
    PhotoScorer,
    Scorer,
    Scores,
    diversity,
    estimates,
    omitted_words,
    share_that_repeats,
)
from captioning.progress_bar import stage

OMISSIONS_SHOWN = 8
"""Number of omitted words in a line."""

Judge: TypeAlias = Callable[[Mapping[int | str, str]], Bool[np.ndarray, " images"]]
"""Decides which captions, given by image id, are good."""


@dataclass(frozen=True)
class Report:
    """Scores of captions with confidence intervals, and statistics of their diversity.

    Attributes:
        captions: one caption per image, by image id.
        scores: by all metrics; scores of images are in the order of the captions.
        statistics: number, length and diversity of the captions, see `diversity`, and the shares of
            captions and references that repeat a content word.
        omitted: frequent content words of the references that the captions never or rarely have,
            with the numbers of images and captions that have them; see `omitted_words`.
    """

    captions: Mapping[Any, str]
    scores: Scores
    statistics: Mapping[str, float]
    omitted: Mapping[str, tuple[int, int]]

    @classmethod
    @stage("scoring the captions")
    def of(
        cls,
        captions: Mapping[Any, str],
        references: Mapping[Any, Sequence[str]],
        scorers: Iterable[Scorer] | None = None,
        *,
        training: Iterable[str] | None = None,
        vocabulary: Collection[str] | None = None,
        further: Iterable[Scores] = (),
        photo_scorers: Iterable[PhotoScorer] = (),
        tokenizer: TokenizerName = "ptb",
        repeatable: Collection[str] | None = None,
    ) -> "Report":
        """Score captions.

        Args:
            captions: one caption per image.
            references: of each image; images without a caption are ignored.
            scorers: default: those of the metrics that are always computed.
            training: the captions that the model was trained on, if known.
            vocabulary: the model's words, if known.
            further: other scores of these captions.
            photo_scorers: scorers that need the photos.
            tokenizer: of the model's vocabulary; splits captions and references.
            repeatable: the words that captions may repeat; default: `repeatable_words` of the
                references.

        Raises:
            InputError: there are no captions, an image with a caption has no reference, or a photo
                cannot be read.
        """
        if scorers is None:
            scorers = registry.scorers().values()
        candidates, reference_tokens = corpus_tokens(captions, references, tokenizer)
        scores = [registry.score_tokens(scorer, candidates, reference_tokens) for scorer in scorers]
        texts = [references[image] for image in captions]
        scores += [scorer([*captions.values()], texts, [*captions]) for scorer in photo_scorers]
        words = list(map(words_of, candidates))
        reference_words = [list(map(words_of, image_tokens)) for image_tokens in reference_tokens]
        all_references = list(chain.from_iterable(reference_words))
        if repeatable is None:
            repeatable = repeatable_words(all_references)
        statistics = diversity(words, training=training, vocabulary=vocabulary, name=tokenizer)
        statistics["share that repeats"] = share_that_repeats(words, repeatable)
        reference_share = share_that_repeats(all_references, repeatable)
        statistics["share of references that repeat"] = reference_share
        omitted = omitted_words(words, reference_words, repeatable)
        return cls(captions, Scores.joined([*scores, *further]), statistics, omitted)

    @property
    def corpus(self) -> dict[str, float]:
        """The corpus scores by name."""
        return self.scores.corpus

    @property
    def images(self) -> dict[str, NDArray[np.float64]]:
        """The scores of the images by name, (images,)."""
        return self.scores.images

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The corpus scores with their confidence intervals, computed on first use."""
        with stage("intervals of the scores"):
            return estimates(self.scores)

    @property
    def summary(self) -> dict[str, float]:
        """The corpus scores and the statistics."""
        return {**self.corpus, **self.statistics}

    def as_json(self) -> dict[str, Any]:
        """Return scores with intervals, statistics, and the scores of each image."""
        rows = np.stack([*self.images.values()], axis=1).tolist()
        images = []
        for result, row in zip(self.results, rows, strict=True):
            images.append(result | dict(zip(self.images, row, strict=True)))
        return {
            "interval": LEVEL,
            "scores": {name: estimate._asdict() for name, estimate in self.estimates.items()},
            "statistics": dict(self.statistics),
            "omitted words": self.omitted,
            "images": images,
        }

    @property
    def results(self) -> list[dict[str, Any]]:
        """The captions in COCO's results format."""
        return [{"image_id": image, "caption": text} for image, text in self.captions.items()]

    def write(self, folder: str | Path, data: Mapping[str, str], reward: str | None = None) -> None:
        """Write captions.json in COCO's results format, scores.json and report.json.

        Args:
            folder: the folder of the files.
            data: name and split of the data set.
            reward: the signature of the rewards that the model was trained by, if any.
        """
        training = {} if reward is None else {"reward": reward}
        write_json(Path(folder) / "captions.json", self.results)
        write_json(Path(folder) / "scores.json", self.summary)
        write_json(Path(folder) / "report.json", {"data": data, **training, **self.as_json()})

    def table(self) -> str:
        """Format the scores with their intervals, and lines about the captions."""
        rows = [
            (name, f"{value:.4f}", f"({low:.4f} to {high:.4f})")
            for name, (value, low, high) in self.estimates.items()
        ]
        counts = self.statistics
        note = (
            f"{LEVEL * 100:.0f} % intervals; {counts['images']:.0f} images, "
            f"{counts['distinct captions']:.0f} distinct captions, "
            f"{counts['distinct words']:.0f} distinct words, {counts['mean length']:.1f} a caption"
            f"\n{counts['share that repeats']:.1%} of the captions repeat a content word, and "
            f"{counts['share of references that repeat']:.1%} of people's"
        )
        return f"{aligned(rows)}\n{note}\n{self.omissions}"

    @property
    def omissions(self) -> str:
        """A line on the most frequent omitted words."""
        words = []
        for word, (image_count, caption_count) in islice(self.omitted.items(), OMISSIONS_SHOWN):
            times = "time" if caption_count == 1 else "times"
            images = f"in {image_count} of {len(self.captions)}"
            words.append(f"{word} ({images}, said {caption_count} {times})")
        line = f"frequent words said rarely or never: {', '.join(words) or 'none'}"
        if len(self.omitted) > OMISSIONS_SHOWN:
            line += f" and {len(self.omitted) - OMISSIONS_SHOWN} more"
        return line

    def worst(self, name: str = "CIDEr") -> list[int]:
        """Return the indices of the images, sorted by a score from low to high."""
        return np.argsort(self.images[name], kind="stable").tolist()


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of cells as lines of text; all columns but the first are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def scene_judge(data: str | Path, split: str) -> Judge | None:
    """Return a judge by which captions are good if every word is right.

    Returns None if the data set in the folder `data` has no drawn scenes.
    """
    if not (Path(data) / "annotations" / f"scenes_{split}.json").exists():
        return None
    from captioning.shapes import is_right, read_scenes

    scenes = read_scenes(data, split)
    return lambda captions: np.array(
        [is_right(caption, scenes[int(image)]) for image, caption in captions.items()]
    )

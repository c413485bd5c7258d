"""Scores a validation, in one process or several."""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

from torch import distributed

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer_of_scores
from captioning.metrics.registry import score_tokens, scorers
from captioning.metrics.scores import Scores, diversity, generated_tokens


class ValidationScores:
    """Collects captions and their references, and scores them together.

    The metrics are those without optional packages, and statistics of the captions. Processes
    exchange the words of captions, not sums: an image that two processes captioned (a distributed
    sampler repeats images) counts once, and the scores are bit for bit those of one process.

    Args:
        tokenizer: of the model's vocabulary.

    Attributes:
        by_image: scores of the images in the last `compute`, by name and image id.
    """

    def __init__(self, tokenizer: TokenizerName = "ptb") -> None:
        self.tokenizer = tokenizer
        self.scorers = scorers() | {"diversity": lambda words, _: Scores(diversity(words), {})}
        self.by_image: dict[str, dict[int | str, float]] = {}
        self._lines: list[str] = []

    def update(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[int | str],
    ) -> None:
        """Add captions, in which `<unk>` is the unknown word, and their references."""
        tokenize = tokenizer_of_scores(self.tokenizer)
        for image, candidate, image_references in zip(images, candidates, references, strict=True):
            tokens = generated_tokens(candidate, self.tokenizer)
            self._lines.append(json.dumps([image, tokens, list(map(tokenize, image_references))]))

    def compute(self) -> dict[str, float]:
        """Compute the corpus scores by name, and drop the captions."""
        process_lines: list[Any] = [self._lines]
        if distributed.is_initialized():
            process_lines *= distributed.get_world_size()
            distributed.all_gather_object(process_lines, self._lines)
        self._lines = []
        captions: dict[int | str, tuple[list[str], list[list[str]]]] = {}
        # Sorted, since the order of summation changes the last bits.
        for line in sorted(set(chain.from_iterable(process_lines))):
            image, candidate, image_references = json.loads(line)
            # A repeated image may have another caption: near-ties may resolve differently in
            # another batch.
            captions.setdefault(image, (candidate, image_references))
        candidates, references = zip(*captions.values(), strict=True)
        scores = Scores.joined(
            [
                score_tokens(scorer, candidates, references)
                for _, scorer in sorted(self.scorers.items())
            ]
        )
        self.by_image = {
            name: dict(zip(captions, values.tolist(), strict=True))
            for name, values in scores.images.items()
        }
        return scores.corpus

"""The scores of a validation, in one process or several."""

import json
from collections.abc import Sequence
from typing import Any

from torch import distributed

from captioning.data.tokenizers import TokenizerName, tokenizer_of_scores
from captioning.metrics.registry import scored, scorers
from captioning.metrics.scores import Scores, diversity, generated_tokens


class ValidationScores:
    """Collects captions and their references and scores them together.

    The metrics are all that need nothing, and statistics of the captions. Processes exchange the
    captions' words, not sums. So an image that two processes captioned (a distributed sampler
    repeats images) counts once, and the scores equal those of one process to the last bit.

    Args:
        tokenizer: of the model's vocabulary.

    Attributes:
        by_image: the images' scores of the last `compute`, by name and image id.
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
        """Add the captions, in which `<unk>` is the unknown word, and references of some images."""
        cut, name = tokenizer_of_scores(self.tokenizer), self.tokenizer
        self._lines += [
            json.dumps([image, generated_tokens(candidate, name), list(map(cut, written))])
            for image, candidate, written in zip(images, candidates, references, strict=True)
        ]

    def compute(self) -> dict[str, float]:
        """The corpus scores by name; the next captions are another validation's."""
        every: list[Any] = [self._lines]
        if distributed.is_initialized():
            every *= distributed.get_world_size()
            distributed.all_gather_object(every, self._lines)
        self._lines = []
        captions: dict[int | str, tuple[list[str], list[list[str]]]] = {}
        # Sorted, since the order of summation changes the last bits.
        for line in sorted({line for lines in every for line in lines}):
            image, candidate, written = json.loads(line)
            # A repeated image may have another caption: near-ties may resolve differently in
            # another batch.
            captions.setdefault(image, (candidate, written))
        candidates, references = zip(*captions.values(), strict=True)
        found = Scores.joined(
            [scored(scorer, candidates, references) for _, scorer in sorted(self.scorers.items())]
        )
        self.by_image = {
            name: dict(zip(captions, values.tolist(), strict=True))
            for name, values in found.images.items()
        }
        return found.corpus

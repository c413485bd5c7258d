"""A metric that collects captions as they are written, also in several processes.

What the processes exchange is the captions' words, not sums: an image that two of them captioned,
since a sampler repeats images to give all the same number, counts once, and the scores are those
of one process to the last bit.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from captioning.data.tokens import tokens
from captioning.metrics.registry import scorers
from captioning.metrics.scores import Scorer, Scores
from captioning.metrics.variety import variety
from captioning.metrics.words import generated_tokens, scored

Words = Sequence[str]
"""A caption's words."""


class CaptionMetric(Metric):
    """Collects captions and their references, and scores them all together.

    Those of several scorers share their captions in a `torchmetrics.MetricCollection`.

    Args:
        scorer: scores captions and references, in words.
        options: of torchmetrics.

    Attributes:
        by_image: by name and image id, what `compute` last found of every image.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    records: list[Tensor] | Tensor  # one tensor while those of all processes are gathered

    def __init__(self, scorer: Scorer, **options: Any) -> None:
        super().__init__(**options)
        self.scorer = scorer
        self.by_image: dict[str, dict[int | str, float]] = {}
        # A line of JSON for every image, as bytes: whole corpora gather as one tensor.
        self.add_state("records", default=[], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """That of the state, in which a process without captions takes part in gathering."""
        return torch.uint8

    def update(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[int | str],
    ) -> None:
        """Add captions.

        Args:
            candidates: a caption for each image, in which `<unk>` stands for an unknown word.
            references: what people wrote of each image.
            images: their ids.

        Raises:
            ValueError: the three differ in length.
        """
        lines = [
            json.dumps([image, generated_tokens(candidate), list(map(tokens, written))])
            for image, candidate, written in zip(images, candidates, references, strict=True)
        ]
        text = "".join(line + "\n" for line in lines)
        assert isinstance(self.records, list)
        record = np.frombuffer(text.encode(), dtype=np.uint8)
        self.records.append(torch.tensor(record, device=self.device))

    def compute(self) -> dict[str, Tensor]:
        """The scores of all captions by name, in double precision on the CPU.

        Raises:
            ValueError: there are no captions, or an image has no reference.
        """
        records = self.records if isinstance(self.records, list) else [self.records]
        text = b"".join(record.cpu().numpy().tobytes() for record in records)
        captions: dict[int | str, tuple[list[str], list[list[str]]]] = {}
        # In the order of their text, since another order would change the last bits of sums.
        for line in sorted(set(text.splitlines())):
            image, candidate, written = json.loads(line)
            # An image that comes again may have another caption where two words are nearly as
            # probable: in another batch, sums are rounded otherwise.
            captions.setdefault(image, (candidate, written))
        candidates, references = zip(*captions.values(), strict=True) if captions else ((), ())
        scores = scored(self.scorer, candidates, references)
        self.by_image = {
            name: dict(zip(captions, values.tolist(), strict=True))
            for name, values in scores.images.items()
        }
        return {
            name: torch.tensor(score, dtype=torch.float64) for name, score in scores.corpus.items()
        }


def variety_scores(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Scores:
    """How many, how long and how varied captions are; see `captioning.metrics.variety`."""
    return Scores(variety(candidates), {})


def validation_metrics() -> MetricCollection:
    """What validations of a training compute: all that is always computed, and statistics."""
    metrics = {name: CaptionMetric(scorer) for name, scorer in scorers().items()}
    return MetricCollection({**metrics, "variety": CaptionMetric(variety_scores)})

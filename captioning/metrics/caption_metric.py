"""A torchmetrics metric that collects captions, in one process or several.

Processes exchange the captions' words, not sums. So an image that two processes captioned (a
distributed sampler repeats images) counts once, and the scores equal those of one process to the
last bit.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from captioning.data.tokenizers import TokenizerName, tokenizer_of_scores
from captioning.metrics.registry import scored, scorers
from captioning.metrics.scores import Scorer, Scores, diversity, generated_tokens


class CaptionMetric(Metric):
    """Collects captions and their references and scores them together.

    In a `torchmetrics.MetricCollection`, several of these share one copy of the captions.

    Args:
        scorer: the metric.
        tokenizer: of the model's vocabulary.
        options: those of torchmetrics.

    Attributes:
        by_image: the images' scores of the last `compute`, by name and image id.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    records: list[Tensor] | Tensor  # one tensor after a gather over processes

    def __init__(self, scorer: Scorer, tokenizer: TokenizerName = "ptb", **options: Any) -> None:
        super().__init__(**options)
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.by_image: dict[str, dict[int | str, float]] = {}
        # One line of JSON per image, as bytes: a whole corpus is gathered as one tensor.
        self.add_state("records", default=[], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the state, also for a process without captions in a gather."""
        return torch.uint8

    def update(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[int | str],
    ) -> None:
        """Add the captions, in which `<unk>` is the unknown word, and references of some images."""
        cut, name = tokenizer_of_scores(self.tokenizer), self.tokenizer
        lines = [
            json.dumps([image, generated_tokens(candidate, name), list(map(cut, written))]) + "\n"
            for image, candidate, written in zip(images, candidates, references, strict=True)
        ]
        assert isinstance(self.records, list)
        record = np.frombuffer("".join(lines).encode(), dtype=np.uint8)
        self.records.append(torch.tensor(record, device=self.device))

    def compute(self) -> dict[str, Tensor]:
        """The corpus scores by name, in double precision on the CPU."""
        records = self.records if isinstance(self.records, list) else [self.records]
        text = b"".join(record.cpu().numpy().tobytes() for record in records)
        captions: dict[int | str, tuple[list[str], list[list[str]]]] = {}
        # Sorted, since the order of summation changes the last bits.
        for line in sorted(set(text.splitlines())):
            image, candidate, written = json.loads(line)
            # A repeated image may have another caption: near-ties may resolve differently in
            # another batch.
            captions.setdefault(image, (candidate, written))
        candidates, references = zip(*captions.values(), strict=True) if captions else ((), ())
        scores = scored(self.scorer, candidates, references)
        self.by_image = {
            name: dict(zip(captions, values.tolist(), strict=True))
            for name, values in scores.images.items()
        }
        return {name: torch.tensor(v, dtype=torch.float64) for name, v in scores.corpus.items()}


def validation_metrics(tokenizer: TokenizerName = "ptb") -> MetricCollection:
    """The metrics of a validation: all that need nothing, and statistics of the captions."""
    named = scorers() | {"diversity": lambda words, _: Scores(diversity(words), {})}
    return MetricCollection({name: CaptionMetric(of, tokenizer) for name, of in named.items()})

"""Scores of a validation, in one process and in two."""

import multiprocessing
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from torch import distributed
from torch.utils.data import DistributedSampler

from captioning.metrics import registry
from captioning.metrics.registry import METRICS, Metric
from captioning.metrics.scores import Scores
from captioning.metrics.validation_scores import ValidationScores

CAPTIONS = [
    "A dog runs on the beach.",
    "two red birds",
    "a man in a <unk> hat",
    "",
    "A girl, a ball & a cat 🐈",
    "the the the",
    "a dog sits on the grass",
]
REFERENCES = [
    ["A dog is running on the beach.", "a dog on a beach"],
    ["Two red birds in a tree", "birds"],
    ["a man in a straw hat", "A man wears a hat."],
    ["someone", "a person"],
    ["A girl throws a ball to a cat", "girl and cat 🐈"],
    ["the cat", "a the"],
    ["a dog on the grass", "A brown dog sits on green grass."],
]
IMAGES: list[int | str] = [11, 2, "x.jpg", "é", 5, 40, 1]


def update(scores: ValidationScores, *numbers: int) -> None:
    scores.update(
        [CAPTIONS[i] for i in numbers],
        [REFERENCES[i] for i in numbers],
        [IMAGES[i] for i in numbers],
    )


def test_order_batches_and_repeated_images_change_no_bit() -> None:
    at_once, bit_by_bit = ValidationScores(), ValidationScores()
    update(at_once, *range(7))
    update(bit_by_bit, 6, 2, 0)
    update(bit_by_bit)
    update(bit_by_bit, 3, 1, 5, 4, 0, 6)
    bit_by_bit.update(["another caption"], REFERENCES[:1], IMAGES[:1])  # one counts
    found = at_once.compute()
    assert bit_by_bit.compute() == found
    assert bit_by_bit.by_image == at_once.by_image
    assert {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"} < found.keys()


def test_a_metric_of_the_list_is_computed_in_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths(candidates: Sequence[Sequence[str]], references: object) -> Scores:
        return Scores.of("length", np.array([len(words) for words in candidates], dtype=float))

    monkeypatch.setattr(registry, "METRICS", [*METRICS, Metric("length", lambda: lengths)])
    scores = ValidationScores()
    update(scores, 0, 1)
    assert scores.compute()["length"] == 4.5


def scores_of_two(rank: int, store: Path) -> dict[str, dict[str, float]]:
    """The scores that one of two processes gets.

    Returns:
        "padded", where a sampler gave both processes the same number of images, and "lopsided",
        where the second process had them all.
    """
    distributed.init_process_group(
        "gloo", f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    try:
        padded, lopsided = ValidationScores(), ValidationScores()
        update(padded, *DistributedSampler(IMAGES, shuffle=False))
        if rank == 1:
            update(lopsided, *range(len(IMAGES)))
        return {"padded": padded.compute(), "lopsided": lopsided.compute()}
    finally:
        distributed.destroy_process_group()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.* use of fork:DeprecationWarning")
def test_two_processes_score_as_one_though_one_image_is_repeated(tmp_path: Path) -> None:
    # Forked as PyTorch forks the processes that read data; a fresh one would import for seconds.
    other = multiprocessing.get_context("fork").Process(
        target=scores_of_two, args=(1, tmp_path / "store")
    )
    other.start()
    found = scores_of_two(0, tmp_path / "store")
    other.join(timeout=60)
    assert other.exitcode == 0
    alone = ValidationScores()
    update(alone, *range(7))
    assert found == dict.fromkeys(("padded", "lopsided"), alone.compute())

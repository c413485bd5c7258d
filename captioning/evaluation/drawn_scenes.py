"""Exact correctness of captions of drawn scenes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from captioning.metrics.scores import Scores
from captioning.shapes import faults, read_scenes


def scene_scores(
    captions: Mapping[int | str, str], data: str | Path, split: str
) -> tuple[Scores, ...]:
    """The share of captions of drawn scenes whose every attribute and relation is right.

    Args:
        captions: one caption per scene, by image id.
        data: the folder of the data set.
        split: the split.

    Returns:
        The score "right": 1 for right captions and 0 for others, and their share in the corpus; no
        scores if the data set does not consist of drawn scenes.
    """
    if not (Path(data) / "annotations" / f"scenes_{split}.json").exists():
        return ()
    scenes = read_scenes(data, split)
    right = [not faults(caption, scenes[int(image)]) for image, caption in captions.items()]
    return (Scores.of("right", np.array(right, dtype=np.float64)),)

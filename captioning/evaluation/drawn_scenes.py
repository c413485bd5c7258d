"""What is known of captions of drawn scenes, whose contents are known exactly."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from captioning.data.shapes import faults, read_scenes
from captioning.metrics.scores import Scores


def scene_scores(
    captions: Mapping[int | str, str], data: str | Path, split: str
) -> tuple[Scores, ...]:
    """How many captions of drawn scenes are right in every attribute and relation they state.

    Args:
        captions: one caption per scene, by image id.
        data: the folder of the data set.
        split: its part.

    Returns:
        Under "right" 1 for captions that are and 0 for others, and their share of the corpus; no
        scores where the data set is not of drawn scenes.
    """
    if not (Path(data) / "annotations" / f"scenes_{split}.json").exists():
        return ()
    scenes = read_scenes(data, split)
    right = [not faults(caption, scenes[int(image)]) for image, caption in captions.items()]
    return (Scores.of("right", np.array(right, dtype=np.float64)),)

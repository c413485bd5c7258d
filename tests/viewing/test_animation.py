"""Animations of captions."""

import numpy as np
import torch
from PIL import Image

from captioning.captioner.caption import Caption
from captioning.viewing.animation import frames


def last_frame(*words: str) -> np.ndarray:
    """The last frame of a Chinese caption whose words all looked at everything."""
    maps = {"attention": torch.full((len(words), 2, 2), 0.25)}
    likely, crop, size = (0.5,) * len(words), (0.0, 0.0, 90.0, 60.0), (90, 60)
    given = Caption(words, likely, -1.0, crop, size, maps, ("attention",), tokenizer="chinese")
    return np.asarray(frames(Image.new("RGB", size), given)[-1])


def test_words_are_drawn_without_spaces_where_their_script_has_none() -> None:
    whole = last_frame("黑狗在跑")
    np.testing.assert_array_equal(last_frame("黑狗", "在", "跑"), whole)
    assert (last_frame("黑狗", "x", "y") != last_frame("黑狗xy")).any()

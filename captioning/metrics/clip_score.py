"""CLIPScore and RefCLIPScore: whether a caption fits the photo, and what people wrote of it.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021,
https://arxiv.org/abs/2104.08718.
"""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from captioning.metrics.clip import Clip
from captioning.metrics.scores import Scores, check_pairs

PROMPT = "A photo depicts "
"""What each text begins with (section 3)."""

SCALE = 2.5
"""Stretches cosines, which are rarely above 0.4, over most of [0, 1]; w in section 3."""


class ClipScore:
    """Scores captions by CLIP.

    Captions are read as they are written, since CLIP has a tokenizer of its own.

    Args:
        clip: the model.
        photos: by image id, where the photo lies.
    """

    def __init__(self, clip: Clip, photos: Mapping[Hashable, Path]) -> None:
        self._clip = clip
        self._photos = photos

    def __call__(
        self,
        captions: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[Hashable],
    ) -> Scores:
        """CLIPScore and RefCLIPScore; those of the corpus are means over captions.

        Args:
            captions: the texts to score.
            references: for each caption what people wrote of its image.
            images: for each caption the id of its image.

        Raises:
            InputError: a photo is missing, damaged or too large.
            ValueError: there are no captions, or one has no reference.
        """
        check_pairs([caption.split() for caption in captions], references)
        photos = list(dict.fromkeys(images))
        texts = list(dict.fromkeys([*captions, *(text for each in references for text in each)]))
        of_photo = dict(
            zip(photos, self._clip.photos([self._photos[image] for image in photos]), strict=True)
        )
        prompts = [f"{PROMPT}{text}" for text in texts]
        of_text = dict(zip(texts, self._clip.texts(prompts), strict=True))
        rows = [
            clip_scores(
                of_text[caption],
                of_photo[image],
                np.stack([of_text[text] for text in written]),
            )
            for caption, written, image in zip(captions, references, images, strict=True)
        ]
        of_captions = dict(
            zip(("CLIPScore", "RefCLIPScore"), np.array(rows, dtype=np.float64).T, strict=True)
        )
        means = {name: float(scores.mean()) for name, scores in of_captions.items()}
        return Scores(means, of_captions)


def clip_scores(
    caption: NDArray[np.float64], photo: NDArray[np.float64], references: NDArray[np.float64]
) -> tuple[float, float]:
    """CLIPScore and RefCLIPScore of a caption (section 3).

    CLIPScore is `SCALE` times the cosine of caption and photo. RefCLIPScore is its harmonic mean
    with the largest cosine of caption and reference. Negative cosines count as 0.

    Args:
        caption: (D,), of length 1, as all vectors.
        photo: (D,).
        references: (R, D).
    """
    own = SCALE * max(float(caption @ photo), 0.0)
    nearest = max(float((references @ caption).max()), 0.0)
    total = own + nearest
    return own, 2 * own * nearest / total if total else 0.0

"""CLIPScore and RefCLIPScore: how well a caption fits the photo, and the references.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021,
https://arxiv.org/abs/2104.08718. CLIP is Radford et al., "Learning Transferable Visual Models From
Natural Language Supervision", ICML 2021, https://arxiv.org/abs/2103.00020, as open_clip has it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from captioning.data.images import MAX_PIXELS, read_image
from captioning.errors import InputError
from captioning.metrics.scores import Scores
from captioning.progress_bar import ProgressBar, stage

NAME = "CLIPScore"
PROMPT = "A photo depicts "
"""The prefix of each text (section 3)."""

SCALE = 2.5
"""Rescales cosines, which are rarely above 0.4, to most of [0, 1]; w in section 3."""

HUB = "timm/vit_base_patch32_clip_224.openai"
"""OpenAI's ViT-B/32, which Hessel et al. 2021 use, on the Hugging Face Hub."""

FILES = ("open_clip_config.json", "open_clip_model.safetensors")
PHOTOS, TEXTS = 32, 256
"""Batch sizes."""


class ClipScore:
    """Scores captions by CLIP, untokenized, since CLIP has its own tokenizer.

    Args:
        photos: the path of each photo by image id.
        weights: a folder in open_clip's layout, with safetensors; default: OpenAI's ViT-B/32.
        device: of the model.
        max_pixels: larger photos are rejected.

    Raises:
        InputError: open_clip is not installed, or the weights cannot be loaded.
    """

    def __init__(
        self,
        photos: Mapping[Any, Path],
        weights: str | Path | None = None,
        device: str = "cpu",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        try:
            import open_clip  # takes seconds
        except ModuleNotFoundError as error:
            raise InputError(
                f"{NAME} needs {error.name}; pip install 'captioning[clip]', or omit {NAME}"
            ) from None
        source = f"hf-hub:{HUB}" if weights is None else f"local-dir:{weights}"
        try:
            if weights is not None and not all((Path(weights) / name).is_file() for name in FILES):
                raise FileNotFoundError("files are missing")
            with stage("loading CLIP"):
                made = open_clip.create_model_from_pretrained(source, device=device)
                self._tokenize = open_clip.get_tokenizer(source)
        except Exception as error:  # open_clip raises nearly anything on damaged files
            raise InputError(
                f"{weights or HUB}: cannot be loaded ({' '.join(str(error).split())[:200]}); "
                f"give a folder with {' and '.join(FILES)}, such as a copy of {HUB}"
            ) from None
        self._model, self._preprocess = made[0].eval(), made[1]
        self._photos, self._device, self._max_pixels = photos, device, max_pixels

    def __call__(
        self,
        captions: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[Hashable],
    ) -> Scores:
        """CLIPScore and RefCLIPScore of captions, by references and ids of their images.

        Raises:
            InputError: a photo is missing, damaged or too large.
        """
        every = [*captions, *(text for each in references for text in each)]
        of_photo = _vectors("photos", images, PHOTOS, self._encode_photos)
        of_text = _vectors("texts", every, TEXTS, self._encode_texts)
        rows = [
            clip_scores(of_text[caption], of_photo[image], np.stack([of_text[t] for t in written]))
            for caption, written, image in zip(captions, references, images, strict=True)
        ]
        columns = dict(zip((NAME, "RefCLIPScore"), np.array(rows).T, strict=True))
        return Scores({name: float(scores.mean()) for name, scores in columns.items()}, columns)

    def _encode_photos(self, images: Sequence[Hashable]) -> Any:
        photos = [read_image(self._photos[image], self._max_pixels) for image in images]
        pixels = torch.stack([self._preprocess(photo) for photo in photos])
        return self._model.encode_image(pixels.to(self._device))

    def _encode_texts(self, texts: Sequence[str]) -> Any:
        tokens = self._tokenize([f"{PROMPT}{text}" for text in texts])  # long ones are truncated
        return self._model.encode_text(tokens.to(self._device))


def _vectors(
    units: str, inputs: Sequence[Any], size: int, encode: Callable[[Sequence[Any]], Any]
) -> dict[Any, NDArray[np.float64]]:
    """The unit vector of each of the inputs, which may repeat."""
    different = list(dict.fromkeys(inputs))
    found: dict[Any, NDArray[np.float64]] = {}
    with ProgressBar(NAME, units, total=len(different)) as bar, torch.inference_mode():
        for start in range(0, len(different), size):
            some = different[start : start + size]
            vectors = encode(some).double().cpu().numpy()
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            found |= dict(zip(some, vectors, strict=True))
            bar.update(len(some))
    return found


def clip_scores(
    caption: NDArray[np.float64], photo: NDArray[np.float64], references: NDArray[np.float64]
) -> tuple[float, float]:
    """CLIPScore and RefCLIPScore of a caption from unit vectors (section 3).

    CLIPScore is `SCALE` times the cosine of caption, (D,), and photo, (D,). RefCLIPScore is its
    harmonic mean with the largest cosine of caption and reference, (R, D). Negative cosines count
    as 0.
    """
    own = SCALE * max(float(caption @ photo), 0.0)
    nearest = max(float((references @ caption).max()), 0.0)
    total = own + nearest
    return own, 2 * own * nearest / total if total else 0.0

"""CLIP by open_clip: photos and texts as vectors of one space.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021,
https://arxiv.org/abs/2103.00020.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.data.images import MAX_PIXELS, read_image
from captioning.errors import InputError
from captioning.progress_bar import ProgressBar, stage

NAME = "CLIPScore"
HUB = "timm/vit_base_patch32_clip_224.openai"
"""OpenAI's ViT-B/32, which Hessel et al. 2021 use, on the Hugging Face Hub."""

FILES = ("open_clip_config.json", "open_clip_model.safetensors")
REMEDY = f"give a folder that has {' and '.join(FILES)}, such as a copy of {HUB}"
PHOTOS, TEXTS = 32, 256
"""How many are computed at a time."""


class Clip:
    """A CLIP model, its preprocessing and its tokenizer.

    Weights are read as safetensors, so that no file of theirs can run code.

    Args:
        weights: a folder in open_clip's layout; OpenAI's ViT-B/32 if none, which is downloaded the
            first time.
        device: on which it computes.
        max_pixels: a larger photo is refused by its header.

    Raises:
        InputError: open_clip is not installed, or the weights are missing, damaged or not to be
            downloaded.
    """

    def __init__(
        self,
        weights: str | Path | None = None,
        device: str = "cpu",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        try:
            import open_clip  # takes seconds
        except ModuleNotFoundError as error:
            raise InputError(
                f"{NAME} needs {error.name}, which is not installed; "
                f"pip install 'captioning[clip]', or leave {NAME} out"
            ) from None
        if weights is not None:
            for name in FILES:
                if not (Path(weights) / name).is_file():
                    raise InputError(f"{weights}: no {name} there; {REMEDY}")
        source = f"hf-hub:{HUB}" if weights is None else f"local-dir:{weights}"
        with stage("loading CLIP"), _quiet():
            try:
                model, self._preprocess = open_clip.create_model_from_pretrained(
                    source, device=device
                )
                self._tokenize = open_clip.get_tokenizer(source)
            except Exception as error:  # open_clip raises nearly anything on damaged files
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                trouble = (
                    f"{NAME}'s weights cannot be downloaded"
                    if weights is None
                    else f"{weights}: cannot be loaded"
                )
                raise InputError(f"{trouble} ({reason}); {REMEDY}") from None
        self._model = model.eval()
        self._device = device
        self._max_pixels = max_pixels

    def photos(self, paths: Sequence[Path]) -> NDArray[np.float64]:
        """The vectors of photos, of length 1: (photos, D).

        Raises:
            InputError: a photo is missing, damaged or too large.
        """
        return self._vectors("photos", paths, PHOTOS, self._of_photos)

    def texts(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The vectors of texts, of length 1: (texts, D). What is too long is cut."""
        return self._vectors("texts", texts, TEXTS, self._of_texts)

    def _of_photos(self, paths: Sequence[Path]) -> Any:
        import torch

        photos = [self._preprocess(read_image(path, self._max_pixels)) for path in paths]
        return self._model.encode_image(torch.stack(photos).to(self._device))

    def _of_texts(self, texts: Sequence[str]) -> Any:
        return self._model.encode_text(self._tokenize(list(texts)).to(self._device))

    def _vectors(
        self, units: str, inputs: Sequence[Any], size: int, encode: Callable[[Sequence[Any]], Any]
    ) -> NDArray[np.float64]:
        import torch

        found = []
        with ProgressBar(NAME, units, total=len(inputs)) as bar, torch.inference_mode():
            for start in range(0, len(inputs), size):
                some = inputs[start : start + size]
                found.append(encode(some).double().cpu().numpy())
                bar.update(len(some))
        vectors: NDArray[np.float64] = np.concatenate(found)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the log of open_clip, whose last line the error has anyway."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)

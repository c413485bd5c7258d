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
from captioning.metrics.scores import Scores, check_pairs
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
        clip: the model.
        photos: the path of each photo by image id.
    """

    def __init__(self, clip: "Clip", photos: Mapping[Hashable, Path]) -> None:
        self._clip = clip
        self._photos = photos

    def __call__(
        self,
        captions: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[Hashable],
    ) -> Scores:
        """CLIPScore and RefCLIPScore; the corpus scores are means over captions.

        `references` and the ids `images` are those of each caption's image.

        Raises:
            InputError: a photo is missing, damaged or too large.
        """
        check_pairs(captions, references)
        photos = list(dict.fromkeys(images))
        texts = list(dict.fromkeys([*captions, *(text for each in references for text in each)]))
        photo_vectors = self._clip.photos([self._photos[image] for image in photos])
        text_vectors = self._clip.texts([f"{PROMPT}{text}" for text in texts])
        of_photo = dict(zip(photos, photo_vectors, strict=True))
        of_text = dict(zip(texts, text_vectors, strict=True))
        rows = [
            clip_scores(
                of_text[caption], of_photo[image], np.stack([of_text[text] for text in written])
            )
            for caption, written, image in zip(captions, references, images, strict=True)
        ]
        own, with_references = np.array(rows, dtype=np.float64).T
        of_captions = {NAME: own, "RefCLIPScore": with_references}
        means = {name: float(scores.mean()) for name, scores in of_captions.items()}
        return Scores(means, of_captions)


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


class Clip:
    """A CLIP model with its preprocessing and tokenizer.

    Weights are read as safetensors, which cannot run code.

    Args:
        weights: a folder in open_clip's layout; default: OpenAI's ViT-B/32 from the Hub.
        device: of the model.
        max_pixels: larger photos are rejected.

    Raises:
        InputError: open_clip is not installed, or the weights are missing, damaged or cannot be
            downloaded.
    """

    def __init__(
        self, weights: str | Path | None = None, device: str = "cpu", max_pixels: int = MAX_PIXELS
    ) -> None:
        try:
            import open_clip  # takes seconds
        except ModuleNotFoundError as error:
            raise InputError(
                f"{NAME} needs {error.name}, which is not installed; "
                f"pip install 'captioning[clip]', or omit {NAME}"
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
        self._device = device
        self._max_pixels = max_pixels

    def photos(self, paths: Sequence[Path]) -> NDArray[np.float64]:
        """The unit vectors of photos, (photos, D).

        Raises:
            InputError: a photo is missing, damaged or too large.
        """

        def encode(some: Sequence[Path]) -> Any:
            photos = [self._preprocess(read_image(path, self._max_pixels)) for path in some]
            return self._model.encode_image(torch.stack(photos).to(self._device))

        return _vectors("photos", paths, PHOTOS, encode)

    def texts(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The unit vectors of texts, (texts, D); long texts are truncated."""

        def encode(some: Sequence[str]) -> Any:
            return self._model.encode_text(self._tokenize(list(some)).to(self._device))

        return _vectors("texts", texts, TEXTS, encode)


def _vectors(
    units: str, inputs: Sequence[Any], size: int, encode: Callable[[Sequence[Any]], Any]
) -> NDArray[np.float64]:
    found = []
    with ProgressBar(NAME, units, total=len(inputs)) as bar, torch.inference_mode():
        for start in range(0, len(inputs), size):
            some = inputs[start : start + size]
            found.append(encode(some).double().cpu().numpy())
            bar.update(len(some))
    vectors: NDArray[np.float64] = np.concatenate(found)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

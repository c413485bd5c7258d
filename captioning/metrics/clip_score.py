"""CLIPScore and RefCLIPScore: similarity of a caption to the photo and to references.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021,
https://arxiv.org/abs/2104.08718. CLIP is Radford et al., "Learning Transferable Visual Models From
Natural Language Supervision", ICML 2021, https://arxiv.org/abs/2103.00020, as open_clip has it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from captioning.data.images import MAX_PIXELS, read_image
from captioning.errors import InputError
from captioning.metrics.scores import Scores
from captioning.progress_bar import ProgressBar, stage
from captioning.threads import batched

CLIP_SCORE = "CLIPScore"
PROMPT = "A photo depicts "
"""The prefix of each text (section 3)."""

SCALE = 2.5
"""Factor of cosines, which are rarely above 0.4; w in section 3."""

CLIP_REPOSITORY = "timm/vit_base_patch32_clip_224.openai"
"""OpenAI's ViT-B/32, which Hessel et al. 2021 use, on the Hugging Face Hub."""

FILES = ("open_clip_config.json", "open_clip_model.safetensors")
PHOTO_BATCH, TEXT_BATCH = 32, 256


class ClipScore:
    """Scores untokenized captions by CLIP, which has its own tokenizer.

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
                f"{CLIP_SCORE} needs {error.name}; pip install 'captioning[clip]', or omit "
                f"{CLIP_SCORE}"
            ) from None
        source = f"hf-hub:{CLIP_REPOSITORY}" if weights is None else f"local-dir:{weights}"
        try:
            if weights is not None and not all((Path(weights) / name).is_file() for name in FILES):
                raise FileNotFoundError("files are missing")
            with stage("loading CLIP"):
                model, self._preprocess = open_clip.create_model_from_pretrained(
                    source, device=device
                )
                self._tokenize = open_clip.get_tokenizer(source)
        except Exception as error:  # open_clip raises nearly anything on damaged files
            raise InputError(
                f"{weights or CLIP_REPOSITORY}: cannot be loaded "
                f"({' '.join(str(error).split())[:200]}); "
                f"give a folder with {' and '.join(FILES)}, such as a copy of {CLIP_REPOSITORY}"
            ) from None
        self._model = model.eval()
        self._photos, self._device, self._max_pixels = photos, device, max_pixels

    def __call__(
        self,
        captions: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[Hashable],
    ) -> Scores:
        """Compute CLIPScore and RefCLIPScore of captions.

        Args:
            captions: untokenized.
            references: of each caption.
            images: the image id of each caption.

        Raises:
            InputError: a photo is missing, damaged or too large.
        """
        texts = [*captions, *chain.from_iterable(references)]
        photo_vectors = _vectors("photos", images, size=PHOTO_BATCH, encode=self._encode_photos)
        text_vectors = _vectors("texts", texts, size=TEXT_BATCH, encode=self._encode_texts)
        rows = []
        for caption, image_references, image in zip(captions, references, images, strict=True):
            reference_vectors = np.stack([text_vectors[text] for text in image_references])
            rows.append(clip_scores(text_vectors[caption], photo_vectors[image], reference_vectors))
        columns = dict(zip((CLIP_SCORE, "RefCLIPScore"), np.array(rows).T, strict=True))
        return Scores({name: float(scores.mean()) for name, scores in columns.items()}, columns)

    def _encode_photos(self, images: Sequence[Hashable]) -> Any:
        photos = [read_image(self._photos[image], self._max_pixels) for image in images]
        pixels = torch.stack([self._preprocess(photo) for photo in photos])
        return self._model.encode_image(pixels.to(self._device))

    def _encode_texts(self, texts: Sequence[str]) -> Any:
        tokens = self._tokenize([f"{PROMPT}{text}" for text in texts])  # long ones are truncated
        return self._model.encode_text(tokens.to(self._device))


def _vectors(
    units: str, inputs: Sequence[Any], *, size: int, encode: Callable[[Sequence[Any]], Any]
) -> dict[Any, NDArray[np.float64]]:
    """The unit vector of each distinct input."""
    distinct = list(dict.fromkeys(inputs))
    vectors: dict[Any, NDArray[np.float64]] = {}
    with ProgressBar(CLIP_SCORE, units, total=len(distinct)) as bar, torch.inference_mode():
        for batch in batched(distinct, size):
            batch_vectors = encode(batch).double().cpu().numpy()
            batch_vectors /= np.linalg.norm(batch_vectors, axis=1, keepdims=True)
            vectors |= dict(zip(batch, batch_vectors, strict=True))
            bar.update(len(batch))
    return vectors


def clip_scores(
    caption: NDArray[np.float64], photo: NDArray[np.float64], references: NDArray[np.float64]
) -> tuple[float, float]:
    """CLIPScore and RefCLIPScore of a caption from unit vectors (section 3).

    CLIPScore is `SCALE` times the cosine of caption, (D,), and photo, (D,). RefCLIPScore is its
    harmonic mean with the largest cosine of caption and reference, (R, D). Negative cosines count
    as 0.
    """
    clip_score = SCALE * max(float(caption @ photo), 0.0)
    reference_cosine = max(float((references @ caption).max()), 0.0)
    total = clip_score + reference_cosine
    return clip_score, 2 * clip_score * reference_cosine / total if total else 0.0

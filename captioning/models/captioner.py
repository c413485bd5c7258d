"""The whole model: photos in, captions out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor, nn

from captioning.configurable import build
from captioning.data.preprocessing import Preprocessing, View
from captioning.data.vocabulary import EOS, PAD, Vocabulary
from captioning.errors import InputError
from captioning.models.caption import Caption
from captioning.models.decoder import Decoder
from captioning.models.decoding import BeamSearch
from captioning.models.encoder import CNNEncoder
from captioning.models.search import Decoded, Search
from captioning.models.startup import WithoutRandomStart


class Captioner(nn.Module):
    """Encoder, decoder, vocabulary and preprocessing: all that it takes to caption a photo.

    Args:
        encoder: turns images into annotation vectors.
        decoder: turns annotation vectors into words.
        vocabulary: the words.
        preprocessing: how a photo becomes an image; the same in training and afterwards.
        search: how words are chosen unless a call says otherwise.

    Attributes:
        searches_in_bfloat16: whether `decode` multiplies in bfloat16, which is faster where the
            hardware does it. Annotation vectors are always computed in single precision; bfloat16
            would change MobileNetV2's by an eighth.
    """

    searches_in_bfloat16 = False

    def __init__(
        self,
        encoder: CNNEncoder,
        decoder: Decoder,
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.vocabulary = vocabulary
        self.preprocessing = preprocessing
        self.search = search or BeamSearch()

    @property
    def config(self) -> dict[str, Any]:
        """Plain values from which `from_config` makes the same captioner, parameters apart."""
        return {
            "encoder": self.encoder.config,
            "decoder": self.decoder.config,
            "vocabulary": list(self.vocabulary.words),
            "preprocessing": self.preprocessing.config,
            "search": self.search.config,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Captioner":
        """The captioner that `config` describes, with random parameters."""
        return cls(
            encoder=build(config["encoder"], weights=None),
            decoder=build(config["decoder"]),
            vocabulary=Vocabulary(config["vocabulary"]),
            preprocessing=build(config["preprocessing"]),
            search=build(config["search"]),
        )

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.encoder.mean.device

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Annotation vectors of uint8 images (B, 3, H, W).

        Annotation vectors that were computed before, (B, L, D), pass through in single precision.
        """
        return self.encoder(images) if images.dtype == torch.uint8 else images.float()

    def decode(self, annotations: Float[Tensor, "B L D"], search: Search | None = None) -> Decoded:
        """Captions as tokens, by `search` or the captioner's own."""
        search = search or self.search
        if not self.searches_in_bfloat16:
            return search(self.decoder, self.decoder.remember(annotations))
        with torch.autocast(annotations.device.type, torch.bfloat16):
            return search(self.decoder, self.decoder.remember(annotations))

    def words(self, decoded: Decoded) -> list[str]:
        """The best caption of every image as one line of text."""
        return [" ".join(self.vocabulary.decode(row)) for row in decoded.tokens[:, 0].tolist()]

    def view(self, photo: str | Path | Image) -> View:
        """What the model sees of a photo; safe to call from several threads.

        Args:
            photo: a path, or an image as `read_image` gives it.

        Raises:
            InputError: the photo cannot be read.
        """
        return self.preprocessing(photo)

    @torch.no_grad()  # in inference mode autocast would cast all weights anew at every word
    def candidates(
        self, photos: Sequence[str | Path | Image | View], search: Search | None = None
    ) -> list[list[Caption]]:
        """All captions that the search found for each photo, the best first.

        Args:
            photos: paths, images as `read_image` gives them, or views that `view` gave.
            search: how words are chosen; the captioner's own if none.

        Raises:
            InputError: a photo cannot be read.
        """
        views = [photo if isinstance(photo, View) else self.view(photo) for photo in photos]
        if not views:
            return []
        images = torch.stack([view.pixels for view in views]).to(self.device)
        decoded = self.decode(self.encode(images), search)
        tokens, log_probs, weights, scores = (part.cpu() for part in decoded)
        return [
            [
                self._caption(view, tokens[b, n], log_probs[b, n], weights[b, n], scores[b, n])
                for n in range(tokens.shape[1])
                if not scores[b, n].isneginf()
            ]
            for b, view in enumerate(views)
        ]

    def caption(
        self, photos: Sequence[str | Path | Image | View], search: Search | None = None
    ) -> list[Caption]:
        """The best caption of each photo; see `candidates`."""
        return [found[0] for found in self.candidates(photos, search)]

    def _caption(
        self,
        view: View,
        tokens: Tensor,
        log_probs: Tensor,
        weights: Float[Tensor, "T L"],
        score: Tensor,
    ) -> Caption:
        length = int(((tokens != PAD) & (tokens != EOS)).sum())
        rows = round(weights.shape[1] ** 0.5)  # views are square, so grids are
        return Caption(
            words=self.vocabulary.decode(tokens.tolist()),
            probabilities=tuple(log_probs[:length].exp().tolist()),
            weights=weights[:length].float().unflatten(1, (rows, -1)),
            score=score.item(),
            crop=view.crop,
            size=view.size,
        )


def load(
    checkpoint: str | Path, device: str | torch.device = "cpu", bfloat16: bool = False
) -> Captioner:
    """The captioner in a checkpoint of `captioning train`, ready to caption.

    Args:
        checkpoint: the file.
        device: where it shall compute.
        bfloat16: whether it searches in bfloat16; see `Captioner`.

    Raises:
        InputError: the file is missing or is no such checkpoint.
    """
    path = Path(checkpoint)
    foreign = InputError(f"{path}: not a checkpoint of captioning; give one that `train` wrote")
    try:
        # Mapped, so that of the optimizer's state, twice as large as the model, nothing is read.
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint; `captioning train` writes one") from None
    except Exception:  # torch.load raises a dozen kinds for files that it did not write
        raise foreign from None
    if not isinstance(saved, dict) or not isinstance(saved.get("captioner"), dict):
        raise foreign
    try:
        with WithoutRandomStart():
            captioner = Captioner.from_config(saved["captioner"])
        prefix = "captioner."
        captioner.load_state_dict(
            {
                name.removeprefix(prefix): value
                for name, value in saved["state_dict"].items()
                if name.startswith(prefix)
            }
        )
    except (InputError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        summary = " ".join(str(error).split())[:200]  # load_state_dict names all that is missing
        raise InputError(f"{path}: a damaged or outdated checkpoint ({summary})") from None
    captioner.searches_in_bfloat16 = bfloat16
    return captioner.eval().to(device)

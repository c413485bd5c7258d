"""The whole model: photos in, captions out."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.captioner.caption import Caption, RunnerUp
from captioning.captioner.ensemble_decoder import EnsembleDecoder
from captioning.captioner.parts import built_parts
from captioning.data.images import Upload
from captioning.data.preprocessing import Preprocessing, View
from captioning.data.vocabulary import BOS, EOS, PAD, Vocabulary
from captioning.errors import InputError
from captioning.kernels import accelerated, accelerated_search, on_by_default
from captioning.kernels.packing import packed_weights
from captioning.maps import ATTENTION, Reading, check_shown_map, known_maps, word_maps
from captioning.models.decoder import Decoder
from captioning.models.encoder import Encoder
from captioning.search import BeamSearch
from captioning.search.alternatives import Alternatives, find_alternatives
from captioning.search.search import Decoded, Search


class Captioner(nn.Module):
    """Encoder, decoder, vocabulary and preprocessing: everything needed to caption a photo.

    Args:
        encoder: turns images into annotation vectors.
        decoder: turns annotation vectors into words.
        vocabulary: the words.
        preprocessing: how a photo becomes an image; the same in training and afterwards.
        search: the default search.
        shown_map: the map of a word that pictures and measures take unless another one is asked
            for, by its name in `captioning.maps`.

    Raises:
        InputError: the decoder has no such map.

    Attributes:
        searches_in_bfloat16: whether `decode` multiplies in bfloat16, which is faster where the
            hardware supports it. Annotation vectors are always computed in single precision;
            bfloat16 would change MobileNetV2's by an eighth.
        uses_kernels: whether decoder and search are computed by their kernels, if they have any;
            see `captioning.kernels`.
    """

    searches_in_bfloat16 = False

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search | None = None,
        shown_map: str = ATTENTION,
    ) -> None:
        super().__init__()
        check_shown_map(shown_map, decoder)
        self.encoder = encoder
        self.decoder = decoder
        self.vocabulary = vocabulary
        self.preprocessing = preprocessing
        self.search = search or BeamSearch()
        self.shown_map = shown_map
        self.uses_kernels = on_by_default()

    @property
    def fast_decoder(self) -> Decoder:
        """The decoder's kernel, or the decoder itself."""
        if not self.uses_kernels:
            return self.decoder
        if isinstance(self.decoder, EnsembleDecoder):
            return self.decoder.with_members([accelerated(m) for m in self.decoder.members])
        return accelerated(self.decoder)

    def fast_search(self, search: Search) -> Search:
        """The search's kernel, or the search itself."""
        return accelerated_search(search) if self.uses_kernels else search

    @property
    def config(self) -> dict[str, Any]:
        """Plain values from which `from_config` builds the same captioner, without parameters."""
        return {
            "encoder": self.encoder.config,
            "decoder": self.decoder.config,
            "vocabulary": list(self.vocabulary.words),
            "preprocessing": self.preprocessing.config,
            "search": self.search.config,
            "shown_map": self.shown_map,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Captioner":
        """The captioner that `config` describes, with random parameters.

        Raises:
            InputError: a part is missing, has the wrong type, or does not fit the others.
        """
        return cls(**built_parts(config))

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def encode(self, images: Tensor) -> Float[Tensor, "B L D"]:
        """Annotation vectors of uint8 images (B, 3, H, W), or of their cached features.

        Features are the output of the encoder's `constant` part, (B, P, C) in any precision. If no
        stage is trained, they are the annotation vectors themselves.
        """
        if images.dtype == torch.uint8:
            return self.encoder(images)
        return self.encoder.completed(images.float())

    def decode(self, annotations: Float[Tensor, "B L D"], search: Search | None = None) -> Decoded:
        """Captions as tokens, by `search` or the captioner's own."""
        decoder, search = self.fast_decoder, self.fast_search(search or self.search)
        with self._search_precision(annotations.device):
            return search(decoder, decoder.remember(annotations))

    def prepared(self) -> AbstractContextManager[None]:
        """A block with packed weights for faster `decode`, in which parameters must not change."""
        if self.searches_in_bfloat16 or not self.uses_kernels:
            return nullcontext()
        return packed_weights(self.decoder)

    def _search_precision(self, device: torch.device) -> AbstractContextManager[object]:
        if self.searches_in_bfloat16:
            return torch.autocast(device.type, torch.bfloat16)
        return nullcontext()

    def words(self, decoded: Decoded) -> list[str]:
        """The best caption of every image as one line of text."""
        return [" ".join(self.vocabulary.decode(row)) for row in decoded.tokens[:, 0].tolist()]

    def view(self, photo: str | Path | Upload | Image) -> View:
        """What the model sees of a photo; safe to call from several threads.

        Args:
            photo: a path, an upload, or an image as `read_image` gives it.

        Raises:
            InputError: the photo cannot be read.
        """
        return self.preprocessing(photo)

    @torch.no_grad()  # in inference mode, autocast would cast all weights anew at every word
    def candidates(
        self,
        photos: Sequence[str | Path | Image | View],
        search: Search | None = None,
        runners_up: int = 0,
        maps: Sequence[str] = (),
        most: int | None = None,
    ) -> list[list[Caption]]:
        """All captions that the search found for each photo, the best first.

        Args:
            photos: paths, images as `read_image` gives them, or views that `view` gave.
            search: how words are chosen; the captioner's own if none.
            runners_up: how many alternatives to report for each word; above zero, they cost one
                more pass over the captions.
            maps: the maps of each word by their names in `captioning.maps` or the decoder's
                `map_names`, all of which ``heads`` stands for; the first becomes the captions'
                `weights`, the others `further_maps`. The model's `shown_map` if none.
            most: leave out what comes after so many captions, which saves their maps; none for all.

        Raises:
            InputError: a photo cannot be read, the model's numbers overflow, or it has no such map.
        """
        views = [photo if isinstance(photo, View) else self.view(photo) for photo in photos]
        if not views:
            return []
        images = torch.stack([view.pixels for view in views]).to(self.device)
        annotations = self.encode(images)
        decoded = self.decode(annotations, search)
        if decoded.scores.isnan().any():
            raise InputError("the model's numbers overflow; give another checkpoint")
        decoded = Decoded(*(part[:, :most] for part in decoded))
        others = None
        if runners_up:
            with self._search_precision(annotations.device):
                others = find_alternatives(
                    self.fast_decoder, annotations, decoded.tokens, runners_up
                )
            others = Alternatives(*(part.cpu() for part in others))
        of_words = self._maps(maps, images, annotations, decoded)
        decoded = Decoded(*(part.cpu() for part in decoded))
        return [
            [
                self._caption(photo, view, of_words, decoded, others, (b, n))
                for n in range(decoded.tokens.shape[1])
                if not decoded.scores[b, n].isneginf()
            ]
            for b, (photo, view) in enumerate(zip(photos, views, strict=True))
        ]

    def caption(
        self,
        photos: Sequence[str | Path | Image | View],
        search: Search | None = None,
        runners_up: int = 0,
        maps: Sequence[str] = (),
    ) -> list[Caption]:
        """The best caption of each photo; see `candidates`."""
        return [found[0] for found in self.candidates(photos, search, runners_up, maps, most=1)]

    def _maps(
        self, names: Sequence[str], images: Tensor, annotations: Tensor, decoded: Decoded
    ) -> dict[str, Float[Tensor, "B N T _ _"]]:
        """The maps of all words by name; attention as the search had it."""
        read = F.pad(decoded.tokens, (1, 0), value=BOS)
        reading = Reading(self.encoder, self.decoder, images, annotations, read)
        return {
            name: (
                decoded.weights.float().unflatten(3, reading.grid)
                if name == ATTENTION
                else word_maps(name, reading).float()
            ).cpu()
            for name in known_maps(names, self.decoder.map_names, self.shown_map)
        }

    def _caption(
        self,
        photo: str | Path | Image | View,
        view: View,
        of_words: dict[str, Float[Tensor, "B N T _ _"]],
        decoded: Decoded,
        others: Alternatives | None,
        place: tuple[int, int],
    ) -> Caption:
        """One caption of a search, by the indices of image and caption."""
        tokens = decoded.tokens[place]
        length = int(((tokens != PAD) & (tokens != EOS)).sum())
        maps = {name: found[place][:length] for name, found in of_words.items()}
        shown, *further = maps
        return Caption(
            words=self.vocabulary.decode(tokens.tolist()),
            probabilities=tuple(decoded.log_probs[place][:length].exp().tolist()),
            weights=maps[shown],
            score=decoded.scores[place].item(),
            crop=view.crop,
            size=view.size,
            runners_up=() if others is None else self._runners_up(others, place, length),
            map_name=shown,
            further_maps={name: maps[name] for name in further},
            photo=None if isinstance(photo, View) else photo,
        )

    def _runners_up(
        self, others: Alternatives, place: tuple[int, int], length: int
    ) -> tuple[tuple[RunnerUp, ...], ...]:
        tokens = others.tokens[place][:length].tolist()
        probabilities = others.probabilities[place][:length].tolist()
        return tuple(
            tuple(
                RunnerUp(None if token == EOS else self.vocabulary.decode([token])[0], probability)
                for token, probability in zip(*of_word, strict=True)
            )
            for of_word in zip(tokens, probabilities, strict=True)
        )

"""Captions that a model reads, all words given: what every map of a word is made from.

Shapes: B images, N captions per image, L regions, D annotation width, S tokens from BOS to EOS, T =
S - 1 words that are predicted, EOS among them, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.maps.windows import windows
from captioning.models.decoder import Decoder
from captioning.models.encoder import Encoder
from captioning.search.search import generable_log_probs


@dataclass(frozen=True)
class Reading:
    """Photos, and for each of them captions that the model reads word by word.

    Attributes:
        encoder: the model's, in evaluation mode.
        decoder: the model's, plain and in evaluation mode.
        images: the photos.
        annotations: what the encoder gives for them.
        tokens: the captions from BOS to EOS, PAD after it.
    """

    encoder: Encoder
    decoder: Decoder
    images: UInt8[Tensor, "B 3 H W"]
    annotations: Float[Tensor, "B L D"]
    tokens: Int[Tensor, "B N S"]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the attention's regions."""
        return self.encoder.grid(self.images.shape[2], self.images.shape[3])

    @property
    def is_word(self) -> Bool[Tensor, "C T"]:
        """Where a caption, of the C = B N, has a word or its end rather than PAD."""
        return (self.tokens[..., 1:] != PAD).flatten(0, 1)

    def need_one_grid(self) -> None:
        """Make sure that the annotation vectors are the cells of the attention's grid.

        Raises:
            InputError: they belong to several encoders, those of an ensemble.
        """
        rows, columns = self.grid
        if self.annotations.shape[1] != rows * columns:
            raise InputError(
                "an ensemble of several encoders has only attention; choose that map, or one model"
            )

    def one_by_one(self, most: int) -> "Iterator[Reading]":
        """The B N captions, each with an image of its own, so that it has its own gradient.

        Args:
            most: how many captions at a time.
        """
        batch, captions = self.tokens.shape[:2]
        rows = torch.arange(batch, device=self.tokens.device).repeat_interleave(captions)
        for image, tokens in zip(
            rows.split(most), self.tokens.flatten(0, 1).split(most), strict=True
        ):
            yield replace(
                self,
                images=self.images[image],
                annotations=self.annotations[image],
                tokens=tokens[:, None],
            )

    def repeated(self, image: int, times: int) -> "Reading":
        """One photo with its captions, so many times: each may have other regions hidden.

        Args:
            image: its place in the batch.
            times: how many.
        """
        return replace(
            self,
            images=self.images[image].expand(times, -1, -1, -1),
            annotations=self.annotations[image].expand(times, -1, -1),
            tokens=self.tokens[image].expand(times, -1, -1),
        )

    def word_log_probs(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B N T"]:
        """The log probability of each word after the words before it.

        It is among the words that can be generated, as in a search. Zero at PAD, and at words that
        no search generates: unknown ones.

        Args:
            annotations: the annotation vectors to read the captions with.
            mask: True where a region may be attended; None where all may.
        """
        logits, _ = self.decoder(annotations, self.tokens[..., :-1], mask)
        words = self.tokens[..., 1:]
        log_probs = generable_log_probs(logits).gather(-1, words[..., None])[..., 0]
        return torch.where((words != PAD) & log_probs.isfinite(), log_probs, 0.0)

    @cached_property
    @torch.no_grad()
    def occlusion_drops(self) -> Float[Tensor, "B N T L"]:
        """The fall of each word's log probability where the 3 x 3 regions around each are hidden.

        Computed once for all maps of this reading, as it takes a pass for each region.
        """
        batch = len(self.annotations)
        whole = self.word_log_probs(self.annotations)
        without = [
            self.word_log_probs(self.annotations, (~window).expand(batch, -1))
            for window in windows(self.grid).to(self.annotations.device)
        ]
        return whole[..., None] - torch.stack(without, dim=-1)

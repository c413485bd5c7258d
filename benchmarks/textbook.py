"""Show, Attend and Tell the way that the well-known tutorials write it.

Every caption has its own copy of its image's annotation vectors. At every word the batch narrows
to the captions that are still running, the attention's keys are projected again, an `LSTMCell`
moves one step and the vocabulary's layer scores the next word. Searches caption one photo at a
time. Computes the same function as `captioning.models.LSTMDecoder` with the paper's settings, and
finds the same captions as `captioning.search`.

Shapes: B photos, N captions per photo, C captions, R of them still running, K beams, L regions, D
annotation width, W width of the annotation vectors as projected, S tokens from BOS to EOS,
T = S - 1 words, V vocabulary, n width of the LSTM.
"""

import copy
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.layers import DecoderLayers
from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.models import CNNEncoder

Found = tuple[list[int], float]
"""A caption's tokens up to EOS, and their mean log probability."""


class TextbookDecoder(DecoderLayers):
    """Attention, LSTM cell and deep output, one word at a time."""

    def attend(
        self, projected: Float[Tensor, "R L W"], hidden: Float[Tensor, "R n"]
    ) -> tuple[Float[Tensor, "R W"], Float[Tensor, "R L"]]:
        """The expected annotation vector and the weights of the regions."""
        keys, queries = self.key(projected), self.query(hidden)
        energies = self.energy(torch.tanh(keys + queries[:, None])).squeeze(2)
        weights = F.softmax(energies, dim=1)
        return (projected * weights[..., None]).sum(dim=1), weights

    def step(
        self,
        embedding: Float[Tensor, "R n"],
        projected: Float[Tensor, "R L W"],
        hidden: Float[Tensor, "R n"],
        cell: Float[Tensor, "R n"],
    ) -> tuple[
        Float[Tensor, "R V"], Float[Tensor, "R L"], Float[Tensor, "R n"], Float[Tensor, "R n"]
    ]:
        """One word further: logits, weights, hidden and cell state."""
        context, weights = self.attend(projected, hidden)
        context = torch.sigmoid(self.beta(hidden)) * context
        hidden, cell = self.cell(torch.cat([embedding, context], dim=1), (hidden, cell))
        deep = embedding + self.output_hidden(self.dropout(hidden)) + self.output_context(context)
        return self.output(self.dropout(deep)), weights, hidden, cell

    def forward(
        self,
        annotations: Float[Tensor, "C L D"],
        tokens: Int[Tensor, "C T"],
        lengths: Int[Tensor, " C"],
    ) -> tuple[Float[Tensor, "C T V"], Float[Tensor, "C T L"]]:
        """Logits and weights of all words; zero where a caption has ended.

        Args:
            annotations: of each caption's image.
            tokens: the words that are read.
            lengths: how many of them each caption has, the longest caption first.
        """
        projected = self.project(annotations)
        embeddings = self.dropout(self.embedding(tokens))
        hidden, cell = self.start(projected)
        logits = annotations.new_zeros(*tokens.shape, self.output.out_features)
        weights = annotations.new_zeros(*tokens.shape, annotations.shape[1])
        for t in range(int(lengths.max())):
            running = int((lengths > t).sum())
            logits[:running, t], weights[:running, t], hidden, cell = self.step(
                embeddings[:running, t], projected[:running], hidden[:running], cell[:running]
            )
        return logits, weights

    def loss(
        self, annotations: Float[Tensor, "B L D"], tokens: Int[Tensor, "B N S"]
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the packed words and the doubly stochastic penalty, per word."""
        annotations = annotations.repeat_interleave(tokens.shape[1], dim=0)
        tokens = tokens.flatten(0, 1)
        lengths, order = (tokens[:, 1:] != PAD).sum(dim=1).sort(descending=True)
        annotations, tokens = annotations[order], tokens[order]
        logits, weights = self(annotations, tokens[:, :-1], lengths)
        scores = pack_padded_sequence(logits, lengths.cpu(), batch_first=True).data
        targets = pack_padded_sequence(tokens[:, 1:], lengths.cpu(), batch_first=True).data
        even_share = lengths[:, None] / weights.shape[2]
        penalty = ((weights.sum(dim=1) - even_share) ** 2).sum()
        return F.cross_entropy(scores, targets) + penalty / lengths.sum()

    def captions(
        self, annotations: Float[Tensor, "B L D"], width: int, max_length: int
    ) -> list[list[Found]]:
        """The captions of one photo after the other, the best of each first."""
        return [self.beam_search(photo, width, max_length) for photo in annotations]

    @torch.no_grad()
    def beam_search(
        self, annotations: Float[Tensor, "L D"], width: int, max_length: int
    ) -> list[Found]:
        """The captions of one photo, the best first.

        Ended captions keep their place among the beams as long as no others have a better mean log
        probability.

        Args:
            annotations: of the photo.
            width: K.
            max_length: the most words of a caption, EOS included.
        """
        projected = self.project(annotations).expand(width, -1, -1)
        hidden, cell = self.start(projected)
        words = torch.full((width,), BOS, device=annotations.device)
        captions: list[list[int]] = [[] for _ in range(width)]
        totals = annotations.new_full((width,), float("-inf"))
        totals[0] = 0.0  # all beams are equal at first, so only one may branch
        scores = totals
        for length in range(max_length):
            logits, _, hidden, cell = self.step(self.embedding(words), projected, hidden, cell)
            logits[:, [PAD, BOS, UNK]] = float("-inf")
            log_probs = F.log_softmax(logits, dim=1)
            if length == 0:
                log_probs[:, EOS] = float("-inf")  # no caption is empty
            ended = torch.tensor([EOS in caption for caption in captions], device=words.device)
            log_probs[ended] = float("-inf")
            log_probs[ended, PAD] = 0.0  # an ended caption stays as it is
            lengths = torch.tensor(
                [len(caption) + (EOS not in caption) for caption in captions], device=words.device
            )
            totals = totals[:, None] + log_probs
            scores, best = (totals / lengths[:, None]).flatten().topk(width)
            totals = totals.flatten()[best]
            parents, words = best // log_probs.shape[1], best % log_probs.shape[1]
            hidden, cell = hidden[parents], cell[parents]
            captions = [
                captions[parent] + ([word] if word != PAD else [])
                for parent, word in zip(parents.tolist(), words.tolist(), strict=True)
            ]
            if all(EOS in caption for caption in captions):
                break
        found = list(zip(captions, scores.tolist(), strict=True))
        return sorted(found, key=lambda one: one[1], reverse=True)


class TextbookEncoder(nn.Module):
    """The convolutional layers of torchvision's network as they are.

    Args:
        encoder: of this package, whose layers and parameters are copied.
    """

    def __init__(self, encoder: CNNEncoder) -> None:
        super().__init__()
        self.layers = nn.Sequential(*copy.deepcopy(list(encoder.stages)), encoder.pool)
        self.layers.to(memory_format=torch.contiguous_format)
        self.mean, self.std = encoder.mean.clone(), encoder.std.clone()
        self.eval()

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors."""
        features = self.layers((images.contiguous() - self.mean) / self.std)
        return features.permute(0, 2, 3, 1).flatten(1, 2)


def read_photo(path: Path, side: int) -> UInt8[Tensor, "3 H W"]:
    """The largest square in the middle of a photo, decoded whole and resized to `side` pixels."""
    photo = Image.open(path).convert("RGB")
    edge = min(photo.size)
    left, top = (photo.width - edge) / 2, (photo.height - edge) / 2
    box = (left, top, left + edge, top + edge)
    photo = photo.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return torch.from_numpy(np.array(photo)).permute(2, 0, 1)

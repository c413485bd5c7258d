"""From the tokens that a search found to captions, with what is known of each word.

Shapes: B images, N captions per image, T words, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from jaxtyping import Float, Int
from torch import Tensor

from captioning.captioner.caption import Caption, RunnerUp
from captioning.captioner.stream import Viewed
from captioning.data.images import Upload
from captioning.data.preprocessing import View
from captioning.data.vocabulary import EOS, PAD, Vocabulary
from captioning.maps import ATTENTION
from captioning.search import Decoded
from captioning.search.search import find_alternatives

RunnersUp = tuple[tuple[RunnerUp, ...], ...]


def best_captions(
    batch: Sequence[Viewed],
    decoded: Decoded,
    vocabulary: Vocabulary,
    grid: tuple[int, int],
    shown_maps: tuple[str, ...],
    maps: Mapping[str, Float[Tensor, "B N T rows columns"]],
    map_of: Callable[[View, Int[Tensor, "S"], int, str], Float[Tensor, "T rows columns"]],
    runners_up: Sequence[Sequence[RunnersUp]] | None = None,
    confidences: Float[Tensor, "B N"] | None = None,
) -> list[Caption]:
    """The best caption of each photo, with the others that were found.

    Args:
        batch: the photos.
        decoded: the captions, with calibrated probabilities of their words.
        vocabulary: the words.
        grid: rows and columns of the attention weights.
        shown_maps: names of the maps that pictures show.
        maps: those that are computed already; attention is in `decoded`.
        map_of: computes another one, from a view, its caption, the number of words and the name.
        runners_up: by photo and caption.
        confidences: in the captions.
    """
    decoded = Decoded(*(part.cpu() for part in decoded))
    maps = {ATTENTION: decoded.weights.float().unflatten(3, grid), **maps}

    def caption(b: int, n: int, others: tuple[Caption, ...] = ()) -> Caption:
        photo, view, tokens = batch[b].photo, batch[b].view, decoded.tokens[b, n]
        length = _length(tokens)
        return Caption(
            words=vocabulary.decode(tokens.tolist()),
            probabilities=tuple(decoded.log_probs[b, n, :length].exp().tolist()),
            score=decoded.scores[b, n].item(),
            crop=view.crop,
            size=view.size,
            maps={name: each[b, n, :length] for name, each in maps.items()},
            shown_maps=shown_maps,
            tokenizer=vocabulary.tokenizer,
            confidence=None if confidences is None else confidences[b, n].item(),
            runners_up=() if runners_up is None else runners_up[b][n],
            photo=None if isinstance(photo, View | Upload) else photo,
            others=others,
            _compute=partial(map_of, view, tokens, length),
        )

    filled = (~decoded.scores.isneginf()).sum(dim=1).tolist()  # some beams cannot be
    return [
        caption(b, 0, tuple(caption(b, n) for n in range(1, count)))
        for b, count in enumerate(filled)
    ]


def runners_up_of(
    logits: Float[Tensor, "B N T V"], tokens: Int[Tensor, "B N T"], k: int, vocabulary: Vocabulary
) -> list[list[RunnersUp]]:
    """The `k` best alternatives to each word of each caption, by photo."""
    found = find_alternatives(logits, tokens, k)

    def of_caption(
        own: Int[Tensor, "T"], others: Int[Tensor, "T k"], probabilities: Float[Tensor, "T k"]
    ) -> RunnersUp:
        length = _length(own)
        pairs = zip(others[:length].tolist(), probabilities[:length].tolist(), strict=True)
        return tuple(
            tuple(RunnerUp(word(token), p) for token, p in zip(*of_word, strict=True))
            for of_word in pairs
        )

    def word(token: int) -> str | None:
        return None if token == EOS else vocabulary.decode([token])[0]

    parts = zip(tokens.cpu(), found.tokens.cpu(), found.probabilities.cpu(), strict=True)
    return [[of_caption(*each) for each in zip(*of_photo, strict=True)] for of_photo in parts]


def _length(tokens: Int[Tensor, "T"]) -> int:
    """The number of words."""
    return int(((tokens != PAD) & (tokens != EOS)).sum())

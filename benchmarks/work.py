"""How much arithmetic and how many bytes the model needs at the least, by formula.

What an implementation does beyond that (keys projected again, padding, copies) is not needed and
lowers the share of the machine's rate that it reaches. Counted are products of matrices and
vectors, a multiplication and an addition as two operations; the tanh of the energies and the
softmax are not. What is linear in the contexts is counted for the regions of all photos or for all
words, whichever are fewer.

Shapes: B photos, N captions per photo, T words.
"""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from benchmarks.sizes import Size
from captioning.data.vocabulary import BOS, PAD

ITEM = {"fp32": 4, "bf16": 2}
"""Bytes of a number."""


class Work(NamedTuple):
    """What has to be done.

    Attributes:
        operations: floating-point operations.
        bytes: read from and written to memory.
    """

    operations: float
    bytes: float


def word_counts(tokens: Int[Tensor, "B N T"]) -> Int[Tensor, "B N"]:
    """Words of every caption, the end mark included."""
    return ((tokens != PAD) & (tokens != BOS)).sum(dim=-1)


def training_work(size: Size, lengths: Int[Tensor, "B N"], precision: str) -> Work:
    """A training step: forward, backward and AdamW; the annotation vectors get no gradient.

    Every word reads its photo's annotation vectors and keys, once forward and once backward, but
    all captions of a photo share that. Parameters are read forward and backward; then AdamW reads
    parameter, gradient and two moments and writes all but the gradient.

    Args:
        size: of everything.
        lengths: words of every caption.
        precision: of the arithmetic; parameters and moments are in single precision.
    """
    words, steps = int(lengths.sum()), int(lengths.max())
    projected = size.projection_dim is not None
    projection, once, per_word, contexts = _products(size, words)
    # The gradient by the input and that by the weight cost as much as the product itself. What is
    # made of annotation vectors has no gradient by these, unless parameters have projected them.
    of_once = 3 if projected else 2
    of_contexts = 3 if projected or _has_fewer_regions(size, words) else 2
    operations = 2 * projection + of_once * once
    operations += words * (3 * per_word + of_contexts * contexts)
    read = 2 * steps * _attended(size) * ITEM[precision]
    return Work(operations, read + (2 * ITEM[precision] + 7 * ITEM["fp32"]) * _parameters(size))


def search_work(size: Size, lengths: Int[Tensor, "B N"], precision: str) -> Work:
    """A search, all photos together, that writes captions of these lengths.

    Every step reads the annotation vectors, the keys and the parameters once. What captions have in
    common is counted for each of them, and the beams that a search gives up are not.

    Args:
        size: of everything.
        lengths: words of every caption that was found.
        precision: of the arithmetic.
    """
    words, steps = int(lengths.sum()), int(lengths.max())
    projection, once, per_word, contexts = _products(size, words)
    read = steps * (_attended(size) + _parameters(size)) * ITEM[precision]
    return Work(projection + once + words * (per_word + contexts), read)


class _Products(NamedTuple):
    """Operations of the products.

    Attributes:
        projection: of all annotation vectors to their width, once.
        once: of what is linear in the annotation vectors, for all photos.
        word: of a word without its context.
        context: of a word's context alone.
    """

    projection: float
    once: float
    word: float
    context: float


def _products(size: Size, words: int) -> _Products:
    """What has to be multiplied; what is linear in a context is where it is less."""
    annotation, width = size.width, size.hidden_dim
    vectors = size.photos * size.regions
    projection = 2 * vectors * size.annotation_dim * (size.projection_dim or 0)
    keys = 2 * vectors * annotation * width
    states = 2 * size.photos * annotation * 2 * width
    queries = 2 * width * width
    energies = 2 * size.regions * width
    gates = 2 * 4 * width * 2 * width + 2 * width
    deep = 2 * width * width
    vocabulary = 2 * width * size.vocab_size
    once, per_word = keys + states, queries + energies + gates + deep + vocabulary
    linear = 5 * width  # in a context: four gates and the deep output
    if _has_fewer_regions(size, words):
        once += 2 * vectors * annotation * linear
        return _Products(projection, once, per_word, 2 * size.regions * linear)
    per_word += 2 * annotation * linear
    return _Products(projection, once, per_word, 2 * size.regions * annotation)


def _has_fewer_regions(size: Size, words: int) -> bool:
    return size.photos * size.regions < words


def _attended(size: Size) -> float:
    """Numbers in the annotation vectors and keys of all photos."""
    return size.photos * size.regions * (size.width + size.hidden_dim)


def _parameters(size: Size) -> float:
    """Parameters but for the word embeddings, of which few are read, and the biases."""
    annotation, width = size.width, size.hidden_dim
    projection = size.annotation_dim * (size.projection_dim or 0)
    attention = annotation * width + width * width
    gates = 4 * width * (2 * width + annotation)
    output = width * (width + annotation) + width * size.vocab_size
    return projection + attention + 2 * annotation * width + gates + output

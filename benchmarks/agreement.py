"""The check that the textbook and this package compute the same; without it no figure counts."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks import ours, sizes, textbook
from benchmarks.endings import ending_decoder
from benchmarks.sizes import QUICK, Size
from benchmarks.textbook_search import photo_by_photo
from captioning.data.vocabulary import PAD
from captioning.models import LSTMDecoder
from captioning.search import BeamSearch, Greedy, Search

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Relative difference, by precision, that rounding alone may make."""


class DisagreementError(Exception):
    """The two implementations do not compute the same."""


def check_loss(size: Size, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
    """Compare the loss, and its gradient by every parameter, from the same parameters.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    decoder = sizes.random_decoder(size, dropout=0.0).to(device, dtype)
    other = textbook.textbook_of(decoder)
    vectors, captions = sizes.annotations(size).to(device, dtype), sizes.tokens(size).to(device)
    mine = ours.loss(decoder, vectors, captions)
    its = textbook.loss(other, textbook.copies(vectors, size.captions), captions.flatten(0, 1))
    compare(f"loss at {size}", mine, its)
    mine.backward()
    its.backward()
    by_name = textbook.by_textbook_names(_gradients(decoder.named_parameters()))
    its_gradients = _gradients(other.named_parameters())
    for name, gradient in by_name.items():
        compare(f"gradient of {name} at {size}", gradient, its_gradients[name])


def check_search(
    decoder: LSTMDecoder, annotations: Float[Tensor, "B L D"], search: Search, width: int, what: str
) -> None:
    """Compare a search's captions and scores with those of the textbook's beam search.

    In single precision two captions may score so alike that rounding decides which one is found;
    then the scores tell, and the captions need not be the same.

    Args:
        decoder: in evaluation mode.
        annotations: of the photos, in the decoder's precision.
        search: ours.
        width: of the textbook's beam search.
        what: is compared, for the message.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    decoded = ours.searched(decoder, annotations, search)
    found = photo_by_photo(textbook.textbook_of(decoder), annotations, width)
    its_scores = decoded.scores.new_tensor([[one.score for one in beams] for beams in found])
    compare(f"scores of {what}", decoded.scores, its_scores)
    if annotations.dtype != torch.float64:
        return
    words = [[[i for i in one if i != PAD] for one in beams] for beams in decoded.tokens.tolist()]
    if words != [[one.tokens for one in beams] for beams in found]:
        raise DisagreementError(f"captions of {what}: the textbook finds others")


def check_exactly(device: torch.device) -> None:
    """Compare everything at a small size in double precision, where rounding hides nothing.

    Raises:
        DisagreementError: something differs by more than rounding.
    """
    [size] = QUICK
    check_loss(size, device, torch.float64)
    vectors = sizes.annotations(size).to(device, torch.float64)
    decoder = ending_decoder(size, vectors)
    check_search(decoder, vectors, Greedy(), 1, f"greedy captioning at {size}")
    check_search(decoder, vectors, BeamSearch(5), 5, f"beam search at {size}")


def _gradients(parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name: value.grad for name, value in parameters if value.grad is not None}


def compare(what: str, mine: Tensor, its: Tensor) -> None:
    """Compare by the norm of the difference over the norm of the textbook's values.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    difference = ((mine.detach() - its.detach()).norm() / its.detach().norm()).item()
    if not difference <= TOLERANCE[its.dtype]:  # nan is no agreement either
        raise DisagreementError(
            f"{what}: {difference:.1g} of its norm away from the textbook's, and rounding is "
            f"at most {TOLERANCE[its.dtype]:.1g}"
        )

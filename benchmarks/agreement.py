"""The check that textbook, peer and this package compute the same; without it no figure counts."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks import ours, sizes
from benchmarks.endings import ending_decoder
from benchmarks.layers import by_layer_names
from benchmarks.rivals import RIVALS, Rival
from benchmarks.sizes import QUICK, Size
from captioning.data.vocabulary import PAD
from captioning.models import LSTMDecoder
from captioning.search import BeamSearch, Greedy, Search

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Relative difference, by precision, that rounding alone may make."""


class DisagreementError(Exception):
    """Two implementations do not compute the same."""


def check_loss(
    size: Size,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    rivals: Sequence[Rival] = RIVALS,
) -> None:
    """Compare the loss, and its gradient by every parameter, from the same parameters.

    Args:
        size: of everything.
        device: where it is computed.
        dtype: in which precision.
        rivals: with which ours are compared.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    decoder = sizes.random_decoder(size, dropout=0.0).to(device, dtype)
    vectors, captions = sizes.annotations(size).to(device, dtype), sizes.tokens(size).to(device)
    mine = ours.loss(decoder, vectors, captions)
    mine.backward()
    gradients = by_layer_names(_gradients(decoder.named_parameters()))
    for rival in rivals:
        other = rival.decoder.of(decoder)
        its = rival.loss(other, vectors, captions)
        compare(f"the {rival.name}'s loss at {size}", mine, its)
        its.backward()
        its_gradients = _gradients(other.named_parameters())
        for name, gradient in gradients.items():
            compare(
                f"the {rival.name}'s gradient of {name} at {size}", gradient, its_gradients[name]
            )


def check_search(
    decoder: LSTMDecoder,
    annotations: Float[Tensor, "B L D"],
    search: Search,
    width: int,
    what: str,
    rivals: Sequence[Rival] = RIVALS,
) -> None:
    """Compare a search's captions and scores with those of the others' beam search.

    In single precision two captions may score so alike that rounding decides which one is found;
    then the scores tell, and the captions need not be the same.

    Args:
        decoder: in evaluation mode.
        annotations: of the photos, in the decoder's precision.
        search: ours.
        width: of the others' beam search.
        what: is compared, for the message.
        rivals: with which ours is compared.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    decoded = ours.searched(decoder, annotations, search)
    mine = [[[i for i in one if i != PAD] for one in beams] for beams in decoded.tokens.tolist()]
    for rival in rivals:
        found = rival.captions(rival.decoder.of(decoder), annotations, width)
        its_scores = decoded.scores.new_tensor([[one.score for one in beams] for beams in found])
        compare(f"the {rival.name}'s scores of {what}", decoded.scores, its_scores)
        its = [[one.tokens for one in beams] for beams in found]
        if annotations.dtype == torch.float64 and mine != its:
            raise DisagreementError(f"captions of {what}: the {rival.name} finds others")


def check_exactly(device: torch.device) -> None:
    """Compare everything at small sizes in double precision, where rounding hides nothing.

    Raises:
        DisagreementError: something differs by more than rounding.
    """
    for size in QUICK:
        check_loss(size, device, torch.float64)
        vectors = sizes.annotations(size).to(device, torch.float64)
        decoder = ending_decoder(size, vectors)
        check_search(decoder, vectors, Greedy(), 1, f"greedy captioning at {size}")
        check_search(decoder, vectors, BeamSearch(5), 5, f"beam search at {size}")


def _gradients(parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name: value.grad for name, value in parameters if value.grad is not None}


def compare(what: str, mine: Tensor, its: Tensor) -> None:
    """Compare by the norm of the difference over the norm of the other's values.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    difference = ((mine.detach() - its.detach()).norm() / its.detach().norm()).item()
    if not difference <= TOLERANCE[its.dtype]:  # nan is no agreement either
        raise DisagreementError(
            f"{what}: {difference:.1g} of its norm away from ours, and rounding is "
            f"at most {TOLERANCE[its.dtype]:.1g}"
        )

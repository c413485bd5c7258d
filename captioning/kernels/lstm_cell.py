"""The pointwise part of the LSTM (Xu et al. 2015, eq. 1-3) and its gradients.

Equals `captioning.models.lstm.lstm_cell`. Training's word loop needs the gradients without a graph.

Shapes: H width of the LSTM, G its four gates, r rows of one word.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.kernels.compiled import Compiled


class Cell(NamedTuple):
    """The LSTM after one word (eq. 1-3), with the activations that the backward pass needs.

    Attributes:
        hidden: the hidden state.
        cell: the cell.
        gates: sigmoids of all four gates, concatenated as i, f, g, o.
        new: tanh of g, the cell's candidate.
        shown: tanh of the cell.
    """

    hidden: Float[Tensor, "*B H"]
    cell: Float[Tensor, "*B H"]
    gates: Float[Tensor, "*B G"]
    new: Float[Tensor, "*B H"]
    shown: Float[Tensor, "*B H"]


def lstm_cell(gates: Float[Tensor, "*B G"], cell: Float[Tensor, "*B H"]) -> Cell:
    """The pointwise part of the LSTM, in the precision of its cell; equals the plain `lstm_cell`.

    Args:
        gates: the pre-activations of i, f, g and o.
        cell: before the word.
    """
    gates = gates.to(cell.dtype)
    opened = gates.sigmoid()
    take, keep, _, show = opened.chunk(4, dim=-1)
    new = gates.chunk(4, dim=-1)[2].tanh()
    cell = torch.addcmul(keep * cell, take, new)
    shown = cell.tanh()
    return Cell(show * shown, cell, opened, new, shown)


def _summed_cell(by_hidden: Tensor, by_word: Tensor, by_context: Tensor, cell: Tensor) -> Cell:
    """The LSTM's cell from the summands of its gates; the hidden state gets their precision."""
    after = lstm_cell(by_hidden + by_word + by_context, cell)
    return after._replace(hidden=after.hidden.to(by_hidden.dtype))


next_cell = Compiled(_summed_cell)


@Compiled
def cell_gradients(
    carried_h: Tensor,
    of_hidden: Tensor,
    carried_c: Tensor,
    cell: Tensor,
    gates: Tensor,
    new: Tensor,
    shown: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates' pre-activations, and of the cell before the word.

    Gates and their gradients are (r, G), everything else (r, H).

    Args:
        carried_h: the hidden state's gradient from the next word.
        of_hidden: the hidden state's gradient from everything else.
        carried_c: the cell's gradient from the next word.
        cell: the cell before the word.
        gates: after their sigmoids.
        new: tanh of g.
        shown: tanh of the cell.
    """
    take, keep, _, show = gates.chunk(4, dim=-1)
    of_h = carried_h.to(cell.dtype) + of_hidden
    of_c = carried_c + of_h * show * (1 - shown.square())
    take_slope, keep_slope, _, show_slope = (gates * (1 - gates)).chunk(4, dim=-1)
    parts = [
        of_c * new * take_slope,
        of_c * cell * keep_slope,
        of_c * take * (1 - new.square()),
        of_h * shown * show_slope,
    ]
    return torch.cat(parts, dim=-1).to(of_hidden.dtype), of_c * keep

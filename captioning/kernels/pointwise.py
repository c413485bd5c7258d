"""Pointwise parts of the LSTM decoder: dropout, and the cell with its gradients.

Shapes: H width of the LSTM, G its four gates, r rows of one word.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from captioning.kernels.compiled import Compiled

STEPS = 2**16
"""Dropout's probability is rounded to a multiple of one over this."""


def dropout(x: Float[Tensor, "*B"], p: float, training: bool) -> Float[Tensor, "*B"]:
    """Equals `torch.nn.functional.dropout` in distribution.

    PyTorch draws a random number per element one after the other on CPUs, which took a tenth of a
    training step. Here four elements share one draw of 64 bits.
    """
    dropped = round(p * STEPS)
    if x.device.type != "cpu" or not training or not 0 < dropped < STEPS:
        return F.dropout(x, p, training)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view_as(x)  # uniform from -2^15 to 2^15 - 1
    kept = (bits >= dropped - STEPS // 2).to(x.dtype)
    return x * kept.mul_(STEPS / (STEPS - dropped))


class Cell(NamedTuple):
    """The LSTM after one word, with the activations that the backward pass needs."""

    hidden: Float[Tensor, "*B H"]  # h
    cell: Float[Tensor, "*B H"]  # c
    gates: Float[Tensor, "*B G"]  # sigmoids of i, f, g and o, side by side
    new: Float[Tensor, "*B H"]  # tanh of g
    shown: Float[Tensor, "*B H"]  # tanh of c


def lstm_cell(gates: Float[Tensor, "*B G"], cell: Float[Tensor, "*B H"]) -> Cell:
    """Equals `captioning.models.lstm.lstm_cell` (Xu et al. 2015, eq. 1-3)."""
    gates = gates.to(cell.dtype)
    opened = gates.sigmoid()
    i, f, _, o = opened.chunk(4, dim=-1)
    new = gates.chunk(4, dim=-1)[2].tanh()
    cell = torch.addcmul(f * cell, i, new)
    shown = cell.tanh()
    return Cell(o * shown, cell, opened, new, shown)


@Compiled
def next_cell(by_hidden: Tensor, by_word: Tensor, by_context: Tensor, cell: Tensor) -> Cell:
    """`lstm_cell` of the sum of three parts of the gates; hidden states get their precision."""
    after = lstm_cell(by_hidden + by_word + by_context, cell)
    # Not by `_replace`, which PyTorch 2.11 cannot compile.
    return Cell(after.hidden.to(by_hidden.dtype), *after[1:])


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
    """The gradients of the gates' pre-activations, (r, G), and of the cell before the word, (r, H).

    Args:
        carried_h: the hidden state's gradient from the next word, (r, H) as all but the gates.
        of_hidden: the hidden state's gradient from everything else.
        carried_c: the cell's gradient from the next word.
        cell: the cell before the word, c'.
        gates: of `Cell`, as the rest.
        new: n in comments.
        shown: tanh(c).
    """
    i, f, _, o = gates.chunk(4, dim=-1)
    i_slope, f_slope, _, o_slope = (gates * (1 - gates)).chunk(4, dim=-1)
    of_h = carried_h.to(cell.dtype) + of_hidden
    of_c = carried_c + of_h * o * (1 - shown.square())  # h = o tanh(c)
    parts = [
        of_c * new * i_slope,  # c = f c' + i n, di = i (1 - i)
        of_c * cell * f_slope,  # dc/df = c', df = f (1 - f)
        of_c * i * (1 - new.square()),  # dc/dn = i, dn/dg = 1 - n^2
        of_h * shown * o_slope,  # dh/do = tanh(c), do = o (1 - o)
    ]
    return torch.cat(parts, dim=-1).to(of_hidden.dtype), of_c * f  # dc/dc' = f

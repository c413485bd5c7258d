"""Dropout that draws its random numbers cheaply on CPUs.

Equals `torch.nn.functional.dropout` in distribution, with p rounded to a multiple of 2^-16.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

STEPS = 2**16


def dropout(x: Float[Tensor, "*B"], p: float, training: bool) -> Float[Tensor, "*B"]:
    """In training, zero a share p of the elements and scale the others by 1 / (1 - p).

    On CPUs, PyTorch draws a number per element sequentially, which took a tenth of a training
    step. Here four elements share one draw of 64 bits.
    """
    dropped = round(p * STEPS)
    if x.device.type != "cpu" or not training or not 0 < dropped < STEPS:
        return F.dropout(x, p, training)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view_as(x)  # uniform from -2^15 to 2^15 - 1
    kept = (bits >= dropped - STEPS // 2).to(x.dtype)
    return x * kept.mul_(STEPS / (STEPS - dropped))

"""Dropout that draws its random numbers cheaply on CPUs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

STEPS = 2**16


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, with p rounded to a multiple of 2^-16 on CPUs.

    PyTorch draws a number per element there, one after the other, which took a tenth of a training
    step; here four elements share one draw of 64 bits.
    """

    def forward(self, x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Zero a share p of the elements and scale the others by 1 / (1 - p), while training."""
        dropped = round(self.p * STEPS)
        if x.device.type != "cpu" or not self.training or not 0 < dropped < STEPS:
            return F.dropout(x, self.p, self.training)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view_as(x)  # uniform from -2^15 to 2^15 - 1
        kept = (bits >= dropped - STEPS // 2).to(x.dtype)
        return x * kept.mul_(STEPS / (STEPS - dropped))

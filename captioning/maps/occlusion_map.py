"""A map made by hiding regions.

Shapes: L regions (rows x columns), W windows.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from captioning.maps.captioned import SIDE, Captioned, Maps, shares, word_log_probs


@torch.no_grad()
def occlusion_map(captioned: Captioned) -> Maps:
    """The drop of the word's log probability if the 3 x 3 regions around each region are hidden.

    Zeiler and Fergus 2014, with annotation vectors in place of pixels. Regions are hidden from the
    first word of the caption on, so the state of the decoder knows nothing of them. Rises count as
    zero. Cost: L + 1 passes over the caption.
    """
    model, annotations, tokens = captioned.model, captioned.annotations, captioned.tokens
    whole = word_log_probs(model, annotations, tokens)
    hidden = [
        word_log_probs(model, annotations, tokens, (~window).expand(len(annotations), -1))
        for window in windows(captioned.grid).to(annotations.device)
    ]
    return shares(whole[..., None] - torch.stack(hidden, dim=-1), captioned.grid)


def windows(grid: tuple[int, int]) -> Bool[Tensor, "W L"]:
    """For each region, the regions to hide: itself and, on grids larger than 3, its neighbours."""
    rows, columns = (torch.arange(cells) for cells in grid)
    tall, wide = (SIDE // 2 if cells > SIDE else 0 for cells in grid)
    near_rows = (rows[:, None] - rows).abs() <= tall
    near_columns = (columns[:, None] - columns).abs() <= wide
    near = near_rows[:, None, :, None] & near_columns[None, :, None, :]
    found = near.reshape(len(rows) * len(columns), -1)
    return found & ~found.all(dim=1, keepdim=True)  # never hide all regions

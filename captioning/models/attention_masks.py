"""Which keys each query may attend to: boolean masks, True where it may.

All masks broadcast to (R, N, L), so that `&` joins them: a query sees what every mask lets it see.

Shapes: R rows of a batch, N queries, L keys.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def causal_mask(
    queries: int, keys: int | None = None, device: torch.device | None = None
) -> Bool[Tensor, "1 N L"]:
    """Each query sees its own key and all before it (Vaswani et al. 2017, section 3.2.3).

    Args:
        queries: N.
        keys: L, at least N, where the queries belong to the last N keys; N if none.
        device: of the mask.
    """
    keys = queries if keys is None else keys
    everything = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
    return everything.tril(keys - queries)


def length_mask(
    lengths: Int[Tensor, "R"] | Int[Tensor, "R N"], keys: int
) -> Bool[Tensor, "R #N L"]:
    """The first keys of each row, as many as its length; or those of each query.

    Args:
        lengths: from 0 to L, one for a row or one for each of its queries.
        keys: L.
    """
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return torch.arange(keys, device=lengths.device) < per_query[:, :, None]


def padding_mask(mask: Bool[Tensor, "R L"] | None) -> Bool[Tensor, "R 1 L"] | None:
    """One mask of keys for all queries of a row; none where there is no padding."""
    return None if mask is None else mask[:, None]

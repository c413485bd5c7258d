"""The step of a kernel that computes the rows of active captions only.

Shapes: B images, N captions per image, r active rows, L regions, V vocabulary.
"""

from jaxtyping import Float
from torch import Tensor

from captioning.kernels.active_rows import ActiveRows
from captioning.models.decoder import State, Step


class ActiveStep(Step):
    """A step with the logits of active captions only.

    Args:
        rows: the rows of the active captions.
        active_logits: their logits.
        weights: attention over regions, of all captions.
        state: the state after the step.
    """

    def __init__(
        self,
        rows: ActiveRows,
        active_logits: Float[Tensor, "r V"],
        weights: Float[Tensor, "B N L"],
        state: State,
    ) -> None:
        self.rows = rows
        self.active_logits = active_logits
        self.weights = weights
        self.state = state

    @property
    def logits(self) -> Float[Tensor, "B N V"]:  # type: ignore[override]
        """The logits of all captions; zero for those that have ended."""
        return self.rows.by_image(self.active_logits)

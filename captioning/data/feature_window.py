"""A square part of cached features, as a random crop of the photo.

Shapes: P cells of a square feature map, p those of the window, C channels.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float16
from torch import Tensor


class FeatureWindow(NamedTuple):
    """A square of cells.

    Attributes:
        side: rows, and columns, of the window.
        top: the map's first row that is in it.
        left: the first column.
        whole: rows, and columns, of the map.
    """

    side: int
    top: int
    left: int
    whole: int

    @classmethod
    def random(cls, side: int, cells: int, generator: torch.Generator) -> "FeatureWindow":
        """Any window of this side, all equally likely.

        Args:
            side: at most that of the map.
            cells: P, a square number.
            generator: draws the place.
        """
        whole = math.isqrt(cells)
        top, left = torch.randint(whole - side + 1, (2,), generator=generator).tolist()
        return cls(side, top, left, whole)

    def cut(self, features: Float16[Tensor, "P C"]) -> Float16[Tensor, "p C"]:
        """What is in the window, in reading order."""
        rows = features.unflatten(0, (self.whole, self.whole))[self.top : self.top + self.side]
        return rows[:, self.left : self.left + self.side].flatten(0, 1)

    def crop(
        self, square: tuple[float, float, float, float], is_mirrored: bool
    ) -> tuple[float, float, float, float]:
        """Left, top, width and height, in pixels of the photo, of what the window shows.

        Args:
            square: what the whole map shows, in the same way.
            is_mirrored: whether the map is of the mirrored square.
        """
        left, top, width, height = square
        column = self.whole - self.side - self.left if is_mirrored else self.left
        cell = width / self.whole, height / self.whole
        return (
            left + column * cell[0],
            top + self.top * cell[1],
            self.side * cell[0],
            self.side * cell[1],
        )

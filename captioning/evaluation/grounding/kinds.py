"""Kinds of objects that are harder or easier to point at: where they are and how large."""

from collections.abc import Callable

from captioning.evaluation.grounding.looks import Look

KINDS: dict[str, Callable[[Look], bool]] = {
    "not in the middle": lambda look: not look.covers_middle,
    "small, below 1/16": lambda look: look.size_share < 1 / 16,
    "medium": lambda look: 1 / 16 <= look.size_share < 1 / 4,
    "large, from 1/4": lambda look: look.size_share >= 1 / 4,
    "near, below 1/8": lambda look: look.distance < 1 / 8,
    "halfway": lambda look: 1 / 8 <= look.distance < 1 / 4,
    "far, from 1/4": lambda look: look.distance >= 1 / 4,
}
"""What the looks of each kind have in common. The first are those whose object does not cover the
middle of the view. Sizes are shares of the view, distances from its middle are in its sides."""

OFF_MIDDLE = next(iter(KINDS))

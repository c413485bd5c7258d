"""Names of the splits of data sets."""

import re
from collections.abc import Iterable

SPLITS = ("train", "val", "test")
ALIASES = {
    **{name: name for name in SPLITS},
    **dict.fromkeys(("training", "restval"), "train"),  # Karpathy's restval
    **dict.fromkeys(("validation", "valid", "dev"), "val"),
    "testing": "test",
}


def split_name(name: str) -> str:
    """The usual name of a split, such as val for Validation; other names are unchanged."""
    return ALIASES.get(name.strip().lower(), name.strip())


def split_in(name: str) -> str | None:
    """The split named by a word of a file or folder name; None unless exactly one is."""
    words = re.findall(r"[a-z]+", name.lower())
    splits = {ALIASES[word] for word in words if word in ALIASES}
    return splits.pop() if len(splits) == 1 else None


def in_order(splits: Iterable[str]) -> tuple[str, ...]:
    """The names of splits without repeats: train, val and test first, then others by name."""
    names = set(splits)
    usual_names = [name for name in SPLITS if name in names]
    return (*usual_names, *sorted(names.difference(SPLITS)))

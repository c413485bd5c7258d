"""Show, Attend and Tell: captions for photos, and where the model looked for every word.

`captioning.load(checkpoint)` gives a `Captioner`, whose captions a notebook shows as interactive
views. Importing this package is cheap: torch is imported with the first use of `load`.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioning.captioner import load

__all__ = ["load"]


def __dir__() -> list[str]:
    """The public names, so that completion offers them before they are imported."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import `load`, and torch with it, on first use."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from captioning.captioner import load

    if "IPython" in sys.modules:
        from captioning.viewing.notebook import show_captions

        show_captions()
    return load

"""Show, Attend and Tell: captions for photos, and where the model looked for every word.

`captioning.load(checkpoint)` gives a `Captioner`, which makes a `Caption` of each photo; a notebook
shows captions as interactive views. Commands are functions too, with their options as keywords:
``captioning.finetune("photos", epochs=5)``, ``captioning.evaluate(data="coco")``. Importing this
package is cheap: torch is imported with the first use of a name in it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioning.captioner import Caption, Captioner, load

__version__ = "0.4.0"

FUNCTIONS = (
    *("calibrate", "check", "compare", "evaluate", "export", "finetune", "ground", "review"),
    "score",
)
"""Commands that are also functions of this package."""

__all__ = ["Caption", "Captioner", "load", *FUNCTIONS]


def __dir__() -> list[str]:
    """The public names, for completion before they are imported."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    """Import a public name, and torch with it, on first use."""
    if name not in __all__:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    if name in FUNCTIONS:
        from captioning.commands.python_functions import python_function

        return python_function(name)
    from captioning import captioner

    return getattr(captioner, name)

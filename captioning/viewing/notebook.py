"""Shows captions in notebooks."""

import math
from html import escape

from PIL.Image import Image

from captioning.captioner.caption import Caption
from captioning.data.images import MAX_PIXELS, read_image
from captioning.errors import InputError
from captioning.viewing.viewer import html

HEIGHT = 660
"""Height of the frame in pixels, since a notebook does not fit it to its content."""


def notebook_view(caption: Caption) -> str | None:
    """The interactive view in its own frame, so that one page can hold many.

    Returns:
        HTML; None if the photo is unknown, or has changed since it was captioned.
    """
    if caption.photo is None:
        return None
    try:
        photo = caption.photo
        if not isinstance(photo, Image):
            # The photo was captioned, so it is within its captioner's limit.
            photo = read_image(photo, max(MAX_PIXELS, math.prod(caption.size)))
        content = html(photo, [caption])
    except (InputError, ValueError):
        return None
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(content)}" title="{escape(caption.text)}"'
        f' style="width: 100%; height: {HEIGHT}px; border: 0; border-radius: 8px"></iframe>'
    )


def show_captions() -> None:
    """Let IPython show captions as interactive views, in a notebook that runs here."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is not None and shell.display_formatter is not None:
        shell.display_formatter.formatters["text/html"].for_type(Caption, notebook_view)

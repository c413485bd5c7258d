"""Captions as a notebook shows them."""

import math
from html import escape

from PIL.Image import Image

from captioning.captioner.caption import Caption
from captioning.data.images import read_image
from captioning.data.megapixels import MAX_PIXELS
from captioning.errors import InputError
from captioning.viewing.viewer import html

HEIGHT = 660
"""Pixels of the frame, which a notebook does not fit to what is in it."""


def notebook_view(caption: Caption) -> str | None:
    """The interactive view in a frame of its own, so that many of them share one page.

    Returns:
        HTML; None where the photo is not known, or not any more what was captioned.
    """
    if caption.photo is None:
        return None
    try:
        photo = caption.photo
        if not isinstance(photo, Image):
            # A photo that was captioned was within the limit of its captioner.
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

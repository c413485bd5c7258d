"""Captions that show themselves in notebooks."""

from html import escape

from captioning.captioner.caption import Caption
from captioning.errors import InputError
from captioning.viewing.viewer import html

HEIGHT = 660
"""Height of the frame in pixels, since a notebook does not fit it to its content."""


def notebook_view(caption: Caption) -> str | None:
    """The interactive view in a frame of its own, so that a notebook can show many.

    None if the photo is unknown, or has changed since it was captioned.
    """
    if caption.photo is None:
        return None
    try:
        content = html(caption.photo, [caption])
    except InputError:
        return None
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(content)}" title="{escape(caption.text)}"'
        f' style="width: 100%; height: {HEIGHT}px; border: 0; border-radius: 8px"></iframe>'
    )


def show_captions() -> None:
    """Make IPython show captions as interactive views, if this runs in a notebook."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is not None and shell.display_formatter is not None:
        shell.display_formatter.formatters["text/html"].for_type(Caption, notebook_view)

"""Writes what a caption looked at, as a picture, an animation or a page."""

from pathlib import Path

from captioning.captioner.caption import Caption
from captioning.errors import InputError
from captioning.viewing import animation, overlay, viewer
from captioning.viewing.viewer import Photo


def save(photo: Photo, caption: Caption, path: Path) -> None:
    """Write the photo and the caption's first shown map; the suffix of the path says how.

    Raises:
        InputError: another suffix than .png, .gif and .html, the photo cannot be read or is not the
            caption's, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".png":
        overlay.save(photo, caption, path)
    elif suffix == ".gif":
        animation.save(photo, caption, path)
    elif suffix == ".html":
        viewer.save(photo, [caption], path)
    else:
        raise InputError(f"{path}: give a name that ends in .png, .gif or .html")

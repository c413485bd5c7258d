"""Pages of photos with links to each other, and a gallery of all of them."""

import posixpath
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from PIL.Image import Image

from captioning.captioner import Caption
from captioning.data.framing import jpeg
from captioning.viewing import viewer
from captioning.viewing.html_document import save_html

INDEX = "index.html"


class Gallery:
    """Writes a page per photo to a folder and, of several photos, `INDEX`.

    A page links to that of the photo before and that of the one after it, so it is written when the
    next photo is added, the last one by `finish`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cards: dict[str, viewer.PhotoCard] = {}  # by the paths of their pages
        self._last: dict[str, Any] = {}  # what the page shows that is not yet written

    def add(self, photo: Path, image: Image, captions: Sequence[Caption], page: Path) -> None:
        """Add a photo, unless it is there already.

        Args:
            photo: its path.
            image: the photo, upright.
            captions: the best first.
            page: its page, in the folder or in a folder below it.

        Raises:
            InputError: the page before it cannot be written.
        """
        name = page.relative_to(self.folder).as_posix()
        if name in self._cards:
            return
        self._write_page(name)
        best = captions[0]
        sure = "" if best.confidence is None else f" · {best.confidence:.0%} sure"
        self._cards[name] = viewer.PhotoCard(
            photo.name,
            jpeg(image, viewer.THUMBNAIL),
            best.sentence,
            [photo.name + sure],
            best.confidence,
            name,
        )
        self._last = viewer.data(image, [caption.view() for caption in captions], photo.name)

    def finish(self) -> None:
        """Write the last page and the gallery.

        Raises:
            InputError: a file cannot be written.
        """
        self._write_page()
        if len(self._cards) > 1:
            save_html(viewer.index_html([*self._cards.values()]), self.folder / INDEX)

    def _write_page(self, following: str = "") -> None:
        if not self._cards:
            return
        *earlier, page = self._cards
        previous = earlier[-1] if earlier else ""
        links = {"All photos": INDEX, "Previous": previous, "Next": following}
        here = PurePosixPath(page).parent
        links = {text: link and posixpath.relpath(link, here) for text, link in links.items()}
        is_alone = not (previous or following)
        content = viewer.page_html(self._last, {} if is_alone else links)
        save_html(content, self.folder / page)

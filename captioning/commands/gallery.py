"""Pages of photos with links to each other, and a gallery of all of them."""

import posixpath
from collections.abc import Mapping, Sequence
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

    A page links to the previous and the next one, so it is written when the next photo is added,
    and the last one by `finish`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cards: dict[str, viewer.PhotoCard] = {}  # by page
        self._view: dict[str, Any] = {}  # of the last page, which is not yet written

    def add(
        self,
        photo: Path,
        image: Image,
        captions: Sequence[Caption],
        page: Path,
        keywords: Mapping[str, float],
    ) -> None:
        """Add a photo, unless it has a page already.

        Args:
            photo: its path.
            image: the photo, upright.
            captions: the best first.
            page: the file of its page, in or below the folder.
            keywords: words for the photo, with their chances.

        Raises:
            InputError: the previous page cannot be written.
        """
        name = page.relative_to(self.folder).as_posix()
        if name in self._cards:
            return
        self._write_page(name)
        best = captions[0]
        sure = "" if best.confidence is None else f" · {best.confidence:.0%} sure"
        chances = ", ".join(f"{word} {chance:.0%}" for word, chance in keywords.items())
        self._cards[name] = viewer.PhotoCard(
            photo.name,
            jpeg(image, viewer.THUMBNAIL),
            best.sentence,
            [photo.name + sure, *([chances] if chances else [])],
            best.confidence,
            name,
        )
        self._view = viewer.data(image, [caption.view() for caption in captions], photo.name)

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
        folder = PurePosixPath(page).parent
        links = {text: link and posixpath.relpath(link, folder) for text, link in links.items()}
        is_alone = not (previous or following)
        content = viewer.page_html(self._view, {} if is_alone else links)
        save_html(content, self.folder / page)

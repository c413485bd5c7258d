"""Many photos, some of which may be bad."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL.Image import Image
from tqdm import tqdm

from captioning.data.images import read_image
from captioning.errors import InputError
from captioning.models.caption import Caption
from captioning.models.captioner import Captioner
from captioning.models.search import Search


def captioned(
    captioner: Captioner,
    photos: Sequence[Path],
    search: Search | None = None,
    batch_size: int = 16,
    progress: bool = True,
) -> Iterator[tuple[Path, Caption | InputError]]:
    """Each photo with its best caption, or with the reason why it has none, in order.

    Args:
        captioner: the model.
        photos: paths.
        search: how words are chosen; the captioner's own if none.
        batch_size: photos captioned at a time.
        progress: show a progress bar on stderr, where that is a terminal.
    """
    with (
        ThreadPoolExecutor() as readers,
        tqdm(
            total=len(photos),
            unit="photo",
            leave=False,
            disable=None if progress and len(photos) > 1 else True,  # None: only on a terminal
        ) as bar,
    ):
        for first in range(0, len(photos), batch_size):
            paths = photos[first : first + batch_size]
            images = list(readers.map(_read, paths))
            good = [image for image in images if isinstance(image, Image)]
            captions = iter(captioner.caption(good, search))
            for path, image in zip(paths, images, strict=True):
                yield path, image if isinstance(image, InputError) else next(captions)
                bar.update()


def _read(path: Path) -> Image | InputError:
    try:
        return read_image(path)
    except InputError as error:
        return error

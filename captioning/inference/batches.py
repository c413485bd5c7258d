"""Captions batches of photos, of which some may be unreadable, and reads the next ones ahead."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError
from captioning.progress_bar import ProgressBar
from captioning.search.search import Search
from captioning.terminal import printable_json
from captioning.threads import cut, even_size, in_threads

AHEAD = 2
"""Batches that are read while one is captioned."""

Key = TypeVar("Key")
Read = tuple[Key, Sequence[Path], list[View | InputError]]
"""A batch's key and paths, with a view of each photo, or the error of an unreadable one."""


def seeded(search: Search, seed: int) -> Search:
    """The search; if it draws words by chance, by this seed and each photo alone."""
    return search.replace(seed=seed) if search.draws else search


def read_ahead(
    captioner: Captioner, batches: Iterable[tuple[Key, Sequence[Path]]]
) -> Iterator[Read[Key]]:
    """The batches with a view of each photo, or the error of an unreadable one.

    Threads read the photos of the next few batches, since decoding and resizing release the GIL.
    A batch is paths with any key, which is returned.
    """
    batches = iter(batches)
    readers = ThreadPoolExecutor()
    waiting: deque[tuple[Key, Sequence[Path], list[Future[View]]]] = deque()
    try:
        while True:
            for key, paths in islice(batches, AHEAD + 1 - len(waiting)):
                waiting.append((key, paths, [readers.submit(captioner.view, p) for p in paths]))
            if not waiting:
                return
            key, paths, futures = waiting.popleft()
            views: list[View | InputError] = []
            for future in futures:
                try:
                    views.append(future.result())
                except InputError as error:
                    views.append(error)
            yield key, paths, views
    finally:
        readers.shutdown(cancel_futures=True)


def found_captions(
    captioner: Captioner,
    views: Sequence[View | InputError],
    search: Search | None = None,
    runners_up: int = 0,
    maps: Sequence[str] = (),
    most: int | None = None,
) -> list[list[Caption] | InputError]:
    """The captions of each readable photo, at most so many, and the error of each other photo."""
    good = [view for view in views if isinstance(view, View)]
    found = iter(captioner.candidates(good, search, runners_up, maps, most))
    return [view if isinstance(view, InputError) else next(found) for view in views]


def candidates(
    captioner: Captioner,
    photos: Sequence[Path],
    search: Search | None = None,
    batch_size: int = 16,
    progress: bool = True,
    runners_up: int = 0,
    maps: Sequence[str] = (),
    most: int | None = None,
) -> Iterator[tuple[Path, list[Caption] | InputError]]:
    """Each photo with its captions, the best first, or with its error, in order.

    On a CPU several batches are captioned at once; see `in_threads`.

    Args:
        captioner: the model.
        photos: paths.
        search: how words are chosen; defaults to the captioner's search.
        batch_size: the most photos per batch.
        progress: report progress on stderr.
        runners_up: number of alternatives to report for each word.
        maps: the maps of each word, the first to be shown; see `Captioner.candidates`.
        most: number of captions per photo; None for all.
    """
    batches = enumerate(cut(photos, even_size(len(photos), batch_size, captioner.device)))
    shown = progress and len(photos) > 1

    def captioned(batch: Read[int]) -> list[tuple[Path, list[Caption] | InputError]]:
        _, paths, views = batch
        found = found_captions(captioner, views, search, runners_up, maps, most)
        return list(zip(paths, found, strict=True))

    in_turn = (search or captioner.search).draws
    read = read_ahead(captioner, batches)
    with ProgressBar("captioning", "photos", total=len(photos), shown=shown) as bar:
        for found in in_threads(captioned, read, captioner.device, in_turn):
            yield from found
            bar.update(len(found))


def json_line(photo: Path, caption: Caption | InputError, text: str | None = None) -> str:
    """A photo with its caption or its error, as one line of JSON.

    Args:
        photo: the path.
        caption: or why there is none.
        text: the caption as it is written, unless it is the words.
    """
    if isinstance(caption, InputError):
        return printable_json({"image": str(photo), "error": str(caption)})
    entry = caption.as_json()
    return printable_json({"image": str(photo), **entry, "caption": text or entry["caption"]})


class Line(NamedTuple):
    """A photo's line of JSON, and why it has no caption, if so."""

    text: str
    error: str | None


def captioned_batches(
    captioner: Captioner, search: Search, photos: Sequence[Path], batch_size: int
) -> Iterator[list[Line]]:
    """The line of each photo with its best caption or its error, in order, batch by batch."""

    def lines(batch: Read[int]) -> list[Line]:
        _, paths, views = batch
        found = found_captions(captioner, views, search, most=1)
        return [
            Line(json_line(path, each), str(each))
            if isinstance(each, InputError)
            else Line(json_line(path, each[0]), None)
            for path, each in zip(paths, found, strict=True)
        ]

    batches = enumerate(cut(photos, batch_size))
    read = read_ahead(captioner, batches)
    yield from in_threads(lines, read, captioner.device, search.draws)

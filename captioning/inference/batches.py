"""Captions batches of photos, of which some may be unreadable, and reads the next ones ahead."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.data.preprocessing import View
from captioning.errors import InputError
from captioning.progress_bar import ProgressBar
from captioning.search.search import Search
from captioning.terminal import printable_json

AHEAD = 2
"""Batches that are read while one is captioned."""

Key = TypeVar("Key")
Item = TypeVar("Item")


def cut(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`; the last list holds the rest."""
    items = iter(items)
    while part := list(islice(items, size)):
        yield part


def seed_batch(seed: int, number: int) -> None:
    """Seed the search of a batch, so that its captions do not depend on the process.

    Args:
        seed: of the run.
        number: identifies the batch.
    """
    torch.manual_seed(seed * 1_000_003 + number)


def read_ahead(
    captioner: Captioner, batches: Iterable[tuple[Key, Sequence[Path]]]
) -> Iterator[tuple[Key, Sequence[Path], list[View | InputError]]]:
    """The batches with a view of each photo, or the error of an unreadable one.

    Only a few batches are in memory at a time. Threads read the photos, since decoding and resizing
    release the GIL and threads, unlike processes, need not copy the pixels.

    Args:
        captioner: makes the views.
        batches: lists of paths, each with any key, which is returned.
    """
    readers = ThreadPoolExecutor()
    waiting: deque[tuple[Key, Sequence[Path], list[Future[View | InputError]]]] = deque()
    try:
        for key, paths in batches:
            views = [readers.submit(_view, captioner, path) for path in paths]
            waiting.append((key, paths, views))
            if len(waiting) > AHEAD:
                key, paths, views = waiting.popleft()
                yield key, paths, [view.result() for view in views]
        for key, paths, views in waiting:
            yield key, paths, [view.result() for view in views]
    finally:
        readers.shutdown(cancel_futures=True)


def found_captions(
    captioner: Captioner,
    views: Sequence[View | InputError],
    search: Search | None = None,
    runners_up: int = 0,
    maps: Sequence[str] = (),
) -> list[list[Caption] | InputError]:
    """All captions of each readable photo, and the error of each unreadable one."""
    good = [view for view in views if isinstance(view, View)]
    found = iter(captioner.candidates(good, search, runners_up, maps))
    return [view if isinstance(view, InputError) else next(found) for view in views]


def best_captions(
    captioner: Captioner, views: Sequence[View | InputError], search: Search | None = None
) -> list[Caption | InputError]:
    """The best caption of each readable photo, and the error of each unreadable one."""
    found = found_captions(captioner, views, search)
    return [each if isinstance(each, InputError) else each[0] for each in found]


def candidates(
    captioner: Captioner,
    photos: Sequence[Path],
    search: Search | None = None,
    batch_size: int = 16,
    progress: bool = True,
    runners_up: int = 0,
    maps: Sequence[str] = (),
) -> Iterator[tuple[Path, list[Caption] | InputError]]:
    """Each photo with its captions, the best first, or with its error, in order.

    Args:
        captioner: the model.
        photos: paths.
        search: how words are chosen; defaults to the captioner's search.
        batch_size: photos per batch.
        progress: report progress on stderr.
        runners_up: number of alternatives to report for each word.
        maps: the maps of each word, the first to be shown; see `Captioner.candidates`.
    """
    bar = ProgressBar("captioning", "photos", total=len(photos), shown=progress and len(photos) > 1)
    with bar:
        for _, paths, views in read_ahead(captioner, enumerate(cut(photos, batch_size))):
            found = found_captions(captioner, views, search, runners_up, maps)
            yield from zip(paths, found, strict=True)
            bar.update(len(paths))


def captioned(
    captioner: Captioner,
    photos: Sequence[Path],
    search: Search | None = None,
    batch_size: int = 16,
    progress: bool = True,
) -> Iterator[tuple[Path, Caption | InputError]]:
    """Each photo with its best caption, or with its error; see `candidates`."""
    for photo, found in candidates(captioner, photos, search, batch_size, progress):
        yield photo, found if isinstance(found, InputError) else found[0]


def json_line(photo: Path, caption: Caption | InputError) -> str:
    """A photo with its caption or its error, as one line of JSON."""
    entry = {"error": str(caption)} if isinstance(caption, InputError) else caption.as_json()
    return printable_json({"image": str(photo), **entry})


def _view(captioner: Captioner, path: Path) -> View | InputError:
    try:
        return captioner.view(path)
    except InputError as error:
        return error

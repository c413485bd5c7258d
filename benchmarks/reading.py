"""How fast JPEG files become images of the CNN's size."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from torch import Tensor

from benchmarks.measure import Contender, interleaved
from benchmarks.rows import Row, rate_rows
from benchmarks.setting import Setting
from benchmarks.textbook_photos import read_photo
from captioning.data.preprocessing import Preprocessing, View

OURS, TEXTBOOK = Contender("ours"), Contender("textbook")


def reading_rows(setting: Setting) -> Iterator[Row]:
    """Photos per second, for every size of image; the files are in the system's cache."""
    for size in setting.networks:
        tasks: dict[Contender, Callable[[], object]] = {
            TEXTBOOK: partial(_one_by_one, setting.photos, size.pixels),
            OURS: partial(_by_threads, setting.photos, size.pixels),
        }
        yield from rate_rows(
            "JPEG reading",
            f"to {size.pixels} x {size.pixels}",
            "photos/s",
            interleaved(tasks, setting.rounds, setting.device),
            len(setting.photos),
        )


def _one_by_one(photos: Sequence[Path], side: int) -> list[Tensor]:
    return [read_photo(photo, side) for photo in photos]


def _by_threads(photos: Sequence[Path], side: int) -> list[View]:
    """As `captioning caption` reads them."""
    with ThreadPoolExecutor() as readers:
        return list(readers.map(Preprocessing(side), photos))

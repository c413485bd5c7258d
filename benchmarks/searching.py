"""How fast captions are found from annotation vectors."""

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import ours, sizes
from benchmarks.agreement import check_search
from benchmarks.endings import ending_decoder
from benchmarks.measure import TEXTBOOK, Contender, interleaved
from benchmarks.setting import Setting
from benchmarks.table import Row, blank_rows, rate_rows
from benchmarks.textbook import textbook_of
from benchmarks.textbook_search import photo_by_photo
from benchmarks.work import search_work, word_counts
from captioning.allocation import keep_freed_memory
from captioning.kernels.packing import packed_weights
from captioning.search import BeamSearch, Greedy, Search

BEAMS = 5


def greedy_rows(setting: Setting) -> Iterator[Row]:
    """Photos per second of greedy captioning; the textbook's is a beam search of width one."""
    return _rows(setting, "greedy captioning", Greedy(), 1)


def beam_rows(setting: Setting) -> Iterator[Row]:
    """Photos per second of a beam search of width five."""
    return _rows(setting, f"beam-{BEAMS} captioning", BeamSearch(BEAMS), BEAMS)


def _rows(setting: Setting, name: str, search: Search, width: int) -> Iterator[Row]:
    """Photos per second at every size.

    Raises:
        DisagreementError: the textbook does not find our captions.
    """
    keep_freed_memory()  # as the command line does; the textbook's gain from it too
    for size in setting.sizes:
        vectors = sizes.annotations(size).to(setting.device)
        decoder = ending_decoder(size, vectors)
        check_search(decoder, vectors, search, width, f"{name} at {size}")
        tasks: dict[Contender, Callable[[], object]] = {
            TEXTBOOK: partial(photo_by_photo, textbook_of(decoder), vectors, width)
        }
        for contender in setting.contenders[1:]:
            tasks[contender] = partial(ours.searched, decoder, vectors, search, contender.precision)
        lengths = word_counts(ours.searched(decoder, vectors, search).tokens)
        works = {contender: search_work(size, lengths, contender.precision) for contender in tasks}
        with packed_weights(decoder):  # as for the batches of an evaluation and of bulk captioning
            seconds = interleaved(tasks, setting.rounds, setting.device)
        yield from rate_rows(
            name,
            str(size),
            "photos/s",
            seconds,
            size.photos,
            setting.machine,
            works,
        )
        yield from blank_rows(name, str(size), "photos/s", setting.blank)

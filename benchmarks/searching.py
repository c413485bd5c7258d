"""How fast captions are found from annotation vectors.

Shapes: B photos, L regions, D annotation width.
"""

from collections.abc import Callable, Iterator
from functools import partial

from jaxtyping import Float
from torch import Tensor

from benchmarks import ours, peer_search, sizes
from benchmarks.agreement import check_search
from benchmarks.endings import ending_decoder
from benchmarks.measure import OURS, PEER, Contender, interleaved
from benchmarks.peer import PeerDecoder
from benchmarks.rows import Row, blank_rows, rate_rows
from benchmarks.setting import Setting
from benchmarks.textbook import TextbookDecoder
from benchmarks.textbook_search import photo_by_photo
from benchmarks.work import search_work, word_counts
from captioning.kernels.packing import packed_weights
from captioning.models import LSTMDecoder
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
        DisagreementError: another does not find our captions.
    """
    for size in setting.sizes:
        vectors = sizes.annotations(size).to(setting.device)
        decoder = ending_decoder(size, vectors)
        check_search(decoder, vectors, search, width, f"{name} at {size}")
        tasks = {
            contender: _task(contender, decoder, vectors, search, width)
            for contender in setting.contenders
        }
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


def _task(
    contender: Contender,
    decoder: LSTMDecoder,
    annotations: Float[Tensor, "B L D"],
    search: Search,
    width: int,
) -> Callable[[], object]:
    """One search of a contender, to be called as often as one likes."""
    if contender in OURS:
        return partial(ours.searched, decoder, annotations, search, contender.precision)
    if contender in PEER:
        its = PeerDecoder.of(decoder)
        return partial(_peer_searched, its, annotations, width, contender.precision)
    return partial(photo_by_photo, TextbookDecoder.of(decoder), annotations, width)


def _peer_searched(
    decoder: PeerDecoder, annotations: Float[Tensor, "B L D"], width: int, precision: str
) -> peer_search.Found:
    with ours.autocast(annotations.device, precision):
        return peer_search.searched(decoder, annotations, width)

"""What the transformer's cache is worth, and how its search compares with the LSTM's.

Shapes: B photos, N captions per photo, L regions, D annotation width, T words.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from benchmarks import ours, sizes
from benchmarks.agreement import DisagreementError
from benchmarks.measure import OURS, Contender, interleaved
from benchmarks.rows import Row, cost_rows, rate_rows
from benchmarks.searching import BEAMS
from benchmarks.setting import Setting
from benchmarks.sizes import MEAN_WORDS, Size
from captioning.data.vocabulary import BOS, SPECIAL
from captioning.models import TransformerDecoder
from captioning.models.decoder import Memory, State, Step
from captioning.search import BeamSearch

LAYERS, HEADS = 6, 8
"""Those of the published recipes."""

EARLY, LATE = 5, 50
"""The words whose steps are compared."""

STEPS = 4
"""Times that a step is made in a round: one alone is too short to measure."""

OUR = OURS[0]
LSTM, UNCACHED = Contender("the LSTM", "fp32"), Contender("itself without a cache", "fp32")
AT_EARLY = Contender(f"word {EARLY}", "fp32")


class UncachedTransformer(TransformerDecoder):
    """The same model that reads all words so far again before every word; its state is these."""

    def start(self, memory: Memory, n: int) -> State:
        """No words."""
        device = memory.annotations.device
        return {"tokens": torch.empty(memory.images, n, 0, dtype=torch.long, device=device)}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read all words of every caption, and score what follows the last one alone."""
        tokens = torch.cat([state["tokens"], tokens[:, :, None]], dim=2)
        empty = super().start(memory, tokens.shape[1])
        words, weights, _ = self._read(tokens, empty, memory)
        return Step(self.output(words[:, :, -1]), weights[:, :, -1], {"tokens": tokens})


def transformer(
    size: Size, device: torch.device, kind: type[TransformerDecoder] = TransformerDecoder
) -> TransformerDecoder:
    """A decoder of random parameters at the width of the size's LSTM; the same ones every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        width = size.hidden_dim
        made = kind(size.annotation_dim, size.vocab_size, width, LAYERS, HEADS, 4 * width)
    return made.to(device).eval()


def transformer_beam_rows(setting: Setting) -> Iterator[Row]:
    """Photos per second of a beam search, with a cache and without, and the LSTM's.

    All captions have the same number of words, so that all contenders make as many steps.

    Raises:
        DisagreementError: other captions are found without the cache.
    """
    words = round(MEAN_WORDS)
    search = BeamSearch(BEAMS, min_length=words, max_length=words)
    for size in setting.networks:
        vectors = sizes.annotations(size).to(setting.device)
        cached, uncached = (
            transformer(size, setting.device, kind)
            for kind in (TransformerDecoder, UncachedTransformer)
        )
        found, others = (ours.searched(d, vectors, search).scores for d in (cached, uncached))
        if not found.allclose(others, rtol=1e-3, atol=1e-3):
            raise DisagreementError(f"transformer at {size}: other captions without the cache")
        lstm = sizes.random_decoder(size).to(setting.device).eval()
        tasks = {
            contender: partial(ours.searched, decoder, vectors, search)
            for contender, decoder in ((UNCACHED, uncached), (LSTM, lstm), (OUR, cached))
        }
        seconds = interleaved(tasks, setting.rounds, setting.device)
        for other in (UNCACHED, LSTM):
            yield from rate_rows(
                f"transformer's beam-{BEAMS} of {words} words beside {other.name}",
                str(size),
                "photos/s",
                {each: seconds[each] for each in (other, OUR)},
                size.photos,
            )


def transformer_step_rows(setting: Setting) -> Iterator[Row]:
    """Milliseconds of a late step of a beam search, beside an early one."""
    for size in setting.networks:
        decoder = transformer(size, setting.device)
        tasks = {
            contender: _steps(decoder, size, setting.device, word)
            for contender, word in ((AT_EARLY, EARLY), (OUR, LATE))
        }
        seconds = interleaved(tasks, setting.rounds, setting.device)
        yield from cost_rows(
            f"transformer's step at word {LATE}",
            str(size),
            "ms",
            {each: [1000 * s / STEPS for s in found] for each, found in seconds.items()},
        )


@torch.no_grad()
def _steps(
    decoder: TransformerDecoder, size: Size, device: torch.device, word: int
) -> Callable[[], object]:
    """The step that reads this word, counted from 1, of as many captions as a search follows."""
    memory = decoder.remember(sizes.annotations(size).to(device))
    state = decoder.start(memory, BEAMS)
    tokens = torch.full((size.photos, BEAMS), BOS, device=device)
    for _ in range(word - 1):
        state = decoder.step(tokens, state, memory).state
        tokens = torch.full_like(tokens, len(SPECIAL))

    @torch.no_grad()
    def steps() -> None:
        for _ in range(STEPS):
            decoder.step(tokens, state, memory)

    return steps

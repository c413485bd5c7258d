"""How fast a training step is: forward, backward and optimizer from annotation vectors."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks import ours, peer, sizes, textbook
from benchmarks.agreement import check_loss
from benchmarks.measure import OURS, PEER, Contender, interleaved
from benchmarks.rows import Row, blank_rows, rate_rows
from benchmarks.setting import Setting
from benchmarks.sizes import Size
from benchmarks.work import training_work, word_counts


def training_rows(setting: Setting) -> Iterator[Row]:
    """Captions per second at every size.

    Raises:
        DisagreementError: another's loss or gradients are not ours.
    """
    for size in setting.sizes:
        check_loss(size, setting.device)
        tasks = {
            contender: step(size, contender, setting.device) for contender in setting.contenders
        }
        lengths = word_counts(sizes.tokens(size))
        works = {
            contender: training_work(size, lengths, contender.precision) for contender in tasks
        }
        yield from rate_rows(
            "training step",
            str(size),
            "captions/s",
            interleaved(tasks, setting.rounds, setting.device),
            size.photos * size.captions,
            setting.machine,
            works,
        )
        yield from blank_rows("training step", str(size), "captions/s", setting.blank)


def step(size: Size, contender: Contender, device: torch.device) -> Callable[[], None]:
    """One training step of a contender, to be called as often as one likes.

    The textbook gets its copies of the annotation vectors ready-made.
    """
    vectors, captions = sizes.annotations(size).to(device), sizes.tokens(size).to(device)
    decoder = sizes.random_decoder(size).to(device)
    if contender in OURS:
        optimizer = torch.optim.AdamW(decoder.parameters(), fused=True)  # as CaptioningModule's
        return partial(
            ours.training_step, decoder, vectors, captions, optimizer, contender.precision
        )
    if contender in PEER:
        its = peer.PeerDecoder.of(decoder)
        return partial(
            peer.training_step,
            its,
            vectors,
            captions,
            torch.optim.AdamW(its.parameters()),
            ours.autocast(device, contender.precision),
        )
    other = textbook.TextbookDecoder.of(decoder)
    return partial(
        textbook.training_step,
        other,
        textbook.copies(vectors, size.captions),
        captions.flatten(0, 1),
        torch.optim.AdamW(other.parameters()),
    )

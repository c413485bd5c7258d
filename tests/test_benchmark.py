import dataclasses
import time

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import sizes
from benchmarks.agreement import (
    DisagreementError,
    check_exactly,
    check_loss,
    check_search,
    compare,
)
from benchmarks.endings import ending_decoder
from benchmarks.machine import measured_machine
from benchmarks.measure import PEER, TEXTBOOK, Contender, interleaved
from benchmarks.memory import CLEAR, peak_of_a_process
from benchmarks.ours import searched
from benchmarks.peer import PeerDecoder, Prepared, State
from benchmarks.peer_search import beam_search
from benchmarks.rivals import RIVALS, Rival
from benchmarks.setting import Setting
from benchmarks.sizes import Size
from benchmarks.textbook import TextbookDecoder
from benchmarks.work import search_work, training_work, word_counts
from captioning.data.vocabulary import PAD
from captioning.kernels import accelerated
from captioning.kernels.active_rows import MULTIPLE
from captioning.search import BeamSearch, Greedy

CPU = torch.device("cpu")
SIZE = sizes.RAW_QUICK


def test_textbook_and_peer_compute_what_we_compute() -> None:
    check_exactly(CPU)  # raises otherwise: loss, all gradients, captions and scores


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_another_that_searches_otherwise_is_refused(rival: Rival) -> None:
    vectors = sizes.annotations(SIZE).double()
    decoder = ending_decoder(SIZE, vectors)
    other_search = BeamSearch(3, length_penalty=0.0)
    with pytest.raises(DisagreementError, match=f"{rival.name}.* of beam search"):
        check_search(decoder, vectors, other_search, 3, "beam search", [rival])


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_another_that_learns_otherwise_is_refused(rival: Rival) -> None:
    def more_every_time(decoder: nn.Module, vectors: Tensor, tokens: Tensor) -> Tensor:
        loss = rival.loss(decoder, vectors, tokens)
        return loss + 1e-3 * (loss - loss.detach())  # the same loss, other gradients

    other = dataclasses.replace(rival, loss=more_every_time)
    with pytest.raises(DisagreementError, match=f"{rival.name}'s gradient of"):
        check_loss(SIZE, CPU, torch.float64, [other])


def test_the_peer_projects_keys_once_and_searches_all_photos_at_once() -> None:
    class Counting(PeerDecoder):
        prepared, stepped = 0, 0

        def prepare(self, annotations: Float[Tensor, "B L D"]) -> Prepared:
            self.prepared += 1
            return super().prepare(annotations)

        def step(
            self, words: Int[Tensor, "C"], prepared: Prepared, state: State
        ) -> tuple[Float[Tensor, "C V"], Float[Tensor, "C L"], State]:
            self.stepped += 1
            return super().step(words, prepared, state)

    vectors = sizes.annotations(SIZE)
    decoder = Counting.of(ending_decoder(SIZE, vectors))
    found = beam_search(decoder, vectors, 3)
    assert decoder.prepared == 1
    assert decoder.stepped == found.tokens.shape[2]


def test_what_is_not_a_number_agrees_with_nothing() -> None:
    with pytest.raises(DisagreementError, match="the loss"):
        compare("the loss", torch.tensor([1.0]), torch.tensor([float("nan")]))


def test_captions_are_as_long_as_on_coco() -> None:
    size = dataclasses.replace(SIZE, photos=200, captions=5)
    words = (word_counts(sizes.tokens(size)) - 1).double()  # without the end mark
    assert words.mean().item() == pytest.approx(11.5, abs=0.3)
    assert words.std().item() == pytest.approx(2.5, abs=0.3)
    assert words.min() >= 7
    assert words.max() <= 25


def test_captions_of_the_searches_end_about_when_those_of_people_do() -> None:
    size = dataclasses.replace(SIZE, hidden_dim=64, photos=16, vocab_size=500)
    vectors = sizes.annotations(size)
    decoder = ending_decoder(size, vectors)
    found = searched(decoder, vectors, Greedy()).tokens[:, 0]
    lengths = (found != PAD).sum(dim=1).double()  # with the end mark
    assert lengths.mean().item() == pytest.approx(12.5, abs=1)
    assert 0.5 < lengths.std() < 4


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("size", sizes.QUICK, ids=str)
def test_the_needed_arithmetic_is_what_pytorch_counts_for_one_word(
    size: Size, training: bool
) -> None:
    # With one caption of one word per photo the textbook projects the keys once, too.
    size = dataclasses.replace(size, captions=1)
    decoder = TextbookDecoder.of(sizes.random_decoder(size))
    tokens = torch.full((size.photos, 1), 5)
    lengths = torch.ones(size.photos, 1, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        logits, _ = decoder(sizes.annotations(size), tokens, lengths[:, 0])
        if training:
            logits.sum().backward()
    work = (training_work if training else search_work)(size, lengths, "fp32")
    # The textbook multiplies annotation vectors by their weights number by number, uncounted.
    contexts = 2 * size.photos * size.regions * size.width
    backward = training * (2 if size.projection_dim else 1)  # gradients of both factors, or of one
    assert counter.get_total_flops() == work.operations - (1 + backward) * contexts


@pytest.mark.parametrize("size", sizes.QUICK, ids=str)
def test_of_fewer_regions_than_words_what_is_linear_in_contexts_is_needed_once(size: Size) -> None:
    size = dataclasses.replace(size, captions=MULTIPLE)
    decoder = sizes.random_decoder(size).double().eval()
    lengths = torch.full((size.photos, MULTIPLE), 12)
    assert size.photos * size.regions < lengths.sum()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        accelerated(decoder)(sizes.annotations(size).double(), torch.full((*lengths.shape, 12), 5))
    energies = 2 * size.regions * size.hidden_dim * int(lengths.sum())  # by vectors, uncounted
    work = search_work(size, lengths, "fp32")
    assert counter.get_total_flops() == work.operations - energies


def test_contenders_take_turns_whose_second_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    tasks = {Contender(name): (lambda name=name: turns.append(name)) for name in "ab"}

    def clock() -> float:
        turns.append(".")
        return 0.0

    monkeypatch.setattr(time, "perf_counter", clock)
    seconds = interleaved(tasks, rounds=2, device=CPU)
    assert "".join(turns) == "ab." + "a.a.b.b." * 2  # the first round does not count
    assert [len(values) for values in seconds.values()] == [2, 2]


def test_a_product_that_this_processor_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lacking)
    assert set(measured_machine(CPU, side=8, copied=64).products["fp32"]) == {"torch.mm"}


def test_a_product_that_this_pytorch_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", object())  # an operator of a private name may go
    assert set(measured_machine(CPU, side=8, copied=64).products["fp32"]) == {"torch.mm"}


@pytest.mark.skipif(not CLEAR.exists(), reason="a process's peak is known on Linux only")
@pytest.mark.parametrize("contender", [TEXTBOOK, PEER[0]], ids=str)
def test_the_peak_of_a_training_step_holds_gradients_and_moments(contender: Contender) -> None:
    size = dataclasses.replace(SIZE, hidden_dim=256, vocab_size=20_000)
    parameters = sum(part.numel() for part in sizes.random_decoder(size).parameters())
    peak = peak_of_a_process(size, contender, CPU)
    assert 3 * 4 * parameters <= peak <= 6 * 4 * parameters  # of four bytes each


def test_captions_are_scored_without_java_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.scoring import scoring_rows

    monkeypatch.setenv("PATH", "")
    machine = measured_machine(CPU, side=8, copied=64)
    rows = list(scoring_rows(Setting([SIZE], CPU, 1, machine, photos=[], captions=10)))
    ours = [row.name for row in rows if row.implementation == "ours"]
    assert ours == ["BLEU, ROUGE-L and CIDEr of words", "BLEU, ROUGE-L and CIDEr of captions"]
    assert {row.name for row in rows if row.implementation != "ours"} <= {ours[0]}

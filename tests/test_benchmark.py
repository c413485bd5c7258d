import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import sizes, textbook
from benchmarks.agreement import DisagreementError, check_exactly, check_search, compare
from benchmarks.endings import ending_decoder
from benchmarks.machine import Machine, measured_machine
from benchmarks.measure import OURS, TEXTBOOK, Contender, interleaved
from benchmarks.memory import CLEAR, peak_of_a_process
from benchmarks.ours import searched
from benchmarks.setting import Setting
from benchmarks.table import cost_rows, markdown, rate_rows
from benchmarks.training import training_rows
from benchmarks.work import search_work, training_work, word_counts
from captioning.data.vocabulary import PAD
from captioning.kernels import accelerated
from captioning.kernels.active_rows import MULTIPLE
from captioning.search import BeamSearch, Greedy

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
[SIZE] = sizes.QUICK


def test_the_textbook_computes_what_we_compute() -> None:
    check_exactly(CPU)  # raises otherwise: loss, all gradients, captions and scores


def test_a_textbook_that_searches_otherwise_is_refused() -> None:
    vectors = sizes.annotations(SIZE).double()
    decoder = ending_decoder(SIZE, vectors)
    with pytest.raises(DisagreementError, match="beam search"):
        check_search(decoder, vectors, BeamSearch(3, length_penalty=0.0), 3, "beam search")


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
def test_the_needed_arithmetic_is_what_pytorch_counts_for_one_word(training: bool) -> None:
    # With one caption of one word per photo the textbook projects the keys once, too.
    size = dataclasses.replace(SIZE, captions=1)
    decoder = textbook.textbook_of(sizes.random_decoder(size))
    tokens = torch.full((size.photos, 1), 5)
    lengths = torch.ones(size.photos, 1, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        logits, _ = decoder(sizes.annotations(size), tokens, lengths[:, 0])
        if training:
            logits.sum().backward()
    work = (training_work if training else search_work)(size, lengths, "fp32")
    # The textbook multiplies annotation vectors by their weights number by number, uncounted.
    contexts = 2 * size.photos * size.regions * size.annotation_dim
    assert counter.get_total_flops() == work.operations - (1 + training) * contexts


def test_of_fewer_regions_than_words_what_is_linear_in_contexts_is_needed_once() -> None:
    size = dataclasses.replace(SIZE, captions=MULTIPLE)
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


def test_a_ratio_above_one_is_better_for_rates_and_for_costs() -> None:
    seconds = {TEXTBOOK: [1.0, 2.0, 4.0], OURS[0]: [0.5, 0.25, 1.0]}
    [_, rate] = rate_rows("step", "", "captions/s", seconds, 10)
    [_, cost] = cost_rows("step", "", "s", seconds)
    assert (rate.figure.median, rate.figure.least, rate.figure.most) == (20, 10, 40)
    assert rate.ratio == cost.ratio == 4
    assert "| 20.0 captions/s | 10.0 to 40.0 | 4.00  |" in markdown([rate])


def test_a_precision_that_the_machine_lacks_is_a_blank_row() -> None:
    products = {"fp32": {"torch.mm": 1e9}, "bf16": {}}
    machine = Machine("a processor", 1, "2.0", "3.11", "today", products, copy=1e9)
    setting = Setting([SIZE], CPU, 1, machine, photos=[], captions=10)
    rows = [row for row in training_rows(setting) if row.contender == "ours, bf16"]
    assert [row.figure for row in rows] == [None]
    assert markdown(rows).splitlines()[-1].replace(" ", "").endswith("|ours,bf16||||||")


def test_a_product_that_this_processor_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lacking)
    assert set(measured_machine(CPU, side=8, copied=64).products["fp32"]) == {"torch.mm"}


@pytest.mark.skipif(not CLEAR.exists(), reason="a process's peak is known on Linux only")
def test_the_peak_of_a_training_step_holds_gradients_and_moments() -> None:
    size = dataclasses.replace(SIZE, hidden_dim=256, vocab_size=20_000)
    parameters = sum(part.numel() for part in sizes.random_decoder(size).parameters())
    peak = peak_of_a_process(size, TEXTBOOK, CPU)
    assert 3 * 4 * parameters <= peak <= 6 * 4 * parameters  # of four bytes each


@pytest.mark.parametrize(
    ("rows", "processor"),
    [
        ("training,greedy,beam,end-to-end,encoding,reading", {}),
        ("training,beam", {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}),
    ],
    ids=["as it is", "with AVX2 only"],
)
def test_the_script_prints_a_table_and_writes_the_same_as_json(
    rows: str, processor: dict[str, str], tmp_path: Path
) -> None:
    options = ["--quick", "--rounds", "1", "--rows", rows, "--json", str(tmp_path / "figures.json")]
    finished = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "benchmark.py"), *options],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | processor,
    )
    written = json.loads((tmp_path / "figures.json").read_text())
    names = {row["name"] for row in written["rows"]}
    assert len(names) == len(rows.split(","))
    assert all(f"| {name} " in finished.stdout for name in names)
    assert {"processor", "threads", "torch", "date", "copy"} <= written["machine"].keys()


def test_captions_are_scored_without_java_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.scoring import scoring_rows

    monkeypatch.setenv("PATH", "")
    machine = measured_machine(CPU, side=8, copied=64)
    rows = list(scoring_rows(Setting([SIZE], CPU, 1, machine, photos=[], captions=10)))
    ours = [row.name for row in rows if row.contender == "ours"]
    assert ours == ["BLEU, ROUGE-L and CIDEr of words", "BLEU, ROUGE-L and CIDEr of captions"]
    assert {row.name for row in rows if row.contender != "ours"} <= {ours[0]}


def test_an_unknown_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.program import main

    with pytest.raises(SystemExit):
        main(["--rows", "training,speed"])
    assert "no row 'speed'" in capsys.readouterr().err

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import sizes
from benchmarks.machine import Machine
from benchmarks.measure import OURS, PEER, TEXTBOOK, Contender
from benchmarks.results import (
    BEGIN,
    END,
    NONE,
    RESULTS,
    ROOT,
    Run,
    read_run,
    section,
    sections,
    with_tables,
    write_run,
)
from benchmarks.rows import Row, blank_rows, cost_rows, rate_rows
from benchmarks.setting import Setting
from benchmarks.tables import tables
from benchmarks.training import training_rows
from captioning.errors import InputError

CPU = torch.device("cpu")
PRODUCTS = {"fp32": {"torch.mm": 1e9}, "bf16": {}}
MACHINE = Machine("a processor", 1, "2.0", "3.11", "today", PRODUCTS, copy=1e9)
SECONDS = {
    TEXTBOOK: [8.0, 12.0, 10.0],
    PEER[0]: [5.0, 4.0, 6.0],
    OURS[0]: [2.0, 2.0, 1.0],
    PEER[1]: [3.0, 2.0, 4.0],
    OURS[1]: [0.5, 1.0, 1.0],
}


def a_run(rows: Sequence[Row]) -> Run:
    return Run(MACHINE, 0.5, "c0ffee", False, "scripts/benchmark.py --threads 1", rows)


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def test_a_ratio_above_one_is_better_for_rates_and_for_costs() -> None:
    seconds = {TEXTBOOK: [1.0, 2.0, 4.0], OURS[0]: [0.5, 0.25, 1.0]}
    [_, rate] = rate_rows("step", "", "captions/s", seconds, 10)
    [_, cost] = cost_rows("step", "", "s", seconds)
    assert rate.figure is not None
    assert (rate.figure.median, rate.figure.least, rate.figure.most) == (20, 10, 40)
    assert rate.times == cost.times == {"textbook": 4}
    assert "20.0 (10.0 to 40.0)" in tables([rate])


def test_a_cost_too_small_to_be_measured_has_no_ratio() -> None:
    [_, cost] = cost_rows("peak", "", "MB", {TEXTBOOK: [1.5], OURS[0]: [0.0]})
    assert cost.times == {}
    assert "0.00" in tables([cost])


def test_ours_is_compared_with_others_of_the_same_precision_only() -> None:
    rows = list(rate_rows("step", "", "captions/s", SECONDS, 10))
    times = {Contender(row.implementation, row.precision): row.times for row in rows}
    assert times == {
        TEXTBOOK: {},
        PEER[0]: {},
        OURS[0]: {"textbook": 5.0, "peer": 2.5},
        PEER[1]: {},
        OURS[1]: {"peer": 3.0},
    }


def test_a_line_has_both_precisions_and_the_spread_stands_below() -> None:
    rows = list(rate_rows("step", "L = 4", "captions/s", SECONDS, 12))
    compared, spreads = tables(rows).split("\n\n")
    assert cells(compared)[2] == [
        *("step, captions/s", "L = 4", "1.20", "2.40", "6.00", "2.50", "5.00"),
        *("4.00", "12.0", "3.00"),
    ]
    assert cells(spreads)[2][2:7] == [
        "1.00 to 1.50",
        "2.00 to 3.00",
        "6.00 to 12.0",
        "",
        "3.00 to 6.00",
    ]


def test_what_has_no_peer_stands_in_a_table_of_its_own() -> None:
    alone = {Contender("ours"): [0.5]}
    both = {Contender("textbook"): [2.0, 3.0], Contender("ours"): [1.0, 1.0]}
    rows = [*rate_rows("one", "", "photos/s", both, 6), *rate_rows("two", "", "photos/s", alone, 2)]
    _, _, first, second = cells(tables(rows))
    assert first[2:] == ["textbook", "2.50 (2.00 to 3.00)", "6.00 (6.00 to 6.00)", "2.40"]
    assert second[2:] == ["", "", "4.00 (one round)", ""]


def test_a_precision_that_the_machine_lacks_is_blank() -> None:
    setting = Setting([sizes.RAW_QUICK], CPU, 1, MACHINE, photos=[], captions=10)
    rows = list(training_rows(setting))
    blank = [row.implementation for row in rows if row.precision == "bf16" and row.figure is None]
    assert blank == ["peer", "ours"]
    compared, _ = tables(rows).split("\n\n")
    assert cells(compared)[2][-3:] == ["", "", ""]


def test_a_section_tells_machine_commit_and_command() -> None:
    told = section(a_run([]))
    assert told.startswith("### a processor, 1 thread\n\nCommit c0ffee, today, PyTorch 2.0,")
    assert "load before it 0.5" in told
    assert "in fp32 1 by torch.mm; in bf16 emulated here" in told
    assert "```bash\nscripts/benchmark.py --threads 1\n```" in told


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [*rate_rows("step", "", "captions/s", SECONDS, 12), *blank_rows("step", "", "s", PEER)]
    run = a_run(rows)
    write_run(tmp_path / "run.json", run)
    assert read_run(tmp_path / "run.json") == run


@pytest.mark.parametrize("text", ["[]", "{}", '{"rows": [{"figure": 3}]}'])
def test_a_file_without_a_run_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"other\.json: no run of the benchmark"):
        read_run(path)


def test_a_page_gets_the_tables_of_all_runs_between_its_markers(tmp_path: Path) -> None:
    page = f"before\n\n{BEGIN}\nan earlier table\n{END}\n\nafter\n"
    assert with_tables(page, tmp_path) == f"before\n\n{BEGIN}\n\n{NONE}\n\n{END}\n\nafter\n"
    rows = list(rate_rows("step", "L = 4", "captions/s", SECONDS, 12))
    write_run(tmp_path / "b.json", a_run(rows))
    write_run(tmp_path / "a.json", replace(a_run(rows), commit="abad1dea", is_changed=True))
    written = with_tables(page, tmp_path)
    assert written.index("abad1dea with changes") < written.index("c0ffee,")
    assert written.count(tables(rows)) == 2
    assert NONE not in written
    assert "an earlier table" not in written
    assert with_tables(written, tmp_path) == written


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(InputError, match="no lines"):
        with_tables(f"a page\n{BEGIN}\n")


def test_the_page_of_benchmarks_has_the_tables_of_the_recorded_runs() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert sections(RESULTS) in page
    assert with_tables(page) == page  # else: scripts/benchmark.py --tables docs/benchmarks.md

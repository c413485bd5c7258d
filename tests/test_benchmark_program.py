import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory import CLEAR
from benchmarks.program import main
from benchmarks.results import ROOT, read_run, sections
from benchmarks.snapshots import written_photos
from benchmarks.tables import tables

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
"""What keeps PyTorch from AVX-512 and from instructions for bfloat16."""


def finished(options: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """What the script prints, run in a folder; where it fails, the test tells why."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "benchmark.py"), *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=dict(environment),
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("rows", "processor"),
    [
        ("training,greedy,beam,end-to-end,encoding,reading", {}),
        ("training,beam", AVX2),
    ],
    ids=["as it is", "with AVX2 only"],
)
def test_the_script_prints_a_table_and_writes_the_same_as_json(
    rows: str, processor: dict[str, str], tmp_path: Path
) -> None:
    options = ["--quick", "--rounds", "1", "--rows", rows, "--json", str(tmp_path / "figures.json")]
    printed = finished(options, os.environ | processor, tmp_path)
    written = json.loads((tmp_path / "figures.json").read_text())
    names = {row["name"] for row in written["rows"]}
    assert len(names) == len(rows.split(","))
    assert all(f"| {name}, " in printed for name in names)
    assert {"processor", "threads", "torch", "date", "copy"} <= written["machine"].keys()
    assert {"commit", "is_changed", "command"} <= written.keys()
    assert tables(read_run(tmp_path / "figures.json").rows) in printed


@pytest.mark.parametrize(
    ("threads", "rows"),
    [
        (1, "training,memory,greedy,beam,end-to-end,encoding,reading,report,start"),
        (4, "training,greedy,beam,encoding"),
    ],
    ids=["one thread", "four threads"],
)
def test_it_passes_with_avx2_only_and_without_a_compiler(
    threads: int, rows: str, tmp_path: Path
) -> None:
    nothing = tmp_path / "bin"
    nothing.mkdir()
    # Nothing compiled before may be found either.
    without = {"PATH": str(nothing), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    environment |= AVX2 | without | {"OMP_NUM_THREADS": str(threads)}
    if not CLEAR.exists():
        rows = rows.replace("memory,", "")  # a process's peak is known on Linux only
    file = tmp_path / "figures.json"
    options = ["--quick", "--rounds", "1", "--threads", str(threads), "--json", str(file)]
    printed = finished([*options, "--rows", rows], environment, tmp_path)
    run = read_run(file)
    assert run.machine.threads == threads
    assert run.machine.instructions == "AVX2"
    assert run.command.startswith("ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 scripts/")
    assert run.commit is None  # git is no longer found either
    # Of bfloat16 a row is blank or measured, by how slow the processor is at it; of fp32, measured.
    figures: dict[str, list[Any]] = {}
    for row in run.rows:
        figures.setdefault(row.precision, []).append(row.figure)
    assert all(figure is not None for figure in figures["fp32"])
    assert {"fp32", "bf16"} <= figures.keys()
    assert tables(run.rows) in printed


def test_the_recorded_command_measures_the_same_and_tells_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in AVX2:
        monkeypatch.delenv(name, raising=False)
    photos = tmp_path / "private"
    photos.mkdir()
    file = tmp_path / "figures.json"
    options = ["--quick", "--rounds", "1", "--rows", "reading", "--json", str(file)]
    written_photos(photos, 2)
    assert main([*options, "--photos", str(photos)]) == 0
    assert read_run(file).command == (
        "scripts/benchmark.py --rounds 1 --photos PHOTOS --quick --rows reading"
    )


def test_tables_are_written_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- tables of benchmarks/results -->\n<!-- end of the tables -->\n")
    assert main(["--tables", str(page)]) == 0
    assert sections() in page.read_text()


def test_a_page_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--tables", str(tmp_path / "none.md")]) == 1
    assert capsys.readouterr().err.startswith("benchmark: ")


def test_an_unknown_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--rows", "training,speed"])
    assert "no row 'speed'" in capsys.readouterr().err

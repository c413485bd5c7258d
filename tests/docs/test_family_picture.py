"""The picture and the table of the family on drawn scenes, from the same numbers."""

import csv
import runpy
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "docs/family_on_shapes.csv"


def test_the_table_has_the_means_and_ranges_of_the_trainings() -> None:
    page = (ROOT / "docs/results.md").read_text()
    with NUMBERS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for decoder in {row["decoder"] for row in rows}:
        cells = [decoder]
        for measure, digits in {"right": 1, "pointing": 3, "mass": 2, "cider": 3}.items():
            values = [float(row[measure]) for row in rows if row["decoder"] == decoder]
            mean, *ends = sum(values) / len(values), min(values), max(values)
            mean, least, most = (f"{value:.{digits}f}" for value in (mean, *ends))
            cells.append(f"{mean} ({least} to {most})")
        assert f"| {' | '.join(cells)} |" in page


def test_the_picture_is_drawn_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "family.png"
    monkeypatch.setattr("sys.argv", ["draw_family.py", str(NUMBERS), str(picture)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts/draw_family.py"), run_name="__main__")
    assert ended.value.code == 0
    with Image.open(picture) as drawn, Image.open(ROOT / "docs/family_on_shapes.png") as shown:
        assert drawn.size == shown.size

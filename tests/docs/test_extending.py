"""The pages on parts of your own: their code and commands run from top to bottom."""

import csv
import shutil
import sys
from pathlib import Path

import pytest

from captioning import maps
from captioning.commands import main
from captioning.data.records import Record
from captioning.metrics import registry
from tests.docs.pages import DOCS, run_page

PAGES = sorted((DOCS / "extending").glob("*.md"))
COMMANDS = {
    "map": {"caption", "ground"},
    "metric": {"train", "evaluate", "score"},
    "reader": {"train", "caption"},
}
"""The commands of each page; the others have those of a part of the model."""

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_runs_from_top_to_bottom(
    page: Path,
    tmp_path: Path,
    tiny_config: Path,
    checkpoint: Path,
    shapes_data: Path,
    shapes_records: list[Record],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(registry, "METRICS", registry.METRICS[:])
    monkeypatch.setitem(maps.MAPS, "sharp", None)  # the page sets it; this removes it afterwards
    shutil.copy(shapes_records[0].image, "photo.jpg")
    Path("photos").mkdir()
    for name, record in zip(
        ("a_red_circle", "a_blue_star", "a_cross"), shapes_records, strict=False
    ):
        shutil.copy(record.image, f"photos/{name}.jpg")
    shutil.copytree(shapes_data, "data/shapes")
    Path("configs").mkdir()
    shutil.copy(tiny_config, "configs/shapes.yaml")
    Path("runs/shapes").mkdir(parents=True)
    shutil.copy(checkpoint, "runs/shapes/best.ckpt")
    ran = run_page(page)
    assert {arguments[0] for arguments in ran} >= COMMANDS.get(
        page.stem, {"train", "caption", "ground"}
    )
    if page.stem == "metric":
        assert capsys.readouterr().out.count("first word") == 2


PARTS = '''
from captioning.data.readers import Coco
from captioning.training.objectives import CrossEntropy, Loss


class Halved(CrossEntropy):
    """Half of the paper's loss."""

    def __call__(self, captioner, annotations, batch):
        loss = super().__call__(captioner, annotations, batch)
        return Loss(loss.total / 2, loss.divisor, {"whole": loss.total / loss.divisor})


class FirstCaptions(Coco):
    """COCO's files, of which only the first two images count."""

    def read(self, split):
        return super().read(split)[:2]
'''


def test_an_objective_and_a_reader_of_ones_own_train(
    tmp_path: Path,
    tiny_config: Path,
    shapes_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_parts.py").write_text(PARTS)
    arguments = [
        *("train", "--config", str(tiny_config), "--import", "my_parts"),
        *("--data.reader", "my_parts.FirstCaptions", "--data.reader.root", str(shapes_data)),
        *("--model.objective", "my_parts.Halved", "--trainer.default_root_dir", "run"),
        *("--trainer.max_epochs", "1", "--trainer.log_every_n_steps", "1"),
    ]
    assert main(arguments) == 0
    assert "2 images to train on, 2 to validate" in capsys.readouterr().err
    with Path("run/csv/metrics.csv").open() as table:
        [row] = [row for row in csv.DictReader(table) if row["train/loss"]]
    assert float(row["train/loss"]) == pytest.approx(float(row["train/whole"]) / 2)

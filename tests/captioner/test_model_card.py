import json
from pathlib import Path

import pytest
import yaml

from captioning.captioner import load
from captioning.captioner.exporting import model_card
from captioning.commands import main


def test_the_card_has_the_numbers_of_the_evaluation(
    shapes_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, evaluation = tmp_path / "model", tmp_path / "evaluation"
    data = ["--data", str(shapes_data), "--split", "val"]
    assert main(["evaluate", "--model", "shapes", *data, "--out", str(evaluation)]) == 0
    of_card = ["--evaluation", str(evaluation), "--license", "cc-by-4.0"]
    assert main(["export", "shapes", str(folder), *of_card]) == 0
    card = (folder / "README.md").read_text()
    report = json.loads((evaluation / "report.json").read_text())
    for name, score in report["scores"].items():
        interval = f"{score['low']:.3f} to {score['high']:.3f}"
        assert f"| {name} | {score['value']:.3f} | {interval} |" in card
    assert f"the split `val` of `{shapes_data.name}`" in card
    grounding = json.loads((evaluation / "grounding.json").read_text())["all"]
    assert f"| pointing | {grounding['pointing']['value']:.3f} |" in card
    errors = {"calibration error of confidence": 0.125, "bins of words": [[0.1, 0.2, 3]]}
    (evaluation / "calibration.json").write_text(json.dumps(errors))
    assert "| calibration error of confidence | 0.125 |" in model_card(load("shapes"), evaluation)
    assert str(shapes_data.parent) not in card + json.dumps(report)
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["license"], head["pipeline_tag"]) == ("cc-by-4.0", "image-to-text")


def test_a_card_without_an_evaluation_says_so_and_has_no_scores() -> None:
    card = model_card(load("shapes"), license="my own photos, all rights reserved")
    assert "Nothing was measured" in card
    assert "| CIDEr" not in card
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["license"] == "other"
    assert head["license_name"] == "my own photos, all rights reserved"

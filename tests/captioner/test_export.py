import json
import pickle
import re
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

from captioning.captioner import export, load
from captioning.captioner.exporting import model_card, origins_of
from captioning.commands import main
from captioning.data.records import Record


def test_half_precision_keeps_the_numbers_to_11_bits(checkpoint: Path, tmp_path: Path) -> None:
    saved = torch.load(checkpoint, weights_only=True)
    saved["state_dict"]["model.decoder.output.bias"].fill_(1e6)  # beyond half precision, so kept
    checkpoint = tmp_path / "large.ckpt"
    torch.save(saved, checkpoint)
    whole, half = tmp_path / "whole.safetensors", tmp_path / "half.safetensors"
    export(checkpoint, whole)
    assert main(["export", "--model", str(checkpoint), str(half), "--half"]) == 0
    sizes = [file.stat().st_size for file in (half, whole)]
    assert sizes[0] < 0.6 * sizes[1] < 0.4 * checkpoint.stat().st_size
    exact, halved = (load(path).model.state_dict() for path in (checkpoint, half))
    for name, value in halved.items():
        assert value.dtype == exact[name].dtype
        torch.testing.assert_close(value, exact[name], rtol=2**-11, atol=2**-24)


def test_maps_are_placed_alike_with_and_without_an_offset_in_the_file(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = torch.load(checkpoint, weights_only=True)
    offset = saved["captioner"].pop("offset")
    torch.save(saved, tmp_path / "older.ckpt")
    export(tmp_path / "older.ckpt", tmp_path / "model.safetensors")
    older, exported = load(tmp_path / "older.ckpt"), load(tmp_path / "model.safetensors")
    side = older.preprocessing.size
    assert exported.model.encoder.offsets == {side: tuple(offset)}
    capsys.readouterr()
    photo = Image.new("RGB", (40, 60), "red")
    caption = older(photo)
    assert "measuring" not in capsys.readouterr().err  # before a map is drawn
    assert caption.offset == exported(photo).offset == exported.model.encoder.cell_offset(side)
    assert caption.offset != (0, 0)
    assert "measuring" in capsys.readouterr().err
    assert pickle.loads(pickle.dumps(caption)).offset == caption.offset


def test_an_exported_model_hides_where_its_first_weights_were(
    checkpoint: Path, tmp_path: Path
) -> None:
    saved = torch.load(checkpoint, weights_only=True)
    saved["captioner"]["model"]["encoder"]["weights"] = "/home/someone/weights.pth"
    torch.save(saved, tmp_path / "model.ckpt")
    export(tmp_path / "model.ckpt", tmp_path / "model.safetensors")
    assert b"someone" not in (tmp_path / "model.safetensors").read_bytes()
    assert load(tmp_path / "model.safetensors").vocabulary == load(checkpoint).vocabulary


def test_what_is_exported_captions_as_its_checkpoint_does(
    checkpoint: Path, shapes_records: list[Record], tmp_path: Path
) -> None:
    folder, file = tmp_path / "exported", tmp_path / "model.safetensors"
    export(checkpoint, file)
    assert main(["export", str(checkpoint), str(folder)]) == 0
    names = {file.name for file in folder.iterdir()}
    assert names == {"README.md", "config.json", "model.safetensors"}
    photos = [record.image for record in shapes_records]
    expected = [(each.text, each.score) for each in load(checkpoint)(photos)]
    for path in (folder, folder / "model.safetensors", file):
        assert [(each.text, each.score) for each in load(path)(photos)] == expected


def test_the_card_has_the_numbers_of_the_evaluation(shapes_data: Path, tmp_path: Path) -> None:
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


def test_the_card_names_the_models_that_a_model_was_trained_from(tmp_path: Path) -> None:
    origins = origins_of("photos")
    export("shapes", tmp_path / "first.safetensors", origins=origins)
    origins = origins_of(tmp_path / "first.safetensors")
    export(load("shapes"), tmp_path / "second.safetensors", origins=origins)
    assert main(["export", str(tmp_path / "second.safetensors"), str(tmp_path / "folder")]) == 0
    card = (tmp_path / "folder/README.md").read_text()
    [first, second] = re.findall(r"- Trained from .*", card)
    assert "`first.safetensors`, whose card" in first
    assert re.search("`photos`, which learnt from .* Flickr8k .* Terms: .* Apache", second)
    assert str(tmp_path) not in card
    assert "Origin" not in model_card(load("shapes"))


def test_a_card_without_an_evaluation_says_so_and_has_no_scores() -> None:
    card = model_card(load("shapes"), license="my own photos, all rights reserved")
    assert "Nothing was measured" in card
    assert "| CIDEr" not in card
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["license"] == "other"
    assert head["license_name"] == "my own photos, all rights reserved"

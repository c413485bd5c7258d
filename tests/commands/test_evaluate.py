"""`captioning evaluate`, `ground`, `calibrate`, `check` and `shapes`: models and data sets."""

import json
import re
from pathlib import Path

import pytest
import torch
import wandb
from pycocoevalcap.bleu.bleu import Bleu
from pycocotools.coco import COCO

from captioning.captioner import Captioner, load
from captioning.commands import main, options
from captioning.data.tokens import tokenize
from captioning.maps import MAPS, NEEDS_EVIDENCE, available_maps, head_names
from captioning.models import Model, TransformerDecoder
from tests.conftest import draw_photos
from tests.fixtures import DECODERS, checkpoint_of

Capture = pytest.CaptureFixture[str]

# Words that an untrained model is sure to write, as names of the shapes that are there.
NAMED = {"circle": ["a", "the"], "square": ["is"], "star": ["red", "green", "and", "large"]}


def test_evaluate_scores_as_the_coco_evaluation_does(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    data = ["--data", str(shapes_data), "--out", str(tmp_path), "--device", "cpu"]
    assert main(["evaluate", "--model", str(checkpoint), *data]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("BLEU-1")
    assert lines[-1] == str(tmp_path)
    truth = COCO(shapes_data / "annotations/captions_val.json")
    results = truth.loadRes(str(tmp_path / "captions.json"))
    assert sorted(results.getImgIds()) == sorted(truth.getImgIds())
    captions, references = (
        {
            image: [" ".join(tokenize(each["caption"])) for each in found]
            for image, found in coco.imgToAnns.items()
        }
        for coco in (results, truth)
    )
    theirs, _ = Bleu(4).compute_score(references, captions, verbose=0)
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert [scores[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx(theirs)
    assert theirs[0] > 0


def test_evaluate_grounds_where_there_are_boxes(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    given = arguments(checkpoint, shapes_data, tmp_path)
    assert main(["evaluate", *given[1:], "--limit", "1"]) == 0
    shown = capsys.readouterr()
    assert "CHAIR-s" in shown.out
    assert json.loads((tmp_path / "grounding.json").read_text())["images"] == 1
    assert shown.err.startswith("captioning: CIDEr of one image is always 0")


def test_shapes_draws_what_check_finds_sound(tmp_path: Path, capsys: Capture) -> None:
    few = ["--train", "2", "--val", "1", "--test", "1", "--pixels", "32"]
    assert main(["shapes", str(tmp_path / "shapes"), *few]) == 0
    assert main(["check", str(tmp_path / "shapes")]) == 0
    (gone := next((tmp_path / "shapes/val").iterdir())).unlink()
    assert main(["check", str(tmp_path / "shapes")]) == 1
    assert gone.name in capsys.readouterr().out


def test_check_takes_the_photos_folder_and_the_captions_column(
    tmp_path: Path, capsys: Capture
) -> None:
    draw_photos(tmp_path / "photos", "a.png", "b.png")
    rows = "a.png;a circle;a red circle above a blue square\nb.png;a star;a small green star\n"
    (tmp_path / "mine.csv").write_text(f"Photo;Title;Words\n{rows}", encoding="utf-8-sig")
    check = ["check", str(tmp_path / "mine.csv"), "--images", str(tmp_path / "photos")]
    assert main([*check, "--caption-column", "Title"]) == 0
    assert "No problems found" in capsys.readouterr().out


def arguments(checkpoint: Path, data: Path, folder: Path) -> list[str]:
    options = ["--model", str(checkpoint), "--data", str(data), "--out", str(folder)]
    return ["ground", *options, "--split", "train", "--device", "cpu"]


@pytest.mark.integration
def test_scores_table_and_pictures_are_in_wandbs_run(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"categories": NAMED}))
    folder = tmp_path / "out"
    given = [*arguments(checkpoint, shapes_data, folder), "--words", str(words), "--wandb"]
    assert main(given) == 0
    wandb.teardown()  # wait for the process that writes the log
    report = json.loads((folder / "grounding.json").read_text())
    [log] = folder.glob("wandb/offline-run-*/*.wandb")
    logged = log.read_bytes()
    assert b"grounding/mass in box" in logged
    assert repr(report["all"]["mass in box"]["value"]).encode() in logged
    for name in ("scores", "best", "worst"):
        [kept] = folder.glob(f"wandb/offline-run-*/files/media/images/grounding/{name}_*.png")
        assert kept.read_bytes() == (folder / f"{name}.png").read_bytes()


def test_all_maps_of_given_captions_are_one_table(
    checkpoint: Path, shapes_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    given = [*arguments(checkpoint, shapes_data, tmp_path), "--references", "--limit", "1"]
    assert main([*given, "--map", "all"]) == 0
    names = [*available_maps(load(checkpoint).model)]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: 1 + len(names)]] == ["map", *names]
    found = json.loads((tmp_path / "maps.json").read_text())
    assert list(found) == names
    for name, report in found.items():
        assert (report["map"], report["captions"]) == (name, "references")
        assert report["milliseconds"] > 0
        assert {"deletion", "insertion", "insertion, Gaussian"} < report["all"].keys()
    assert json.loads((tmp_path / "grounding.json").read_text())["map"] == names[0]


def test_without_a_choice_the_models_own_map_is_tested(
    checkpoint: Path, shapes_data: Path, tmp_path: Path
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["captioner"]["default_map"] = "evidence"
    torch.save(content, tmp_path / "model.ckpt")
    given = arguments(tmp_path / "model.ckpt", shapes_data, tmp_path / "out")
    assert main([*given, "--references", "--limit", "1"]) == 0
    assert json.loads((tmp_path / "out/grounding.json").read_text())["map"] == "evidence"


@pytest.fixture(params=["transformer", "multi-head"])
def several_heads(request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path) -> Path:
    """An untrained model of another decoder than the paper's, with the words of `checkpoint`."""
    torch.manual_seed(0)
    captioner = load(checkpoint)
    encoder, adapter, words = captioner.model.encoder, captioner.model.adapter, captioner.vocabulary
    model = Model(encoder, adapter, DECODERS[request.param](adapter.output_dim, len(words)))
    other = Captioner(model, words, captioner.preprocessing, captioner.search)
    return checkpoint_of(other, tmp_path / "heads.ckpt")


@pytest.mark.integration
def test_every_map_and_every_head_is_grounded(
    several_heads: Path, shapes_data: Path, tmp_path: Path
) -> None:
    ground = [*arguments(several_heads, shapes_data, tmp_path), "--references", "--limit", "1"]
    scores = {}
    for chosen in ("all", "heads"):
        assert main([*ground, "--map", chosen]) == 0
        scores[chosen] = json.loads((tmp_path / "maps.json").read_text())
    decoder = load(several_heads).model.decoder
    missing = NEEDS_EVIDENCE if isinstance(decoder, TransformerDecoder) else set()
    assert scores["all"].keys() == MAPS.keys() - missing
    heads = head_names(decoder)
    assert tuple(scores["heads"]) == ("attention", *heads)
    one, other = (scores["heads"][name]["all"]["mass in box"] for name in heads[:2])
    assert one != other


def test_the_help_names_every_map() -> None:
    assert set(MAPS) == set(re.findall(r"[a-z][a-z-]+", options.MAP_HELP)) - {"or"}

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from captioning.cli import main
from tests.conftest import refusal

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.effect_noise((64, 64), 50).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set of one photo per split, in COCO's layout."""
    for split in ("train", "val"):
        (tmp_path / "data" / split).mkdir(parents=True)
        Image.effect_noise((64, 64), 50).save(tmp_path / "data" / split / "1.jpg")
        content = {
            "images": [{"id": 1, "file_name": "1.jpg"}],
            "annotations": [{"image_id": 1, "id": 1, "caption": "a grey cat"}],
        }
        (tmp_path / "data/annotations").mkdir(exist_ok=True)
        path = tmp_path / f"data/annotations/captions_{split}.json"
        path.write_text(json.dumps(content))
    return tmp_path / "data"


def test_a_missing_checkpoint_and_one_of_something_else(
    photo: Path, tmp_path: Path, capsys: Capture
) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    for name, told in (
        ("no.ckpt", "no such model"),
        ("other.ckpt", "not a checkpoint of captioning; give one that `train` wrote"),
    ):
        error = refusal(["caption", str(photo), "--model", str(tmp_path / name)], capsys)
        assert f"{name}: {told}" in error


def test_an_overlay_folder_that_cannot_be_written_to(
    checkpoint: Path, photo: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "file").touch()
    overlay = ["--overlay", str(tmp_path / "file")]
    error = refusal(["caption", str(photo), "--model", str(checkpoint), *overlay], capsys)
    assert str(tmp_path / "file") in error
    assert "choose another place" in error


def test_an_output_folder_that_cannot_be_written_to_is_reported_before_the_work(
    checkpoint: Path, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioning.evaluation.captions.split_captions", None)
    (tmp_path / "file").touch()
    out = ["--out", str(tmp_path / "file/below")]
    error = refusal(["evaluate", "--model", str(checkpoint), "--data", str(data), *out], capsys)
    assert "file/below" in error
    assert "choose another place" in error


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (["--min-length", "30"], 1, "set 0 <= min_length <= max_length"),
        (["--greedy", "--length-penalty", "1"], 1, "Greedy has no length penalty"),
        (["--device", "nonsense"], 2, "no device 'nonsense'; give cpu"),
        (["--temperature", "2"], 2, "--temperature is for sampling; give --sample too"),
        (["--beam", "2", "--top-k", "2"], 2, "--top-k is for sampling; give --sample too"),
        (["--beam", "2", "--greedy"], 2, "not allowed with argument --beam"),
        (["--beam", "0"], 2, "--beam: give a whole number from 1 to 1000, not '0'"),
        (["--sample", "--temperature", "0"], 2, "--temperature: give a number from 0.001 to 1000"),
        (["--sample", "--top-p", "1.5"], 2, "--top-p: give a number above 0 and at most 1"),
        (["--bean", "2"], 2, "unknown option --bean; did you mean --beam?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_be_used(
    checkpoint: Path, photo: Path, options: list[str], code: int, expected: str, capsys: Capture
) -> None:
    command = ["caption", str(photo), "--model", str(checkpoint), *options]
    assert expected in refusal(command, capsys, code)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "see captioning --help"),
        (["trian"], "unknown command trian; did you mean train?"),
        (["train"], "captioning train --config configs/shapes.yaml"),
    ],
)
def test_a_command_or_its_configuration_that_is_missing(
    arguments: list[str], expected: str, capsys: Capture
) -> None:
    assert expected in refusal(arguments, capsys, code=2)


@pytest.mark.parametrize("command", ["check", "evaluate", "train"])
def test_a_data_set_that_is_not_there(
    command: str, checkpoint: Path, tiny_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    missing, run = str(tmp_path / "nowhere"), str(tmp_path / "run")
    arguments = {
        "check": ["check", missing],
        "evaluate": ["evaluate", "--data", missing, "--model", str(checkpoint)],
        "train": [
            *("train", "--config", str(tiny_config), "--trainer.default_root_dir", run),
            *("--data.reader.init_args.root", missing),
        ],
    }
    assert "nowhere" in refusal(arguments[command], capsys)


def test_a_json_that_is_not_coco(
    checkpoint: Path, data: Path, tmp_path: Path, capsys: Capture
) -> None:
    (data / "annotations/captions_val.json").write_text('["a cat"]')
    error = refusal(["evaluate", "--model", str(checkpoint), "--data", str(data)], capsys)
    assert "captions_val.json" in error
    assert "expected COCO's captions format" in error


def test_an_unreadable_photo_of_an_evaluation(
    checkpoint: Path, data: Path, tmp_path: Path, capsys: Capture
) -> None:
    (data / "val/1.jpg").write_bytes(b"")
    options = ["--data", str(data), "--out", str(tmp_path / "out")]
    error = refusal(["evaluate", "--model", str(checkpoint), *options], capsys)
    assert f"captioning: {data / 'val/1.jpg'}: empty file (0 bytes); copy or download" in error


@pytest.fixture
def training(tiny_config: Path, data: Path, tmp_path: Path) -> list[str]:
    """A sound training on the data set of one photo per split."""
    return [
        *("train", "--config", str(tiny_config), "--data.reader.init_args.root", str(data)),
        *("--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.max_epochs", "1"),
    ]


@pytest.mark.parametrize(("split", "workers"), [("train", "1"), ("val", "0")])
def test_an_unreadable_photo_met_in_training(
    training: list[str], data: Path, split: str, workers: str, capsys: Capture
) -> None:
    (data / split / "1.jpg").write_bytes(b"")
    assert main([*training, "--data.workers", workers]) == 1
    *earlier, error = capsys.readouterr().err.splitlines()
    expected = f"captioning: {data / split / '1.jpg'}: empty file (0 bytes); copy or download"
    assert error.startswith(expected)
    assert len(earlier) <= 1  # what is trained on what
    assert not any("Traceback" in line for line in earlier)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--checkpoints.monitor", "val/BLEU"], "no score 'val/BLEU'; choose from val/BLEU-1, "),
        (["--trainer.max_epochs", "-1"], "give trainer.max_epochs or trainer.max_steps"),
        (["--trainer.accelerator", "gpu", "--trainer.devices", "9"], "the trainer cannot do this"),
        (["--trainer.accelerator", "nonsense"], "trainer: You selected an invalid accelerator"),
        (["--trainer.strategy", "nonsense"], "trainer: You selected an invalid strategy"),
        (["--model.encoder.init_args.backbone", "resnet19"], "unknown backbone 'resnet19'"),
        (["--model.encoder.init_args.weights", "no.pth"], "no.pth: no such file"),
        (["--data.min_count", "9"], "lower data.min_count"),
        (["--data.features", "features"], "set data.features to null"),
        (["--trainer.default_root_dir", __file__], f"{__file__}: not a writable folder"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_a_training_that_cannot_be(
    training: list[str], options: list[str], expected: str, capsys: Capture
) -> None:
    assert expected in refusal([*training, *options], capsys)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--model.learnin_rate", "1"],
            "unknown option --model.learnin_rate; did you mean 'model.learning_rate'?",
        ),
        (["--model.encoder.init_args.zzz", "3"], "Option 'zzz' is not accepted"),
        (["--trainer.max_epoch", "1"], "did you mean 'trainer.max_epochs'"),
        (["--data.batch_size", "many"], "data.batch_size: Input should be a valid integer"),
        (["--trainer.precision", "17"], "trainer.precision: Expected a "),
        (
            ["--config", "no/such.yaml"],
            "no/such.yaml: no such configuration; give a file, or one of",
        ),
        (["stray"], "stray"),
        (["--data=\udce9.jpg"], r"\xe9.jpg: not UTF-8 text"),
    ],
    ids=lambda value: (
        " ".join(value).encode(errors="replace").decode() if isinstance(value, list) else ""
    ),
)
def test_a_misspelt_option_of_a_training(
    training: list[str], options: list[str], expected: str, capsys: Capture
) -> None:
    assert expected in refusal([*training, *options], capsys, code=2)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("model: {learnin_rate: 1}", "did you mean 'model.learning_rate'?"),
        ("modle: {learning_rate: 1}", "'modle.learning_rate'"),
        ("model: {decoder: {init_args: {hiden_dim: 3}}}", "did you mean 'hidden_dim'?"),
        ("data: {size: big}", "data.size: Input should be a valid integer"),
        ("model: [1", "delta.yaml: not YAML"),
        ("", "delta.yaml: not a configuration"),
        ("just words", "delta.yaml: not a configuration"),
        (b"\xff\xd8\xff\xe0 a photo", "delta.yaml: not YAML"),
    ],
    ids=str,
)
def test_a_mistake_in_a_configuration(
    training: list[str], tmp_path: Path, content: str | bytes, expected: str, capsys: Capture
) -> None:
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "delta.yaml").write_bytes(content)
    delta = ["--config", str(tmp_path / "delta.yaml")]
    assert expected in refusal([*training, *delta], capsys, code=2)

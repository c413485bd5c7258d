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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file; check the path"),
        (b"", "empty file (0 bytes); copy or download the photo again"),
        (b"words", "not an image that can be read; convert it to JPEG or PNG"),
    ],
    ids=["missing", "empty", "text"],
)
def test_a_file_that_is_no_photo(
    checkpoint: Path, tmp_path: Path, content: bytes | None, expected: str, capsys: Capture
) -> None:
    path = tmp_path / "bad.jpg"
    if content is not None:
        path.write_bytes(content)
    assert f"{path}: {expected}" in refusal(
        ["caption", str(path), "--model", str(checkpoint)], capsys
    )


def test_a_truncated_photo(checkpoint: Path, photo: Path, capsys: Capture) -> None:
    photo.write_bytes(photo.read_bytes()[:900])
    error = refusal(["caption", str(photo), "--model", str(checkpoint)], capsys)
    assert f"{photo}: damaged or cut short" in error
    assert "again" in error


def test_a_folder_without_photos(checkpoint: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "empty").mkdir()
    error = refusal(["caption", str(tmp_path / "empty"), "--model", str(checkpoint)], capsys)
    assert "empty: no images in this folder" in error


def test_a_missing_checkpoint(photo: Path, tmp_path: Path, capsys: Capture) -> None:
    error = refusal(["caption", str(photo), "--model", str(tmp_path / "no.ckpt")], capsys)
    assert "no.ckpt: no such model" in error


def test_a_checkpoint_of_something_else(photo: Path, tmp_path: Path, capsys: Capture) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    error = refusal(["caption", str(photo), "--model", str(tmp_path / "other.ckpt")], capsys)
    assert "other.ckpt: not a checkpoint of captioning; give one that `train` wrote" in error


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
    ("options", "expected"),
    [
        (["--min-length", "30"], "set 0 <= min_length <= max_length"),
        (["--greedy", "--length-penalty", "1"], "Greedy has no length penalty"),
    ],
    ids=" ".join,
)
def test_settings_that_make_no_sense(
    checkpoint: Path, photo: Path, options: list[str], expected: str, capsys: Capture
) -> None:
    error = refusal(["caption", str(photo), "--model", str(checkpoint), *options], capsys)
    assert expected in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--device", "nonsense"], "no device 'nonsense'; give cpu"),
        (["--temperature", "2"], "--temperature is for sampling; give --sample too"),
        (["--beam", "2", "--top-k", "2"], "--top-k is for sampling; give --sample too"),
        (["--beam", "2", "--greedy"], "not allowed with argument --beam"),
        (["--beam", "0"], "--beam: give a whole number from 1 to 1000, not '0'"),
        (["--sample", "--temperature", "0"], "--temperature: give a number from 0.001 to 1000"),
        (["--sample", "--top-p", "1.5"], "--top-p: give a number above 0 and at most 1"),
        (["--bean", "2"], "unknown option --bean; did you mean --beam?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_be_used(
    checkpoint: Path, photo: Path, options: list[str], expected: str, capsys: Capture
) -> None:
    error = refusal(["caption", str(photo), "--model", str(checkpoint), *options], capsys, code=2)
    assert expected in error


def test_an_unknown_command(capsys: Capture) -> None:
    assert "unknown command trian; did you mean train?" in refusal(["trian"], capsys, code=2)


def test_no_command_at_all(capsys: Capture) -> None:
    assert "see captioning --help" in refusal([], capsys, code=2)


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


def test_a_split_without_captions(checkpoint: Path, data: Path, capsys: Capture) -> None:
    path = data / "annotations/captions_val.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"annotations": []}))
    error = refusal(["evaluate", "--model", str(checkpoint), "--data", str(data)], capsys)
    assert f"{data}: split 'val' has no captions" in error


def test_an_unknown_split(checkpoint: Path, data: Path, capsys: Capture) -> None:
    options = ["--data", str(data), "--split", "other"]
    error = refusal(["evaluate", "--model", str(checkpoint), *options], capsys)
    assert "no split 'other'; it has train, val" in error


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


def test_a_run_folder_that_cannot_be_written_to(
    training: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file/run")
    error = refusal([*training, "--trainer.default_root_dir", folder], capsys)
    assert f"{folder}: not a writable folder" in error


def test_words_that_are_all_too_rare(training: list[str], capsys: Capture) -> None:
    error = refusal([*training, "--data.min_count", "9"], capsys)
    assert "lower data.min_count" in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--checkpoints.monitor", "val/BLEU"], "no score 'val/BLEU'; choose from val/BLEU-1, "),
        (["--trainer.max_epochs", "-1"], "give trainer.max_epochs or trainer.max_steps"),
        (["--trainer.accelerator", "gpu", "--trainer.devices", "9"], "the trainer cannot do this"),
        (["--model.encoder.init_args.backbone", "resnet19"], "unknown backbone 'resnet19'"),
        (["--model.encoder.init_args.weights", "no.pth"], "no.pth: no such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
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
        (["--model.decoder.init_args.hiden_dim", "3"], "did you mean 'hidden_dim'?"),
        (["--model.encoder.init_args.zzz", "3"], "Option 'zzz' is not accepted"),
        (["--trainer.max_epoch", "1"], "did you mean 'trainer.max_epochs'"),
        (["--data.batch_size", "many"], "data.batch_size: Input should be a valid integer"),
        (["--trainer.precision", "17"], "trainer.precision: Expected a "),
        (
            ["--model.encoder", "captioning.models.Encodr"],
            "may not name 'captioning.models.Encodr'",
        ),
        (["--data.reader", "Cocoa"], "may not name 'Cocoa'; did you mean 'Coco'?"),
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
    ],
)
def test_a_mistake_in_a_configuration(
    training: list[str], tmp_path: Path, content: str, expected: str, capsys: Capture
) -> None:
    (tmp_path / "delta.yaml").write_text(content)
    delta = ["--config", str(tmp_path / "delta.yaml")]
    assert expected in refusal([*training, *delta], capsys, code=2)


def test_a_photo_given_as_a_configuration(
    training: list[str], photo: Path, capsys: Capture
) -> None:
    error = refusal([*training, "--config", str(photo)], capsys, code=2)
    assert f"{photo}: not YAML" in error


def test_a_training_without_any_configuration(capsys: Capture) -> None:
    error = refusal(["train"], capsys, code=2)
    assert "captioning train --config configs/shapes.yaml" in error


def test_features_of_a_trained_encoder(
    training: list[str], tmp_path: Path, capsys: Capture
) -> None:
    error = refusal([*training, "--data.features", str(tmp_path / "features")], capsys)
    assert "set data.features to null" in error


@pytest.mark.parametrize("option", ["accelerator", "strategy"])
def test_what_lightning_says_of_an_unknown_name_is_one_line(
    option: str, training: list[str], capsys: Capture
) -> None:
    error = refusal([*training, f"--trainer.{option}", "nonsense"], capsys)
    assert "trainer: " in error
    assert option in error

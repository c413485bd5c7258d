"""What a training says about its options."""

import subprocess
import sys
from pathlib import Path

import pytest

from captioning.commands import main
from captioning.errors import InputError
from captioning.training import configuration
from captioning.training.train_cli import TrainCLI, plain_messages, train


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--max_epochs=3", "unrecognized arguments: --max_epochs=3"),
        ("--model.decoder=LSTMDecodr", r"model\.decoder.*LSTMDecodr"),
        ("--model.decoder=captioning.kernels.fast_lstm.FastLSTM", "is not allowed"),
        ("--trainer.precision=bf16-true", "rounds away most steps of the weights; take 32-true"),
        ("--config=no_such", "no such file; give one, or one of .*flickr8k"),
    ],
)
def test_a_wrong_option_is_named(tiny_config: Path, option: str, told: str) -> None:
    with plain_messages(), pytest.raises(InputError, match=told):
        TrainCLI(["--config", str(tiny_config), option])


def test_one_batch_and_all_batches_stay_apart(tiny_config: Path, tmp_path: Path) -> None:
    """Lightning means one batch by 1 and all of them by 1.0.

    In a process of its own: `typing` caches unions by equality, so one that another library wrote
    the other way round changes the order in which jsonargparse tries their types.
    """
    program = f"""if True:
        from captioning.training.train_cli import TrainCLI
        for given in ("1", "1.0"):
            options = ["--trainer.limit_val_batches", given]
            options += ["--trainer.default_root_dir", {str(tmp_path)!r}]
            cli = TrainCLI(["--config", {str(tiny_config)!r}, *options])
            print(cli.settings()["trainer"]["limit_val_batches"])
    """
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.split() == ["1", "1.0"]


def test_what_lightning_refuses_is_one_line(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--trainer.val_check_interval", "12", "--trainer.default_root_dir", str(tmp_path)]
    with pytest.raises(InputError, match=r"trainer cannot do this: .*val_check_interval"):
        train(["--config", str(tiny_config), *options])
    part = "[{class_path: EarlyStopping, init_args: {monitor: val/none}}]"
    (tmp_path / "delta.yaml").write_text(
        f"trainer: {{default_root_dir: {tmp_path}, callbacks: {part}}}"
    )
    configs = ["--config", str(tiny_config), "--config", str(tmp_path / "delta.yaml")]
    assert main(["train", *configs, "--validation_page.images=0"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("captioning: ")


@pytest.mark.parametrize(
    "option",
    [
        "--model.encoder.init_args.backbone=timm/vit_giant_patch14_224",
        "--model.decoder.init_args.hidden_dim=16384",
    ],
)
def test_a_model_of_too_many_parameters_is_refused(
    option: str, tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "MOST_PARAMETERS", 10_000_000)
    options = [option, f"--trainer.default_root_dir={tmp_path}"]
    with plain_messages(), pytest.raises(InputError, match="more than 10,000,000 parameters"):
        TrainCLI(["--config", str(tiny_config), *options])

"""What a training says about its options."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from captioning.data.readers import Joined
from captioning.errors import InputError
from captioning.models import model
from captioning.training.train_cli import TrainCLI, plain_messages
from tests.training.conftest import Patch, Train


def test_configurations_of_earlier_finetunings_find_their_reader(
    tiny_config: Path, shapes_data: Path, tmp_path: Path
) -> None:
    coco = {
        "class_path": "captioning.data.readers.coco.Coco",
        "init_args": {"root": str(shapes_data)},
    }
    joined = {
        "class_path": "captioning.data.readers.reader.Joined",
        "init_args": {"readers": [coco]},
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"data": {"reader": joined}}))
    with plain_messages():
        cli = TrainCLI(["--config", str(tiny_config), "--config", str(config)])
    assert type(cli.datamodule.reader) is Joined


@pytest.mark.integration
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
            print(cli.settings["trainer"]["limit_val_batches"])
    """
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.split() == ["1", "1.0"]


def test_a_score_that_a_callback_waits_for_in_vain_is_named(train_into: Train) -> None:
    callbacks = "[{class_path: EarlyStopping, init_args: {monitor: val/none}}]"
    with pytest.raises(InputError, match="val/none"):
        train_into("run", f"--trainer.callbacks={callbacks}")


@pytest.mark.parametrize(
    "option", ["encoder.init_args.backbone=timm/resnet50", "decoder.hidden_dim=16384"]
)
def test_a_model_of_too_many_parameters_is_refused(
    option: str, train_into: Train, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(model, "MAX_PARAMETERS", 10_000_000)
    with pytest.raises(InputError, match="more than 10,000,000 parameters"):
        train_into("run", f"--model.{option}")

"""Configurations are passed around like data, so none of them may do what its writer likes."""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonargparse
import pytest
import yaml

from captioning import integrity
from captioning.commands import main
from captioning.errors import InputError, UsageError
from captioning.training.configured_training import TrainCLI
from captioning.training.train_cli import plain_messages, train

Capture = pytest.CaptureFixture[str]

HARMLESS = {
    "data": {
        "reader": {
            "class_path": "captioning.data.readers.Coco",
            "init_args": {"root": "no_such_folder"},
        },
        "features": "features",
    },
    "model": {
        "encoder": {
            "class_path": "captioning.models.CNNEncoder",
            "init_args": {"backbone": "small", "weights": None},
        },
        "decoder": {"class_path": "captioning.models.LSTMDecoder"},
        "search": {"class_path": "captioning.search.BeamSearch"},
    },
    "trainer": {"accelerator": "cpu", "max_epochs": 1},
}
"""What is whole but for its data, so that nothing is trained where a test should fail."""

TOUCH = {"command": "touch marker"}
PICKLE = {"checkpoint_path": "hostile.pickle", "weights_only": False}
LOADS = "captioning.training.module.CaptioningModule.load_from_checkpoint"
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 8)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def decoder(path: str, **arguments: Any) -> dict[str, Any]:
    return {"model": {"decoder": {"class_path": path, "init_args": arguments}}}


def trainer(**options: Any) -> dict[str, Any]:
    return {"trainer": options}


def called(path: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": arguments}


HOSTILE: dict[str, dict[str, Any] | str] = {
    "a command as the decoder": decoder("os.system", **TOUCH),
    "a class that starts a process": decoder("subprocess.Popen", args=["touch", "marker"]),
    "a function in place of a class path": {"model": {"decoder": "os.system"}},
    "a function through a class": decoder("captioning.models.LSTMDecoder.__init__.__globals__"),
    "a function of ours": decoder("captioning.commands.main", arguments=["shapes", "marker"]),
    "a loader of pickles": decoder("torch.load", f="hostile.pickle", weights_only=False),
    "a method of a class of ours": decoder(LOADS, **PICKLE),
    "a method in place of a class path": {"model": {"decoder": LOADS}},
    "a module that acts when imported": decoder("hostile.Decoder"),
    "such a module for the search": {"model": {"search": "hostile.Search"}},
    "such a module below the decoder": decoder(
        "captioning.models.LSTMDecoder", attention="hostile.Attention"
    ),
    "such a module as a callback": trainer(callbacks=[called("hostile.Callback")]),
    "a command as a logger": trainer(logger=called("os.system", **TOUCH)),
    "a command as the strategy": trainer(strategy=called("os.system", **TOUCH)),
    "a command as a plugin": trainer(plugins=[called("os.system", **TOUCH)]),
    "a command as the profiler": trainer(profiler=called("subprocess.call", args="touch marker")),
    "a callback of functions": trainer(
        callbacks=[called("pytorch_lightning.callbacks.LambdaCallback", setup="os.getcwd")]
    ),
    "a class of Lightning that is not listed": trainer(callbacks=[called("DeviceStatsMonitor")]),
    "a function for a strategy": trainer(strategy=called("DDPStrategy", ddp_comm_hook="os.abort")),
    "arguments that no signature has": trainer(
        logger={
            "class_path": "pytorch_lightning.loggers.WandbLogger",
            "dict_kwargs": {"settings": {"base_url": "http://localhost:1"}},
        }
    ),
    "such arguments as text": {
        "model": {"decoder": "{class_path: LSTMDecoder, dict_kwargs: {hidden_dim: 8}}"}
    },
    "such arguments by dotted keys": "model: {decoder.dict_kwargs.hidden_dim: 8}\n",
    "an address for W&B's key": trainer(
        logger=called("WandbLogger", settings={"base_url": "http://localhost:1"})
    ),
    "an earlier run to be overwritten": "overwrite: true\n",
    "a run to be resumed": "resume: true\n",
    "a further configuration": "config: further.yaml\n",
    "a path for a group": "model: further.yaml\n",
    "a module to import": "import: hostile\n",
    "a tag that calls": "model: !!python/object/apply:os.system [touch marker]\n",
    "an interpolation": "model: {decoder: '${oc.env:HOME}'}\n",
    "aliases that explode": BOMB,
    "a merge of itself": "trainer: &a {<<: *a}\n",
    "a hundred thousand brackets": "trainer: " + "[" * 100_000,
    "a date that is none": "seed_everything: 2020-13-45\n",
    "a number for a key": "1: 2\n",
    "null for a key": "trainer: {null: 2}\n",
    "a list for a group": "trainer: [1]\n",
    "no mapping at all": "- 1\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which `marker` appears where anything is executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hostile.py").write_text("open('marker', 'w').close()\n")
    (tmp_path / "hostile.pickle").write_bytes(b"cposix\nsystem\n(S'touch marker'\ntR.")
    (tmp_path / "further.yaml").write_text(yaml.safe_dump(decoder("os.system", **TOUCH)))
    (tmp_path / "harmless.yaml").write_text(yaml.safe_dump(HARMLESS))
    return tmp_path


def refusal(command: str, content: dict[str, Any] | str, options: list[str], err: Capture) -> str:
    """The one line on stderr with which a command refuses a configuration."""
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    Path("hostile.yaml").write_text(text)
    configs = ["--config", "harmless.yaml", "--config", "hostile.yaml"]
    assert main([command, *configs, *options]) in (1, 2)
    [line] = err.readouterr().err.splitlines()
    assert line.startswith("captioning: ")
    assert len(line) < 600
    return line


def check_refused(command: str, content: dict[str, Any] | str, capsys: Capture) -> None:
    before = sorted(Path.cwd().iterdir())
    error = refusal(command, content, [], capsys)
    assert "no_such_folder" not in error, "got as far as the data"
    assert sorted(Path.cwd().iterdir()) == sorted([*before, Path.cwd() / "hostile.yaml"])


def test_what_the_hostile_ones_are_added_to_is_refused_for_its_data_only(capsys: Capture) -> None:
    assert "no_such_folder" in refusal("train", "{}\n", [], capsys)


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_configuration_has_no_effect(
    content: dict[str, Any] | str, capsys: Capture
) -> None:
    check_refused("train", content, capsys)


def test_features_of_a_hostile_configuration_has_no_effect(capsys: Capture) -> None:
    check_refused("features", HOSTILE["a command as the decoder"], capsys)


@pytest.mark.parametrize(
    "options",
    [
        ["--model.decoder", "os.system"],
        ["--model.decoder={class_path: os.system, init_args: {command: touch marker}}"],
        ["--model.decoder.help", "hostile.Decoder"],
        ["--trainer", "further.yaml"],
        ["--config", "/dev/zero"],
        ["--import", "no_such_module"],
        ["--import"],
    ],
    ids=lambda options: " ".join(options)[:40],
)
def test_a_hostile_option_has_no_effect(options: list[str], capsys: Capture) -> None:
    assert "no_such_folder" not in refusal("train", "{}\n", options, capsys)
    assert not Path("marker").exists()


@pytest.mark.parametrize("option", ["--config", "--checkpoints", "--trainer", "--data.reader"])
def test_a_pipe_is_no_configuration(option: str, capsys: Capture) -> None:
    os.mkfifo("pipe")
    assert "pipe" in refusal("train", "{}\n", [f"{option}=pipe"], capsys)


@pytest.mark.parametrize(
    "options",
    [
        ["--trainer.devices", "1" + 20 * "0"],
        ["--trainer.val_check_interval", 400 * "9"],
        ["--model.decoder.help", "-inf", "--data.captions_per_image", "1e400"],
    ],
    ids=["devices", "interval", "help"],
)
def test_what_lightning_and_jsonargparse_stumble_over_is_one_line(
    options: list[str], capsys: Capture
) -> None:
    assert re.search(
        "give a smaller number|unrecognized", refusal("train", "{}\n", options, capsys)
    )


OWN = """
import os

from captioning.models import LSTMDecoder


class {name}(LSTMDecoder):
    pass


def build(*arguments, **options):
    os.system("touch marker")
"""


def test_an_imported_module_s_decoder_is_built(folder: Path, capsys: Capture) -> None:
    (folder / "own_decoder.py").write_text(OWN.format(name="Own"))
    content, options = decoder("own_decoder.Own", hidden_dim=8), ["--import", "own_decoder"]
    assert "needs --import MODULE" in refusal("train", content, [], capsys)
    assert "no_such_folder" in refusal("train", content, options, capsys)


def test_an_imported_module_s_functions_are_not_called(folder: Path, capsys: Capture) -> None:
    (folder / "own_functions.py").write_text(OWN.format(name="Unused"))
    options = ["--import=own_functions"]
    assert "no_such_folder" not in refusal("train", decoder("own_functions.build"), options, capsys)
    assert not Path("marker").exists()


def test_an_imported_module_that_fails_is_an_error_of_one_line(
    folder: Path, capsys: Capture
) -> None:
    (folder / "own_mistake.py").write_text("1 / 0\n")
    error = refusal("train", "{}\n", ["--import", "own_mistake"], capsys)
    assert "--import own_mistake: ZeroDivisionError: division by zero" in error


def test_a_callback_that_refuses_its_arguments_is_an_error_of_one_line(
    shapes_data: Path, capsys: Capture
) -> None:
    content = trainer(callbacks=[called("EarlyStopping", monitor="val/CIDEr", mode="highest")])
    data = ["--data.reader.init_args.root", str(shapes_data)]
    assert "highest" in refusal("train", content, data, capsys)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--model.search.width=1000000", r"width: .* less than or equal to 1000\. .*1000000"),
        ("--data.limit=0", r"data.limit: .* greater than or equal to 1 .*0"),
        ("--seed_everything=-1", r"data.seed: .* greater than or equal to 0\. .*-1"),
        ("--seed_everything=true", "seed_everything: give a whole number"),
        ("--seed_everything=false", "seed_everything: give a whole number"),
        ("--trainer.accumulate_grad_batches=0", "batches: give a whole number from 1 to .* not 0"),
        ("--model.learning_rate=" + "9" * 400, r"model.learning_rate: .* equal to 100"),
        ("--trainer.precision=bf16-true", "trainer.precision: .* not 'bf16-true'"),
        ("--trainer.precision=16-true", "trainer.precision: .* not '16-true'"),
        ("--trainer.precision=64-true", "trainer.precision: .* not '64-true'"),
        ("--trainer.precision=transformer-engine", "trainer.precision: .* not 'transformer-engin"),
        ("--max_epochs=3", r"did you mean 'trainer\.max_epochs'\?"),
        ("--batch_size=3", r"did you mean 'data\.batch_size'\?"),
        ("--epochs=3", r"did you mean 'trainer\.m.._epochs' or 'trainer\.m.._epochs'\?"),
        ("--batch-size=3", r"did you mean 'data\.batch_size'\?"),
        ("--trainer.max-epochs=3", r"did you mean 'trainer\.max_epochs'\?"),
        ("--gpus=1", r"unknown option --gpus; see captioning train --help"),
        ("--model.decoder.hidden=8", r"did you mean 'hidden_dim'\?"),
        ("--model.decoder=LSTMDecodr", r"not name 'LSTMDecodr'; did you mean 'LSTMDecoder'\?"),
        ("--model.decoder=captioning.models.LSTMDecodr", r"; did you mean 'captioning\.models\.L"),
        ("--model.decoder=captioning.kernels.fast_lstm.FastLSTM", r"may not name 'captioning\.k"),
    ],
    ids=lambda value: value[:30],
)
def test_a_wrong_option_is_named_with_its_range_or_what_it_may_have_meant(
    tiny_config: Path, option: str, told: str
) -> None:
    with plain_messages(), pytest.raises(UsageError, match=told):
        TrainCLI(["--config", str(tiny_config), option])


@pytest.mark.parametrize(("given", "kind"), [("1", int), ("1.0", float)])
def test_one_batch_and_all_batches_stay_apart(
    tiny_config: Path, tmp_path: Path, given: str, kind: type
) -> None:
    """Lightning means one batch by 1 and all of them by 1.0."""
    options = ["--trainer.limit_val_batches", given, "--trainer.default_root_dir", str(tmp_path)]
    with plain_messages():
        cli = TrainCLI(["--config", str(tiny_config), *options])
    assert type(cli.settings()["trainer"]["limit_val_batches"]) is kind


@pytest.mark.parametrize(
    "part",
    [
        "callbacks: [{class_path: EarlyStopping, init_args: {monitor: val/none}}]",
        "callbacks: [{class_path: captioning.training.callbacks.StopEarly, "
        "init_args: {monitor: val/BLEU-4, mode: max}}]",
        "logger: {class_path: CSVLogger, init_args: {save_dir: run, flush_logs_every_n_steps: 0}}",
    ],
    ids=["a missing score", "a callback twice", "a division by zero"],
)
def test_what_lightning_does_not_check_is_one_line(
    part: str, tiny_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "delta.yaml").write_text(f"trainer: {{default_root_dir: run, {part}}}")
    configs = ["--config", str(tiny_config), "--config", str(tmp_path / "delta.yaml")]
    assert main(["train", *configs, "--validation_page.images=0"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("captioning: ")


def test_a_training_on_several_machines_says_for_whom_it_waits(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("MASTER_PORT", "29123")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    options = ["--trainer.num_nodes=2", "--trainer.strategy=ddp", "--trainer.devices=1"]
    with plain_messages():
        TrainCLI(["--config", str(tiny_config), f"--trainer.default_root_dir={tmp_path}", *options])
    told = "machine 1 of 2 waits for the others at 10.0.0.1, port 29123"
    assert told in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "options",
    [
        ["--model.encoder.init_args.backbone=timm/vit_giant_patch14_224"],
        [
            "--model.decoder.init_args.hidden_dim=16384",
            "--model.decoder.init_args.embedding_dim=9999",
        ],
    ],
    ids=["a giant backbone", "wide layers"],
)
def test_a_model_that_would_fill_the_memory_is_refused_while_it_is_built(
    options: list[str], tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "MOST_PARAMETERS", 10_000_000)
    options.append(f"--trainer.default_root_dir={tmp_path}")
    with plain_messages(), pytest.raises(InputError, match="more than 10,000,000 parameters"):
        TrainCLI(["--config", str(tiny_config), *options])


def test_other_parsers_of_the_process_may_import_what_they_like(tiny_config: Path) -> None:
    with plain_messages(), pytest.raises(UsageError):
        TrainCLI(["--config", str(tiny_config), "--no_such_option=1"])
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--call", type=Callable)
    assert parser.parse_args(["--call=math.sqrt"]).call is math.sqrt


def test_what_lightning_refuses_as_it_starts_is_one_line(tiny_config: Path, tmp_path: Path) -> None:
    options = ["--trainer.val_check_interval", "12", "--trainer.default_root_dir", str(tmp_path)]
    with pytest.raises(InputError, match=r"trainer cannot do this: .*val_check_interval"):
        train(["--config", str(tiny_config), *options])

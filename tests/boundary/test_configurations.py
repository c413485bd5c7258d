"""Configurations of strangers execute nothing, and change nothing but the run's folder."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonargparse
import pytest
import yaml

from captioning.errors import InputError
from captioning.training.train_cli import TrainCLI, plain_messages

MARK = {"command": "touch marker"}

EXECUTIONS: dict[str, dict[str, Any]] = {
    "os.system": MARK,
    "posix.system": MARK,
    "subprocess.Popen": {"args": ["touch", "marker"]},
    "subprocess.call": {"popenargs": ["touch marker"], "shell": True},
    "builtins.open": {"file": "marker", "mode": "w"},
    "builtins.exec": {"source": "open('marker', 'w')"},
    "runpy.run_path": {"path_name": "hostile.py"},
    "importlib.import_module": {"name": "hostile"},
    "hostile.Class": {},
    "logging.FileHandler": {"filename": "marker"},
    "torch.load": {"f": "hostile.pickle", "weights_only": False},
    "torch.hub.load": {"repo_or_dir": ".", "model": "hostile", "source": "local"},
    "captioning.files.write_json": {"path": "marker", "value": 1},
    "captioning.models.LSTMDecoder.__init__.__globals__": {},
    "captioning.training.module.CaptioningModule.load_from_checkpoint": {
        "checkpoint_path": "hostile.pickle",
        "weights_only": False,
    },
    "pytorch_lightning.callbacks.LambdaCallback": {"setup": "os.getcwd"},
    "pytorch_lightning.callbacks.DeviceStatsMonitor": {},
}
"""Paths that do something when they are imported or called, with arguments."""

PLACES: tuple[tuple[str, ...], ...] = (
    ("model", "encoder"),
    ("model", "decoder"),
    ("model", "decoder", "init_args", "attention"),
    ("model", "search"),
    ("model", "objective"),
    ("data", "reader"),
    ("trainer", "callbacks"),
    ("trainer", "logger"),
    ("trainer", "strategy"),
    ("trainer", "plugins"),
    ("trainer", "profiler"),
)

OTHERS: dict[str, str] = {
    "a tag that calls": "model: !!python/object/apply:os.system [touch marker]\n",
    "a function for a strategy": "trainer: {strategy: {class_path: DDPStrategy, "
    "init_args: {ddp_comm_hook: os.abort}}}\n",
    "an address for W&B's key": "trainer: {logger: {class_path: WandbLogger, "
    "init_args: {settings: {base_url: 'http://localhost:1'}}}}\n",
    "the same by another way": "trainer: {logger: {class_path: WandbLogger, "
    "dict_kwargs: {settings: {base_url: 'http://localhost:1'}}}}\n",
    "an earlier run to be overwritten": "overwrite: true\n",
    "a run to be resumed": "resume: true\n",
    "a further configuration": "config: further.yaml\n",
    "a path for a group": "model: further.yaml\n",
    "a module to import": "import: hostile\n",
    "a hundred thousand brackets": "trainer: " + "[" * 100_000,
    "a list for a group": "trainer: [1]\n",
    "no mapping at all": "- 1\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which `marker` appears where anything is executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("hostile.py", "hubconf.py"):
        Path(name).write_text("open('marker', 'w').close()\n")
    Path("hostile.pickle").write_bytes(b"cposix\nsystem\n(S'touch marker'\ntR.")
    Path("further.yaml").write_text(yaml.safe_dump({"model": {"decoder": "os.system"}}))
    return tmp_path


def build(tiny_config: Path, *options: str) -> TrainCLI:
    """The parts of a training, as far as a stranger's configuration is concerned."""
    with plain_messages():
        return TrainCLI(["--config", str(tiny_config), *options])


def check_refused(tiny_config: Path, text: str) -> None:
    Path("hostile.yaml").write_text(text)
    before = sorted(Path().iterdir())
    with pytest.raises(InputError) as error:
        build(tiny_config, "--config", "hostile.yaml")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("number", range(len(EXECUTIONS)), ids=list(EXECUTIONS))
def test_a_path_in_a_configuration_is_not_executed(number: int, tiny_config: Path) -> None:
    path, arguments = list(EXECUTIONS.items())[number]
    *groups, last = PLACES[number % len(PLACES)]
    value: Any = {"class_path": path, "init_args": arguments}
    content: dict[str, Any] = {last: [value] if last in ("callbacks", "plugins") else value}
    for group in reversed(groups):
        content = {group: content}
    if "attention" in last:
        content["model"]["decoder"]["class_path"] = "captioning.models.LSTMDecoder"
    check_refused(tiny_config, yaml.safe_dump(content))


@pytest.mark.parametrize("path", ["os.system", "hostile.Class", "torch.hub.load"])
def test_a_bare_path_is_not_imported(path: str, tiny_config: Path) -> None:
    check_refused(tiny_config, yaml.safe_dump({"model": {"decoder": path, "search": path}}))


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_ways_to_reach_beyond_a_configuration(text: str, tiny_config: Path) -> None:
    check_refused(tiny_config, text)


def test_help_for_a_class_imports_nothing(tiny_config: Path) -> None:
    with pytest.raises((InputError, SystemExit)):
        build(tiny_config, "--model.decoder.help", "hostile.Class")
    assert not Path("marker").exists()


OWN = """
import os

from captioning.models import LSTMDecoder


class Own(LSTMDecoder):
    pass


def build(*arguments, **options):
    os.system("touch marker")
"""


def test_classes_of_an_imported_module_may_be_named(tiny_config: Path) -> None:
    Path("own_decoder.py").write_text(OWN)
    with pytest.raises(InputError, match="modules given by --import"):
        build(tiny_config, "--model.decoder", "own_decoder.Own")
    options = ("--import", "own_decoder", "--trainer.default_root_dir", "run")
    cli = build(tiny_config, *options, "--model.decoder", "own_decoder.Own")
    assert type(cli.model.model.decoder).__name__ == "Own"
    with pytest.raises(InputError):
        build(tiny_config, *options, "--model.decoder", "own_decoder.build")
    assert not Path("marker").exists()


def test_other_parsers_of_the_process_import_what_they_like(tiny_config: Path) -> None:
    with pytest.raises(InputError, match="no_such_option"):
        build(tiny_config, "--no_such_option=1")
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--call", type=Callable)
    assert parser.parse_args(["--call=math.sqrt"]).call is math.sqrt

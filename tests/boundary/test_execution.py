"""Files of strangers execute nothing, and change nothing: one list of payloads over all loaders."""

import io
import math
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonargparse
import numpy as np
import pytest
import yaml

from captioning.captioner import load
from captioning.errors import InputError
from captioning.training.train_cli import TrainCLI, plain_messages
from tests.boundary.loaders import LOADERS, checkpoint, exported, training
from tests.boundary.test_damage import changed

MARK = {"command": "touch marker"}

PAYLOADS: dict[str, dict[str, Any]] = {
    "os.system": MARK,
    "subprocess.Popen": {"args": ["touch", "marker"]},
    "builtins.open": {"file": "marker", "mode": "w"},
    "runpy.run_path": {"path_name": "hostile.py"},
    "hostile.Class": {},
    "torch.load": {"f": "hostile.pickle", "weights_only": False},
    "torch.hub.load": {"repo_or_dir": ".", "model": "hostile", "source": "local"},
    "captioning.files.write_json": {"path": "marker", "value": 1},
    "captioning.models.LSTMDecoder.__init__.__globals__": {},
    "captioning.training.module.CaptioningModule.load_from_checkpoint": {
        "checkpoint_path": "hostile.pickle",
        "weights_only": False,
    },
    "pytorch_lightning.callbacks.LambdaCallback": {"setup": "os.getcwd"},
}
"""Paths that do something when they are imported or called, with arguments."""

PLACES = (
    *("model.encoder", "model.decoder", "model.decoder.init_args.attention", "model.search"),
    *("model.objective", "data.reader", "trainer.callbacks", "trainer.logger", "trainer.strategy"),
    *("trainer.plugins", "trainer.profiler"),
)
"""Where a configuration of a training names classes."""

OTHERS: dict[str, str] = {
    "a tag that calls": "model: !!python/object/apply:os.system [touch marker]\n",
    "a function for a strategy": "trainer: {strategy: {class_path: DDPStrategy, "
    "init_args: {ddp_comm_hook: os.abort}}}\n",
    "an address for W&B's key": "trainer: {logger: {class_path: WandbLogger, "
    "init_args: {settings: {base_url: 'http://localhost:1'}}}}\n",
    "the same by another way": "trainer: {logger: {class_path: WandbLogger, "
    "dict_kwargs: {settings: {base_url: 'http://localhost:1'}}}}\n",
    "an earlier run to be overwritten": "overwrite: true\n",
    "a further configuration": "config: further.yaml\n",
    "a module to import": "import: hostile\n",
    **{
        f"a further file for the key {part}": f"{part}: further.yaml\n"
        for part in ("trainer", "model", "data", "checkpoints", "early_stopping")
    },
    "an alias": "model: {learning_rate: &rate 0.1, encoder_learning_rate: *rate}\n",
    "an alias in a text": "data: {leave_out: '[&name a, *name]'}\n",
    "a hundred thousand brackets": "trainer: " + "[" * 100_000,
    "no mapping at all": "- 1\n",
}
"""Other ways to reach beyond a configuration."""


def check_refused(read: Callable[[Path], object], name: str, content: bytes) -> None:
    """Read a file with an error of one line, which changes nothing in the working folder."""
    Path(name).write_bytes(content)
    before = sorted(Path().iterdir())
    with pytest.raises(InputError) as error:
        read(Path(name))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    assert sorted(Path().iterdir()) == before


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("path", "place"), [*zip(PAYLOADS, PLACES, strict=True)])
def test_a_path_in_a_configuration_is_not_executed(path: str, place: str) -> None:
    *groups, last = place.split(".")
    value: Any = {"class_path": path, "init_args": PAYLOADS[path]}
    content: dict[str, Any] = {last: [value] if last in ("callbacks", "plugins") else value}
    for group in reversed(groups):
        content = {group: content}
    if last == "attention":
        content["model"]["decoder"]["class_path"] = "captioning.models.LSTMDecoder"
    for config in (content, {"model": {"decoder": path, "search": path}}):
        check_refused(training, "hostile.yaml", yaml.safe_dump(config).encode())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("path", PAYLOADS)
def test_a_path_in_a_model_is_not_executed(path: str) -> None:
    for place in (("search",), ("preprocessing",), ("model", "encoder"), ("model", "decoder")):
        config = changed(place, {"class": path, **PAYLOADS[path]})
        check_refused(load, "model.safetensors", exported(config))
    attention = {"class_name": path, **PAYLOADS[path]}
    config = changed(("model", "decoder", "attention"), attention)
    check_refused(load, "model.safetensors", exported(config))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_a_configuration_reaches_nothing_else(text: str) -> None:
    check_refused(training, "hostile.yaml", text.encode())


class Touch:
    """Pickled, it makes a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("marker"),)


def archived() -> bytes:
    """A checkpoint with another pickle in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(checkpoint())) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.infolist():
            is_pickle = entry.filename.endswith("data.pkl")
            new.writestr(entry.filename, pickle.dumps(Touch()) if is_pickle else old.read(entry))
    return file.getvalue()


def array() -> bytes:
    file = io.BytesIO()
    np.savez(file, words=np.array([Touch()], dtype=object))
    return file.getvalue()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("pickled", [lambda: pickle.dumps(Touch()), archived, array])
def test_a_pickle_is_not_executed(kind: str, pickled: Callable[[], bytes]) -> None:
    check_refused(LOADERS[kind].read, LOADERS[kind].name, pickled())


@pytest.mark.usefixtures("folder")
def test_help_for_a_class_imports_nothing() -> None:
    with pytest.raises((InputError, SystemExit)), plain_messages():
        TrainCLI(["--config", "tiny.yaml", "--model.decoder.help", "hostile.Class"])
    assert not Path("marker").exists()


@pytest.mark.usefixtures("folder")
def test_other_parsers_of_the_process_import_what_they_like() -> None:
    with pytest.raises(InputError):
        training(Path("missing.yaml"))
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--call", type=Callable)
    assert parser.parse_args(["--call=math.sqrt"]).call is math.sqrt

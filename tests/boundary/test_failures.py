"""What happens to everybody: kills, full disks and memories, a folder used twice, a bad upload."""

import csv
import errno
import io
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import get_worker_info

from captioning import files
from captioning.captioner import Captioner
from captioning.captioner.inference_network import InferenceNetwork
from captioning.commands import main
from captioning.data.preprocessing import Preprocessing
from captioning.files import only_writer
from captioning.training.module import CaptioningModule
from tests.conftest import draw_photos, files_no_larger_than, quick_ones
from tests.serving.conftest import Ask, wait_for, waiting

Capture = pytest.CaptureFixture[str]
Command = Callable[..., list[str]]

WRITERS: dict[str, tuple[str, str, int]] = {
    "shapes": ("shapes OUT --train 6 --val 2 --test 2 --pixels 48", "scenes_train.json", 1),
    "features": (
        "features --config CONFIG --data.features OUT --model.encoder.init_args.trainable_stages 0",
        "features-000001.safetensors",
        1,
    ),
    "caption": (
        "caption PHOTOS --model MODEL --device cpu --shard-size 2 --out OUT",
        "captions-00001.jsonl",
        1,
    ),
    "train": (
        "train --config CONFIG --trainer.default_root_dir OUT --trainer.log_every_n_steps 1 "
        "--save_every 0 --validation_page.images 0 --validation_grounding.images 0 "
        "--trainer.max_epochs 2",
        "last.ckpt",
        2,
    ),
    "export": ("export MODEL OUT", "model.safetensors", 1),
}
"""Commands, and when they are killed: before they rename this file for the n-th time."""


@pytest.fixture
def command(tiny_config: Path, checkpoint: Path, tmp_path: Path) -> Command:
    """The arguments of a command that writes to a folder."""
    draw_photos(tmp_path, *(f"photos/{number}.png" for number in range(5)))
    paths = {"CONFIG": tiny_config, "MODEL": checkpoint, "PHOTOS": tmp_path / "photos"}

    def arguments(name: str, out: Path, *options: str) -> list[str]:
        words = WRITERS[name][0].split()
        return [str((paths | {"OUT": out}).get(word, word)) for word in words] + [*options]

    return arguments


def forked(work: Callable[[], object]) -> int:
    """The id of a child process that does this; it must be killed."""
    process = os.fork()
    if not process:
        try:
            work()
        finally:
            os._exit(0)
    return process


def killed_at(name: str, count: int, arguments: list[str]) -> None:
    """Run a command that is killed when it renames a file of this name for the n-th time."""
    replace, seen = Path.replace, itertools.count(1)

    def replaced(self: Path, target: Path) -> Path:
        if target.name == name and next(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    def work() -> None:
        Path.replace = replaced  # type: ignore[method-assign, assignment]
        main(arguments)

    _, status = os.waitpid(forked(work), 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def written(folder: Path) -> dict[str, Any]:
    """What a command has written; of checkpoints the tensors, and the losses of its steps."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".ckpt":
            saved = torch.load(path, weights_only=True)
            tensors = [*saved["state_dict"].values()]
            for state in saved["optimizer_states"][0]["state"].values():
                tensors += state.values()
            found[path.name] = [value.tolist() for value in tensors]
        elif path.name == "metrics.csv":
            rows = csv.DictReader(path.read_text().splitlines())
            losses = [(row["step"], row["train/loss"]) for row in rows if row.get("train/loss")]
            found["losses"] = found.get("losses", []) + losses
        elif path.is_file() and path.name != "config.yaml":  # which names the folder
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def last_line(capsys: Capture) -> str:
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", quick_ones(WRITERS, lambda name: name != "train"))
def test_after_a_kill_and_a_full_disk_a_command_goes_on(
    name: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("captioning.data.feature_cache.BATCH", 2)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    _, victim, count = WRITERS[name]
    resume = ["--resume"] if name == "train" else []
    assert main(command(name, whole)) == 0
    size = next(whole.rglob(victim)).stat().st_size

    killed_at(victim, count, command(name, parts))
    kept = written(parts)
    assert kept != written(whole)
    with files_no_larger_than(size // 2):
        assert main(command(name, parts, *resume)) == 1
    assert ": cannot be written (" in last_line(capsys)
    assert written(parts) == kept

    assert main(command(name, parts, *resume)) == 0
    assert written(parts) == written(whole)
    if name != "shapes":  # nothing is left of what was cut off
        assert not list(parts.glob(".*.*"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", ["train", "caption"])
def test_a_folder_has_one_writer_until_it_is_killed(
    name: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.1)
    out, (ready, held) = tmp_path / "out", os.pipe()
    out.mkdir()

    def hold() -> None:
        with only_writer(out):
            os.write(held, b".")
            signal.pause()

    process = forked(hold)
    try:
        os.read(ready, 1)
        assert main(command(name, out)) == 1
        assert f"{out}: another process is writing there" in last_line(capsys)
        assert not written(out)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    with only_writer(out):
        assert [path.name for path in out.iterdir()] == [".lock"]


def test_a_killed_worker_of_a_training_is_one_line(command: Command, tmp_path: Path) -> None:
    """In a process of its own: PyTorch raises the error again at each later signal."""
    errors, arguments = tmp_path / "errors", command("train", tmp_path / "out")

    def read(self: Preprocessing, photo: Path) -> None:
        assert get_worker_info()
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        Preprocessing.__call__ = read  # type: ignore[method-assign, assignment]
        with errors.open("w") as sys.stderr:
            code = main([*arguments, "--data.workers", "1"])
        os._exit(code)

    _, status = os.waitpid(forked(work), 0)
    assert os.waitstatus_to_exitcode(status) == 1
    last = errors.read_text().splitlines()[-1]
    assert last.startswith("captioning: a worker process was killed; give more memory")


def test_a_worker_killed_while_it_sends_a_batch_is_the_same_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def reset(*given: object) -> None:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    arguments = command("train", tmp_path / "out")
    monkeypatch.setattr("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", reset)
    assert main(arguments) == 1
    assert "a worker process was killed; give more memory" in last_line(capsys)


@pytest.mark.integration
def test_a_killed_child_that_draws_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"

    def kill() -> None:
        wait_for(lambda: out.exists() and any(out.glob("train/*.jpg")))
        os.kill(next(iter(multiprocessing.process._children)).pid, signal.SIGKILL)  # type: ignore[attr-defined]

    killer = threading.Thread(target=kill)
    killer.start()
    counts = ["--train", "3000", "--val", "1", "--test", "1", "--processes", "2"]
    assert main(["shapes", str(out), *counts]) == 1
    killer.join()
    assert "a worker process was killed" in last_line(capsys)


def full(*given: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")


@pytest.mark.parametrize(
    ("name", "fill", "owner"),
    [
        ("train", full, "the GPU's"),
        ("caption", full, "the GPU's"),
        ("caption", lambda *given: bytes(2**60), "the"),
        ("caption", lambda *given: np.zeros(2**60, np.uint8), "the"),
        ("caption", lambda *given: torch.zeros(2**60, dtype=torch.uint8), "the"),
    ],
    ids=["train", "GPU", "Python", "NumPy", "PyTorch"],
)
def test_a_full_memory_is_one_line(
    name: str,
    fill: Callable[..., object],
    owner: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    arguments = command(name, tmp_path / "out")
    monkeypatch.setattr(CaptioningModule, "training_step", fill)
    monkeypatch.setattr(InferenceNetwork, "encode", fill)
    assert main(arguments) == 1
    assert f"{owner} memory is full; give a smaller --batch-size" in last_line(capsys)


def test_of_nine_uploads_two_faulty_ones_fail_alone(
    ask: Ask, held: threading.Event, captioner: Captioner, photos: list[bytes]
) -> None:
    """One that is cut short, and one that the model fails on."""
    photos = photos[:9]
    photos[2] = photos[2][:300]
    odd = captioner.preprocessing(Image.open(io.BytesIO(photos[5])).convert("RGB")).pixels

    def fail(module: object, images: tuple[torch.Tensor]) -> None:
        if any(image.equal(odd) for image in images[0]):
            raise torch.OutOfMemoryError("CUDA out of memory")

    client = ask(batch_size=9)
    hook = captioner.network.accelerated.encoder.register_forward_pre_hook(fail)
    with ThreadPoolExecutor(9) as clients:
        answers = [clients.submit(client.post, "/caption", files={"photo": p}) for p in photos]
        try:
            wait_for(lambda: waiting(client) == 8)
        finally:
            held.set()
        codes = [answer.result().status_code for answer in answers]
    hook.remove()
    assert codes == [{2: 415, 5: 500}.get(number, 200) for number in range(9)]
    assert client.post("/caption", files={"photo": photos[0]}).status_code == 200

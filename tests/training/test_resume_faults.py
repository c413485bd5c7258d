"""What `--resume` says to a checkpoint that it cannot go on from."""

import os
import zipfile
from pathlib import Path

import pytest
import torch

from captioning.errors import InputError
from captioning.training.module import PROGRESS
from tests.training.conftest import Train, saved

EPOCHS = "--trainer.max_epochs=1"


@pytest.fixture
def last(trained: Train) -> Path:
    return trained("run", EPOCHS) / "last.ckpt"


def refusal(trained: Train, *options: str) -> str:
    with pytest.raises(InputError) as error:
        trained("run", "--resume", "--trainer.max_epochs=2", *options)
    told = str(error.value)
    assert "last.ckpt: cannot be resumed from (" in told
    assert "start anew with --overwrite" in told
    assert "\n" not in told
    return told


def test_bad_checkpoints_are_refused_in_one_line(trained: Train, last: Path) -> None:
    whole, content = last.read_bytes(), saved(last.parent)
    flipped = bytearray(whole)
    flipped[len(whole) * 2 // 3] ^= 1  # of the optimizer's state, most likely
    for damaged in [b"", b"text", whole[:-1], whole[: len(whole) // 2], bytes(flipped)]:
        last.write_bytes(damaged)
        refusal(trained)
    for key in [*PROGRESS, "state_dict", "captioner"]:
        torch.save(content | {key: 3.5}, last)
        refusal(trained)
    last.unlink()
    os.mkfifo(last)
    refusal(trained)


def test_numbers_that_are_not_finite_are_not_trained_on(trained: Train, last: Path) -> None:
    content = saved(last.parent)
    name = next(name for name in content["state_dict"] if name.endswith("output.bias"))
    content["state_dict"][name][0] = float("nan")
    torch.save(content, last)
    assert f"{name} holds numbers that are not finite" in refusal(trained)
    content = saved(last.parent)
    content["state_dict"][name][0] = 0
    del content["checksum"], content["progress_checksum"]
    moments = content["optimizer_states"][0]["state"][0]
    moments["exp_avg"].fill_(float("inf"))
    torch.save(content, last)
    assert "the optimizer's exp_avg holds numbers that are not finite" in refusal(trained)


def test_records_that_are_longer_than_their_tensors_are_refused(trained: Train, last: Path) -> None:
    with zipfile.ZipFile(last) as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    longest = max(parts, key=lambda name: len(parts[name]))
    with zipfile.ZipFile(last, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content * 2 if name == longest else content)
    refusal(trained)


def test_a_changed_value_of_the_progress_is_refused(trained: Train, last: Path) -> None:
    content = saved(last.parent)
    content["loops"]["fit_loop"]["state_dict"] = {"x": {}}
    torch.save(content, last)
    assert "its progress differs from its checksum" in refusal(trained)


def test_another_model_is_named(trained: Train, last: Path) -> None:
    assert "shape" in refusal(trained, "--model.decoder.init_args.hidden_dim=9")
    assert "other parts" in refusal(trained, "--model.encoder.init_args.trainable_stages=0")


def test_a_sound_checkpoint_is_resumed_from(trained: Train, last: Path) -> None:
    trained("run", "--resume", "--trainer.max_epochs=2")
    assert saved(last.parent)["epoch"] == 1

"""Checkpoints that were changed or damaged: the same captions, or an error of one line."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.captioner import Captioner, load
from captioning.errors import InputError

Saved = dict[str, Any]
Change = Callable[[Saved], object]

PHOTO = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 48, 3), dtype=np.uint8))


def content(captioner: Captioner) -> Saved:
    """What a training writes of a captioner, and something of its optimizer."""
    state = {f"model.{name}": value for name, value in captioner.model.state_dict().items()}
    config: Saved = {"captioner": captioner.config, "state_dict": state, "epoch": 3}
    return config | {"optimizer_states": [torch.ones(1000)]}


def written(saved: Saved, path: Path) -> Path:
    torch.save(saved, path)
    return path


def said(path: Path) -> tuple[Any, ...]:
    [caption] = load(path)([PHOTO])
    return caption.words, caption.score, caption.probabilities


def assert_same_or_refused(path: Path, expected: tuple[Any, ...]) -> bool:
    """Whether it was refused."""
    try:
        found = said(path)
    except InputError:
        return True
    assert found == expected
    return False


@pytest.fixture
def saved(captioner: Captioner) -> Saved:
    return content(captioner)


def test_every_missing_part_is_an_error_of_one_line(saved: Saved, tmp_path: Path) -> None:
    whole = ("model", "vocabulary", "preprocessing", "search", "default_map")
    of_model = ("encoder", "adapter", "decoder")
    for part in whole + of_model:
        changed = copy.deepcopy(saved)
        config = changed["captioner"]
        del (config["model"] if part in of_model else config)[part]
        with pytest.raises(InputError, match=f"changed.*the model's {part} is missing"):
            load(written(changed, tmp_path / "changed.ckpt"))


def test_a_checkpoint_of_an_earlier_version_is_refused(saved: Saved, tmp_path: Path) -> None:
    saved["captioner"] |= saved["captioner"].pop("model")
    with pytest.raises(InputError, match=r"old\.ckpt: written by an earlier version"):
        load(written(saved, tmp_path / "old.ckpt"))


def test_sizes_are_compared_before_memory_is_taken(saved: Saved, tmp_path: Path) -> None:
    width = 1_000_000
    saved["captioner"]["model"]["decoder"] |= {"hidden_dim": width, "embedding_dim": width}
    with pytest.raises(InputError, match=r"decoder\.\S+ has the shape .*1000000"):
        load(written(saved, tmp_path / "changed.ckpt"))


TENSOR_CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "a number": lambda tensor: 3.0,
    "none": lambda tensor: None,
    "another shape": lambda tensor: torch.zeros(3, 5, 7),
    "a scalar": lambda tensor: torch.zeros(()),
    "one more": lambda tensor: torch.cat([tensor.reshape(-1), torch.zeros(1)]),
    "nan": lambda tensor: tensor.double() * float("nan"),
    "infinite": lambda tensor: tensor.double() + float("inf"),
    "bytes": lambda tensor: tensor.to(torch.uint8),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "sparse": lambda tensor: (tensor + 1).to_sparse(),
    "no numbers": lambda tensor: tensor.to("meta"),
    "repeated": lambda tensor: torch.zeros(()).expand(tensor.shape),
    "transposed": lambda tensor: tensor[None].transpose(0, -1),
}


@pytest.mark.parametrize("change", TENSOR_CHANGES)
def test_a_changed_tensor_is_refused(
    saved: Saved, tmp_path: Path, change: str, recwarn: pytest.WarningsRecorder
) -> None:
    for name in random.Random(change).sample(sorted(saved["state_dict"]), 6):
        state = dict(saved["state_dict"])
        state[name] = TENSOR_CHANGES[change](state[name])
        path = written(saved | {"state_dict": state}, tmp_path / "changed.ckpt")
        with pytest.raises(InputError) as error:
            load(path)
        assert str(error.value).startswith(f"{path}: a damaged"), error.value


def test_a_missing_or_extra_tensor_is_refused(saved: Saved, tmp_path: Path) -> None:
    for name in random.Random(8).sample(sorted(saved["state_dict"]), 8):
        state = {other: value for other, value in saved["state_dict"].items() if other != name}
        with pytest.raises(InputError, match="lacks "):
            load(written(saved | {"state_dict": state}, tmp_path / "changed.ckpt"))
    state = saved["state_dict"] | {"model.decoder.third": torch.ones(3)}
    with pytest.raises(InputError, match=r"unexpected tensor 'decoder\.third'"):
        load(written(saved | {"state_dict": state}, tmp_path / "changed.ckpt"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(
    captioner: Captioner, tmp_path: Path, value: float
) -> None:
    for name, parameter in random.Random(9).sample(list(captioner.model.named_parameters()), 8):
        before = parameter.data.clone()
        parameter.data[(-1,) * parameter.dim()] = value
        with pytest.raises(InputError, match=f"{name} holds numbers that are not finite"):
            load(written(content(captioner), tmp_path / "changed.ckpt"))
        parameter.data = before


def test_a_flipped_byte_anywhere_is_refused_or_changes_nothing(
    saved: Saved, tmp_path: Path
) -> None:
    whole = written(saved, tmp_path / "whole.ckpt")
    expected = said(whole)
    data, chance = whole.read_bytes(), random.Random(4)
    changed, refused = tmp_path / "changed.ckpt", 0
    for place in [*chance.sample(range(len(data)), 25), *chance.sample(range(1500), 10)]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8)
        changed.write_bytes(flipped)
        refused += assert_same_or_refused(changed, expected)
    assert refused > 20


def test_a_file_cut_short_anywhere_is_refused(saved: Saved, tmp_path: Path) -> None:
    data = written(saved, tmp_path / "whole.ckpt").read_bytes()
    for length in [0, 1, 4, 100, *range(1000, len(data), len(data) // 8), len(data) - 1]:
        (tmp_path / "changed.ckpt").write_bytes(data[:length])
        with pytest.raises(InputError, match=r"changed\.ckpt: "):
            load(tmp_path / "changed.ckpt")

"""Manipulated checkpoints: values, tensors, bytes, and archives packed anew."""

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds.damage import damaged
from tests.campaign.kinds.places import NUMBERS, changed
from tests.campaign.world import World

CLASSES = (
    *("os.system", "builtins.exec", "evil.Evil", "captioning.models.LSTMDecoder", "Sampling"),
    *("Captioner", "Greedy", "LSTMDecoder", "EnsembleDecoder", "object", "", "\x1b[31m", 1, None),
)
"""Names of classes, of which few may stand for a part."""

HOSTILE = b"\x80\x02cos\nsystem\nX\x0e\x00\x00\x00touch executedq\x00\x85R."
"""A pickle that runs a command."""


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    (folder / "given").mkdir()
    model = folder / "given" / "model.ckpt"
    change, seed = random.choices(list(CHANGES), weights=list(CHANGES.values()))[0], random.random()
    commands = {
        "caption": ["caption", str(world.photos[0]), "--json", "--model", str(model)],
        "two models": [
            *("caption", str(world.photos[0]), "--json"),
            *("--model", str(world.model), "--model", str(model)),
        ],
        "evaluate": [
            *("evaluate", "--data", str(world.shapes), "--out", "out", "--limit", "1"),
            *("--model", str(model)),
        ],
        "initial": [
            *("train", "--config", str(world.config), "--trainer.max_steps", "3"),
            *("--trainer.default_root_dir", "out", "--model.initial", str(model)),
        ],
        "resume": [
            *("train", "--config", str(world.config), "--trainer.max_epochs", "2", "--resume"),
            *("--trainer.default_root_dir", str(model.parent)),
        ],
    }
    resumes = change is _value_of_training or random.random() < 0.15
    kind = "resume" if resumes else random.choice(("caption", "caption", *list(commands)[:4]))

    def manipulate() -> None:
        change(world, model, Random(seed))
        if kind == "resume":
            shutil.copyfile(model, model.with_name("last.ckpt"))

    is_same = change in (_bytes, _packed) and kind == "caption"
    expected = world.caption.read_text() if is_same else None
    label = f"{kind}: {(change.__doc__ or '').rstrip('.')}"
    return Case(label, _steps(commands[kind], folder, manipulate, expected))


def _steps(
    arguments: list[str], folder: Path, manipulate: Callable[[], None], expected: str | None
) -> Steps:
    outcome = yield Call(arguments, before=manipulate)
    found = judge.faults(outcome, folder)
    if outcome.code == 0 and "--json" in arguments:
        found += judge.no_json(outcome.out)
        if expected is not None and outcome.out != expected:
            found.append("other: a damaged file was read unnoticed, and gives another caption")
    return found + judge.half_written(folder)


def _loaded(world: World) -> dict[str, Any]:
    import torch

    saved: dict[str, Any] = torch.load(world.model, weights_only=True)
    return saved


def _save(saved: Any, path: Path) -> None:
    import torch

    torch.save(saved, path)


def _part(saved: dict[str, Any], random: Random) -> dict[str, Any]:
    """The configuration of a part of the captioner."""
    config = saved["captioner"]
    part: dict[str, Any] = random.choice(
        (*config["model"].values(), config["preprocessing"], config["search"])
    )
    return part


def _setting(world: World, path: Path, random: Random) -> None:
    """A value of the captioner's configuration."""
    saved = _loaded(world)
    changed(saved["captioner"], random)
    _save(saved, path)


def _number(world: World, path: Path, random: Random) -> None:
    """A number of the captioner's configuration."""
    saved = _loaded(world)
    part = _part(saved, random)
    names = [name for name, value in part.items() if not isinstance(value, str)]
    part[random.choice(names)] = random.choice(NUMBERS)
    _save(saved, path)


def _class(world: World, path: Path, random: Random) -> None:
    """The name of a class."""
    saved = _loaded(world)
    _part(saved, random)["class"] = random.choice(CLASSES)
    _save(saved, path)


def _vocabulary(world: World, path: Path, random: Random) -> None:
    """The words."""
    saved = _loaded(world)
    words = saved["captioner"]["vocabulary"]
    odd = ("", "\n", "\x1b[2J", "\ud800", "<pad>", "a" * 10**5, words[0], 1, None, ["x"])
    words[random.randrange(len(words))] = random.choice(odd)
    if random.random() < 0.3:
        saved["captioner"]["vocabulary"] = random.choice((words[:-1], [*words, "x"], [], "words"))
    _save(saved, path)


def _tensor(world: World, path: Path, random: Random) -> None:
    """The shape, type or values of a tensor."""
    import torch

    saved = _loaded(world)
    state = saved["state_dict"]
    name = random.choice([name for name in state if name.startswith("model.")])
    tensor = state[name]
    if tensor.dim() > 1 and random.random() < 0.3:
        state[name] = tensor.transpose(0, 1).contiguous()
        return _save(saved, path)
    state[name] = random.choice(
        (
            lambda: tensor.double(),
            lambda: tensor.half(),
            lambda: tensor.long(),
            lambda: tensor.to(torch.complex64),
            lambda: tensor.flatten(),
            lambda: tensor[None],
            lambda: tensor.reshape(-1)[:0],
            lambda: torch.zeros(1).expand(10**6, 10**6),
            lambda: torch.full_like(tensor, 1 if tensor.dtype == torch.long else float("nan")),
            lambda: tensor.to_sparse() if tensor.dim() else tensor,
            lambda: torch.empty(tensor.shape, device="meta"),
            lambda: None,
            lambda: "x",
        )
    )()
    return _save(saved, path)


def _values(world: World, path: Path, random: Random) -> None:
    """Values of all tensors that are no numbers, or very large ones."""
    saved = _loaded(world)
    wild = random.choice((float("nan"), float("inf"), -float("inf"), 1e38, 0.0))
    for name, tensor in saved["state_dict"].items():
        if name.startswith("model.decoder") or random.random() < 0.2:
            tensor.mul_(0).add_(wild) if tensor.is_floating_point() else tensor.mul_(-1)
    _save(saved, path)


def _names(world: World, path: Path, random: Random) -> None:
    """Tensors that are missing, renamed, or too many."""
    saved = _loaded(world)
    state = saved["state_dict"]
    for name in random.sample(list(state), k=random.choice((1, 5))):
        tensor = state.pop(name)
        if random.random() < 0.5:
            state[random.choice((name + ".x", "model.", "model.x", "", 1))] = tensor
    _save(saved, path)


def _value_of_training(world: World, path: Path, random: Random) -> None:
    """A value of the training's state."""
    saved = _loaded(world)
    rest = {name: saved.pop(name) for name in ("state_dict", "captioner")}
    changed(saved, random)
    _save(rest | saved, path)


def _another_object(world: World, path: Path, random: Random) -> None:
    """No checkpoint but another object."""
    saved = _loaded(world)
    _save(
        random.choice(
            (
                *([], {}, None, 1, "x", [saved], saved["state_dict"], saved["captioner"]),
                {"captioner": saved["captioner"]},
                {"captioner": {}, "state_dict": {}},
                {"state_dict": saved["state_dict"]},
            )
        ),
        path,
    )


def _bytes(world: World, path: Path, random: Random) -> None:
    """Damaged bytes."""
    path.write_bytes(damaged(world.model.read_bytes(), random))


def _packed(world: World, path: Path, random: Random) -> None:
    """The archive compressed anew, or in another order."""
    entries = _entries(world)
    if random.random() < 0.3:
        random.shuffle(entries)
    how = random.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2))
    _pack(entries, path, how)


def _exchanged(world: World, path: Path, random: Random) -> None:
    """Files of the archive exchanged, emptied, doubled, or of more bytes than they should have."""
    entries = _entries(world)
    tensors = [at for at, (name, _) in enumerate(entries) if "/data/" in name]
    at, other = random.sample(tensors, 2)
    name, content = entries[at]
    entries[at] = (
        name,
        random.choice((b"", content[:-1], content * 2, entries[other][1], random.randbytes(10))),
    )
    if random.random() < 0.3:
        entries.append(entries[other])
    _pack(entries, path, zipfile.ZIP_STORED)


def _pickle(world: World, path: Path, random: Random) -> None:
    """A pickle that runs a command, alone or in the archive."""
    if random.random() < 0.3:
        path.write_bytes(HOSTILE)
        return
    entries = [
        (name, HOSTILE if name.endswith("data.pkl") else content)
        for name, content in _entries(world)
    ]
    _pack(entries, path, zipfile.ZIP_STORED)


def _entries(world: World) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(world.model) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def _pack(entries: list[tuple[str, bytes]], path: Path, how: int) -> None:
    import warnings

    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", how) as archive:
        warnings.simplefilter("ignore")  # names used twice are wanted
        for name, content in entries:
            archive.writestr(name, content)
    path.write_bytes(file.getvalue())


CHANGES: dict[Callable[[World, Path, Random], None], float] = {
    _setting: 18,
    _number: 16,
    _class: 5,
    _vocabulary: 6,
    _tensor: 12,
    _values: 5,
    _names: 4,
    _value_of_training: 10,
    _another_object: 3,
    _bytes: 12,
    _packed: 4,
    _exchanged: 5,
    _pickle: 3,
}
"""What is manipulated, and how often."""

CHECKPOINTS = Kind("checkpoints", whole=500, tenth=50, case=_case)

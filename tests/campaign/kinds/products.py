"""Numbers that are each in range, and whose product is not: in checkpoints and among options.

A caption is written, or the numbers are refused before they take memory or time.
"""

from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.world import World

BUILT = 5_000_000
"""A model of at most so many parameters gets tensors that fit it."""

SEARCHES: dict[str, dict[str, int]] = {
    "BeamSearch": {"width": 1000, "max_length": 1000, "no_repeat_ngram": 500, "min_length": 1000},
    "DiverseBeamSearch": {"groups": 1000, "width": 1000, "max_length": 1000},
    "Greedy": {"max_length": 1000, "min_length": 1000, "no_repeat_ngram": 500},
    "Sampling": {"captions": 100_000, "max_length": 1000, "no_repeat_ngram": 500},
}

SIZES: dict[str, dict[str, int]] = {
    "preprocessing": {"size": 1024},
    "encoder": {"grid": 64},
    "adapter": {"projection_dim": 16_384, "region_layers": 100, "region_heads": 256},
    "decoder": {"embedding_dim": 16_384, "hidden_dim": 16_384, "attention_dim": 16_384},
    "vocabulary": {"words": 900_000},
}

OPTIONS: tuple[dict[str, int], ...] = (
    {"--beam": 1000, "--max-length": 1000, "--no-repeat-ngram": 500, "--min-length": 1000},
    {"--beam": 1000, "--captions": 1000, "--batch-size": 65_536, "--max-length": 1000},
    {"--sample": 0, "--captions": 1000, "--max-length": 1000, "--top-k": 1_000_000},
    {"--diverse": 0, "--captions": 1000, "--beam": 1000, "--max-length": 1000},
    {"--greedy": 0, "--max-length": 1000, "--min-length": 1000, "--no-repeat-ngram": 500},
)
"""Options of `caption` that go together; 0 stands for those without a number."""

SHARES = (1, 1, 0.5, 0.1, 0.03)


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    photos = list(map(str, world.photos[: random.choice((1, 12))]))
    if random.random() < 0.3:
        given = _part(random.choice(OPTIONS), random)
        for needed in ("--captions",) if "--diverse" in given else ():
            given.setdefault(needed, 3)
        options = [
            text for name, value in given.items() for text in (name, str(value))[: 1 + (value > 0)]
        ]
        call = Call(["caption", *photos, "--model", str(world.model), *options])
        return Case(" ".join(options), _steps(call, folder))
    (folder / "given").mkdir()
    model = folder / "given" / "model.ckpt"
    search = random.choice(list(SEARCHES))
    chosen: dict[str, dict[str, int]] = {"search": _part(SEARCHES[search], random)}
    for name in random.sample(list(SIZES), k=random.choice((0, 0, 1, 2))):
        chosen[name] = _part(SIZES[name], random)
    before = partial(_write, world, model, search, chosen)
    label = f"{search}, {len(photos)} photos: {chosen}"
    return Case(label, _steps(Call(["caption", *photos, "--model", str(model)], before), folder))


def _part(largest: dict[str, int], random: Random) -> dict[str, int]:
    names = sorted(random.sample(list(largest), k=random.randint(1, len(largest))))
    return {name: int(largest[name] * random.choice(SHARES)) for name in names}


def _steps(call: Call, folder: Path) -> Steps:
    outcome = yield call
    return judge.faults(outcome, folder, inputs=12)


def _write(world: World, path: Path, search: str, chosen: dict[str, dict[str, int]]) -> None:
    """A checkpoint with these numbers, and with tensors that fit if they are few enough."""
    import torch

    from captioning.captioner import Captioner

    saved: dict[str, Any] = torch.load(world.model, weights_only=True)
    config = deepcopy(saved["captioner"])
    config["search"] = {"class": f"captioning.search.{search}", **chosen["search"]}
    config["preprocessing"] |= chosen.get("preprocessing", {})
    for part in ("encoder", "adapter", "decoder"):
        config["model"][part] |= chosen.get(part, {})
    words = chosen.get("vocabulary", {}).get("words", 0)
    config["vocabulary"] += [f"word{each}" for each in range(words)]
    config["model"]["decoder"]["vocab_size"] += words
    width = chosen.get("adapter", {}).get("projection_dim")
    config["model"]["decoder"]["annotation_dim"] = (
        width or config["model"]["decoder"]["annotation_dim"]
    )
    saved["captioner"] = config
    try:
        with torch.device("meta"):
            model = Captioner.from_config(config, kernels=False).model
        if sum(each.numel() for each in model.parameters()) <= BUILT:
            tensors = saved["state_dict"]
            for name, wanted in model.state_dict().items():
                found = tensors.get(f"model.{name}")
                if found is None or found.shape != wanted.shape:
                    tensors[f"model.{name}"] = torch.empty(wanted.shape).uniform_(-0.1, 0.1)
    except Exception:  # numbers that do not go together; the command must say so
        pass
    torch.save(saved, path)


PRODUCTS = Kind("products", whole=100, tenth=8, case=_case)

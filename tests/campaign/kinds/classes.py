"""Every class that a configuration may name, alone and with other settings.

Where its type belongs, a training ends with a model that captions, or the class is refused in a
line; elsewhere it is refused.
"""

import inspect
import json
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.world import World

ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("embedding_dim", "hidden_dim", "attention_dim", "width", "inner_width"), 8),
    **dict.fromkeys(("layers", "heads", "region_heads", "images", "epochs", "seed"), 2),
    **{"mode": "max", "monitor": "val/BLEU-1", "minutes": 0, "path": "out/more.ckpt"},
    **{"save_dir": "out", "dirpath": "out/more", "name": "logged", "scheduling": {0: 2}},
    **{"backbone": "small", "weights": None, "offline": True, "compile_after": -1},
    "learning_rate": 1e-3,
}
"""Values of the arguments of this name, so that a class is small, quick, and finds its files."""

SETTINGS = (
    ("--kernels", "off"),
    ("--compile_after", "0"),
    ("--save_every", "0.001"),
    ("--seed_everything", "7"),
    ("--trainer.precision", "bf16-mixed"),
    ("--trainer.max_epochs", "2"),
    ("--trainer.max_steps", "2"),
    ("--trainer.accumulate_grad_batches", "2"),
    ("--trainer.gradient_clip_val", "1"),
    ("--trainer.check_val_every_n_epoch", "2"),
    ("--trainer.limit_val_batches", "0"),
    ("--trainer.fast_dev_run", "true"),
    ("--trainer.logger", "false"),
    ("--trainer.enable_progress_bar", "false"),
    ("--trainer.callbacks+=captioning.training.ExponentialAverage",),
    ("--early_stopping.patience", "0"),
    ("--data.batch_size", "1"),
    ("--data.workers", "1"),
    ("--data.augment", "true"),
    ("--data.captions_per_image", "1"),
    ("--data.similar_lengths", "false"),
    ("--data.tokenizer", "characters"),
    ("--data.fit", "pad"),
    ("--data.limit", "3"),
    ("--model.warmup", "0"),
    ("--model.initial", "MODEL"),
    ("--validation_grounding.images", "2"),
    ("--model.adapter.init_args.smooth", "true"),
    ("--model.schedule", "captioning.training.OneCycle"),
    ("--model.search", "captioning.search.Greedy"),
    ("--model.search", "captioning.search.Sampling"),
    ("--model.objective", "captioning.training.SelfCritical"),
    ("--model.decoder.init_args.attention", "captioning.models.MultiHeadAttention"),
    ("--model.decoder.init_args.tie_embeddings", "true"),
    ("--model.encoder.init_args.trainable_stages", "0"),
    ("--model.encoder.init_args.grid", "2"),
)
"""Other settings that are right."""


def _prepare(world: World) -> None:
    """Find the classes, each by one of its paths, with the option where its type belongs."""
    from pytorch_lightning import callbacks, loggers, strategies

    from captioning.data.readers import Reader
    from captioning.models import Adapter, Decoder, Encoder
    from captioning.models.attention import Attention
    from captioning.search import Search
    from captioning.training import Objective, Schedule
    from captioning.training.configuration import allow_list

    options = {
        "--data.reader": Reader,
        "--model.encoder": Encoder,
        "--model.adapter": Adapter,
        "--model.decoder": Decoder,
        "--model.decoder.init_args.attention": Attention,
        "--model.search": Search,
        "--model.objective": Objective,
        "--model.schedule": Schedule,
        "--trainer.callbacks+": callbacks.Callback,
        "--trainer.logger": loggers.Logger,
        "--trainer.strategy": strategies.Strategy,
    }
    found: dict[type, dict[str, Any]] = {}
    with allow_list(()) as paths:
        for path in sorted(paths, key=len):
            module, _, name = path.rpartition(".")
            kind: type = getattr(sys.modules[module], name)
            fitting = [option for option, base in options.items() if issubclass(kind, base)]
            try:
                taken = [*inspect.signature(kind.__init__).parameters][1:]
            except ValueError:  # of a class written in C
                taken = []
            found.setdefault(kind, {"path": path, "options": fitting, "takes": taken})
    listed = {"classes": list(found.values()), "options": list(options)}
    _file(world).write_text(json.dumps(listed, indent=1))


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    listed = _listed(_file(world))
    # Those of a type that belongs somewhere come first, and often.
    classes = sorted(listed["classes"], key=lambda each: not each["options"])
    fitting = [each for each in classes if each["options"]]
    chosen = (classes + fitting * 100)[number]
    option = random.choice(chosen["options"] or listed["options"])
    options = [f"{option}={chosen['path']}"]
    base = option.removesuffix("+")
    known = ARGUMENTS | {"root": str(world.shapes), "initial": str(world.model)}
    for name in [name for name in chosen["takes"] if name in known]:
        value = known[name]
        text = value if isinstance(value, str) else json.dumps(value)
        options.append(f"{base}.{name}={text}")
    more = () if number < len(classes) else random.sample(SETTINGS, k=random.choice((1, 2)))
    for setting in more:
        options += [str(world.model) if text == "MODEL" else text for text in setting]
    return Case(" ".join(options), _steps(world, options, bool(chosen["options"]), folder))


def _steps(world: World, options: list[str], belongs: bool, folder: Path) -> Steps:
    run = ["train", "--config", str(world.config), "--trainer.default_root_dir", "out"]
    outcome = yield Call([*run, *options])
    found = [*judge.faults(outcome, folder), *judge.half_written(folder)]
    if outcome.code == 0 and not belongs:
        found.append("other: done, though the class does not belong there")
    if outcome.code == 0 and (models := outcome.out.split()):
        caption = yield Call(["caption", str(world.photos[0]), "--model", models[-1]])
        found += judge.faults(caption, folder)
        if caption.code != 0:
            found.append(f"other: its model does not caption: {caption.err[-200:]}")
    return found


def _file(world: World) -> Path:
    return world.folder / "classes.json"


@cache
def _listed(path: Path) -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(path.read_text())
    return listed


CLASSES = Kind("classes", whole=300, tenth=15, case=_case, prepare=_prepare)

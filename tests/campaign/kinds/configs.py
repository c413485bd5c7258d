"""Hostile configurations, for `train` and `features`."""

import copy
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds.damage import damaged
from tests.campaign.kinds.given import NUMBERS, WORDS
from tests.campaign.kinds.places import Place, places
from tests.campaign.world import World

MARK = f"touch {judge.MARKER}"

EXECUTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("os.system", {"command": MARK}),
    ("posix.system", {"command": MARK}),
    ("os.popen", {"cmd": MARK}),
    ("os.mkdir", {"path": judge.MARKER}),
    ("os.makedirs", {"name": judge.MARKER}),
    ("os.mkfifo", {"path": judge.MARKER}),
    ("os.open", {"path": judge.MARKER, "flags": 65}),
    ("os.symlink", {"src": "x", "dst": judge.MARKER}),
    ("subprocess.getoutput", {"cmd": MARK}),
    ("subprocess.getstatusoutput", {"cmd": MARK}),
    ("subprocess.call", {"popenargs": [MARK], "shell": True}),
    ("subprocess.Popen", {"args": ["touch", judge.MARKER]}),
    ("builtins.open", {"file": judge.MARKER, "mode": "w"}),
    ("io.open", {"file": judge.MARKER, "mode": "w"}),
    ("io.FileIO", {"file": judge.MARKER, "mode": "w"}),
    ("builtins.exec", {"source": f"open({judge.MARKER!r}, 'w')"}),
    ("builtins.eval", {"source": f"open({judge.MARKER!r}, 'w')"}),
    ("codeop.compile_command", {"source": f"open({judge.MARKER!r}, 'w')"}),
    ("code.InteractiveInterpreter.runsource", {"source": f"open({judge.MARKER!r}, 'w')"}),
    ("runpy.run_path", {"path_name": "evil.py"}),
    ("runpy.run_module", {"mod_name": "evil"}),
    ("importlib.import_module", {"name": "evil"}),
    ("evil.Evil", {}),
    ("evil", {}),
    ("evil.package.Evil", {}),
    ("timeit.timeit", {"stmt": f"open({judge.MARKER!r}, 'w')", "number": 1}),
    ("logging.FileHandler", {"filename": judge.MARKER}),
    ("shelve.open", {"filename": judge.MARKER}),
    ("sqlite3.connect", {"database": judge.MARKER}),
    ("tempfile.mkdtemp", {"prefix": judge.MARKER, "dir": "."}),
    ("shutil.copyfile", {"src": "evil.py", "dst": judge.MARKER}),
    ("torch.save", {"obj": 1, "f": judge.MARKER}),
    ("torch.load", {"f": "evil.pkl", "weights_only": False}),
    ("torch.hub.load", {"repo_or_dir": ".", "model": "evil", "source": "local"}),
    ("torch.utils.data.DataLoader", {"dataset": [1], "num_workers": 10**6}),
    ("numpy.save", {"file": judge.MARKER, "arr": [1]}),
    ("captioning.cli.main", {"arguments": ["shapes", judge.MARKER]}),
    ("captioning.files.write_json", {"path": judge.MARKER, "value": 1}),
    ("captioning.files.made_folder", {"path": judge.MARKER}),
    ("pytorch_lightning.loggers.CSVLogger", {"save_dir": judge.MARKER}),
    ("pytorch_lightning.callbacks.LambdaCallback", {"setup": "os.system"}),
    ("pytorch_lightning.Trainer", {"default_root_dir": judge.MARKER}),
)
"""Class paths that do something when they are imported or called; most leave a marker."""

ODDITIES = (
    "a: &a [*a]\n",
    "a: &a {b: *a}\n",
    "data: &d {reader: *d}\n",
    "&a [" * 1000 + "]" * 1000,
    "[" * 100_000,
    "{" * 50_000,
    "- " * 20_000,
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "data: {size: 2020-13-45}\n",
    "data: {size: 2020-01-01}\n",
    f"data: {{size: {'9' * 5000}}}\n",
    f"data: {{size: 0x{'f' * 5000}}}\n",
    "data: {size: 190:20:30}\n",
    "data: {size: !!binary aGk=}\n",
    "data: {size: !!timestamp 2001-01-01}\n",
    "data: {size: !!set {a, b}}\n",
    "data: {size: !!python/object/apply:os.system [touch executed]}\n",
    "data: !!python/object/new:os.system [touch executed]\n",
    "!!python/object/apply:subprocess.getoutput [touch executed]",
    "data: {size: 1}\ndata: {size: 2}\n",
    "? [1, 2]\n: 3\n",
    "{1: 2, null: 3, true: 4, 1.5: 6}\n",
    "? {a: b}\n: c\n",
    "--- 1\n--- 2\n",
    "%YAML 9.9\n---\na: 1\n",
    "a: |\n b\n\tc\n",
    "\t\n",
    "a: 'b\n",
    "<<: [1, 2]\n",
    "<<: {data: {size: 1}}\n",
    "\ufeffdata: {}\n",
    "data: \x07\n",
    "",
    "null",
    "[]",
    "1",
    "'text'",
    "a" * 10**6,
    "config: config.yaml\n",
    "data: ${oc.env:HOME}\n",
)
"""Texts that go wrong in readers of YAML."""

Change = Callable[[dict[str, Any], Random], str]


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    command = random.choice(("train", "train", "features"))
    settings = copy.deepcopy(world.settings)
    settings["trainer"]["max_steps"] = 3
    if command == "features":
        settings["model"]["encoder"]["init_args"]["trainable_stages"] = 0
        settings["data"]["features"] = "out"
    else:
        settings["trainer"]["default_root_dir"] = "out"
    (folder / "given").mkdir()
    for name in ("evil.py", "hubconf.py"):
        (folder / name).write_text(f"open({judge.MARKER!r}, 'w')\nclass Evil: pass\n")
    (folder / "evil.pkl").write_bytes(b"\x80\x04cos\nsystem\n(S'touch executed'\ntR.")
    file = folder / "given" / "config.yaml"
    if random.random() < 0.25:
        label, content = _text(settings, random)
        file.write_bytes(content)
    else:
        change = random.choices(list(CHANGES), weights=list(CHANGES.values()))[0]
        label = change(settings, random)
        file.write_text(yaml.safe_dump(settings), encoding="utf-8", errors="surrogatepass")
    # Without a trainer, whose default is a thousand epochs, a training would take too long.
    ends = [] if "trainer" in settings else ["--trainer.max_epochs", "1"]
    return Case(f"{command}: {label}", _steps([command, "--config", str(file), *ends], folder))


def _steps(arguments: list[str], folder: Path) -> Steps:
    def see_the_folder() -> None:  # as `python -m captioning` does
        import sys

        sys.path.insert(0, str(folder))

    outcome = yield Call(arguments, before=see_the_folder)
    return [*judge.faults(outcome, folder), *judge.half_written(folder)]


def _text(settings: dict[str, Any], random: Random) -> tuple[str, bytes]:
    whole = yaml.safe_dump(settings)
    if random.random() < 0.4:
        return "damaged bytes", damaged(whole.encode(), random)
    oddity = random.choice(ODDITIES)
    beside = random.choice(("", whole))
    return f"text {oddity[:60]!r}", (beside + oddity).encode()


def _any_place(settings: dict[str, Any], random: Random) -> tuple[Place, str]:
    """A place, and its keys in a line."""
    holder, key = random.choice(list(places(settings)))
    return (holder, key), str(key)


def _executes(settings: dict[str, Any], random: Random) -> str:
    """Names something that does something, where a class belongs, or anywhere."""
    path, arguments = random.choice(EXECUTIONS)
    value: Any = {"class_path": path, "init_args": arguments}
    at = (
        (settings["model"], "encoder"),
        (settings["model"], "decoder"),
        (settings["model"], "search"),
        (settings["model"], "objective"),
        (settings["data"], "reader"),
        (settings["trainer"], "callbacks"),
        (settings["trainer"], "logger"),
        (settings["trainer"], "profiler"),
        (settings["trainer"], "strategy"),
        (settings["trainer"], "plugins"),
        (settings["model"]["decoder"]["init_args"], "attention"),
        random.choice(list(places(settings))),
    )
    holder, key = random.choice((at[1], random.choice(at)))
    if key in ("callbacks", "plugins"):
        value = [value]
    if random.random() < 0.15:
        value = path
    holder[key] = value
    return f"{key}: {path}"


def _another_class(settings: dict[str, Any], random: Random) -> str:
    """Names a class that exists, which may not belong there."""
    path = random.choice(
        (
            *("captioning.models.LSTMDecoder", "captioning.models.CNNEncoder", "torch.nn.Linear"),
            *("captioning.search.BeamSearch", "captioning.search.Sampling", "torch.optim.SGD"),
            *(
                "captioning.data.readers.Karpathy",
                "captioning.training.SelfCritical",
                "LSTMDecoder",
            ),
            *(
                "captioning.models.decoder.Decoder",
                "captioning.search.search.Search",
                "builtins.dict",
            ),
            *("captioning.data.readers.CaptionTable", "captioning", "captioning.", ".", "a..b", ""),
            *(
                "pytorch_lightning.callbacks.EarlyStopping",
                "torchmetrics.Metric",
                "builtins.object",
            ),
        )
    )
    named = [holder for holder, key in places(settings) if key == "class_path"]
    holder = random.choice(named)
    holder["class_path"] = path
    if random.random() < 0.5:
        holder["init_args"] = {}
    return f"class_path: {path}"


def _number(settings: dict[str, Any], random: Random) -> str:
    """Gives a number of another size; any option of a class will do."""
    numbers = [place for place in places(settings) if isinstance(place[0][place[1]], int | float)]
    for section, names in MORE_NUMBERS.items():
        at = settings
        for key in section:
            at = at.setdefault(key, {})
        numbers += [(at, name) for name in names]
    holder, key = random.choice([place for place in numbers if place[1] != "max_steps"])
    text = random.choice(NUMBERS)
    if key in ("devices", "num_nodes") and text.strip() in ("2", "3", "+1"):
        text = "0"
    try:
        holder[key] = yaml.safe_load(text)
    except ValueError:
        holder[key] = text
    return f"{key}: {text[:60]}"


def _other_type(settings: dict[str, Any], random: Random) -> str:
    (holder, key), name = _any_place(settings, random)
    value = random.choice(
        (None, [], {}, [[]], True, 1.5, "", [None], {"a": {"b": []}}, {"class_path": 1}, -1, *WORDS)
    )
    holder[key] = value
    return f"{name}: {str(value)[:60]!r}"


def _no_key(settings: dict[str, Any], random: Random) -> str:
    (holder, key), name = _any_place(settings, random)
    del holder[key]
    return f"without {name}"


def _new_key(settings: dict[str, Any], random: Random) -> str:
    (holder, _), _ = _any_place(settings, random)
    key: Any = random.choice(
        (
            "",
            "x",
            "--help",
            "help",
            "class_path",
            "init_args",
            "__init__",
            1,
            None,
            "a.b",
            "\x1b[31m",
            "self",
            "dict_kwargs",
            "config",
        )
    )
    if isinstance(holder, list):
        holder.append(key)
    else:
        holder[key] = random.choice((1, "x", None, {"a": 1}, []))
    return f"{key!r} added"


MORE_NUMBERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("model",): ("learning_rate", "encoder_learning_rate", "weight_decay", "warmup"),
    ("data",): ("captions_per_image", "max_tokens", "limit", "size", "workers", "min_count"),
    ("trainer",): ("limit_val_batches", "limit_train_batches", "gradient_clip_val", "devices"),
    ("early_stopping",): ("patience", "min_delta", "divergence_threshold"),
    ("validation_table",): ("images",),
    ("validation_page",): ("images",),
    ("validation_grounding",): ("images",),
    ("model", "decoder", "init_args"): ("dropout", "hidden_dim", "embedding_dim"),
    ("model", "encoder", "init_args"): ("trainable_stages", "grid"),
    ("model", "search", "init_args"): ("width", "max_length", "min_length", "length_penalty"),
    (): ("save_every", "compile_after", "seed_everything"),
}
"""Numbers that the configuration leaves to their defaults, by section."""

CHANGES: dict[Change, float] = {
    _executes: 25,
    _another_class: 12,
    _number: 25,
    _other_type: 20,
    _no_key: 8,
    _new_key: 10,
}
"""What is changed in a configuration that is right, and how often."""

CONFIGS = Kind("configs", whole=500, tenth=50, case=_case)

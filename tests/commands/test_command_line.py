"""What every command has: help, options as published, exit codes and errors of one line."""

import inspect
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import captioning
from captioning import __version__
from captioning.commands import COMMANDS, app, main, share
from captioning.commands.train import train_model
from captioning.errors import InputError
from captioning.shelf import CONFIGS, config_names, config_path_of

Capture = pytest.CaptureFixture[str]

SEARCH = (
    "--beam= --greedy --sample --temperature= --top-k= --top-p= --length-penalty= --max-length= "
    "--min-length= --no-repeat-ngram= --no-repeats --seed="
)
MODEL = f"--model= --batch-size= --device= --bf16 --kernels= {SEARCH}"
DATA = "--data= --split= --images= --caption-column= --limit= --max-megapixels="
METRICS = "--metric= --meteor --frequencies= --clip --clip-weights="
FILES = f"--split= --tokenizer= --photos= --max-megapixels= {METRICS}"

PUBLISHED = {
    "caption": f"PHOTO PHOTO - --list= {MODEL} --max-megapixels= --captions= --diverse --json "
    "--jsonl --confidence --min-confidence= --sentence --prefix= --suffix= --txt --txt-dir= "
    "--skip-existing --overwrite --csv= --overlay= --gif= --html= --map= --text= --begin= --avoid= "
    "--must-say= --out= --shard-size= --ray= PHOTO",
    "demo": "--port= --no-browser --map=",
    "serve": f"{MODEL} --map= --host= --allow-host= --port= --max-megabytes= --max-megapixels= "
    "--timeout= --queue=",
    "finetune": "FOLDER --model= --out= --epochs= --seed= --val-share= --skip-bad --tokenizer= "
    "--images= --caption-column=",
    "evaluate": f"{DATA} {MODEL} --out= --features= {METRICS}",
    "calibrate": f"FILE {DATA} {MODEL} --features=",
    "score": f"RESULTS REFERENCES {FILES} --json= --training= --save-frequencies=",
    "compare": f"A B REFERENCES {FILES} --samples= --seed=",
    "ground": f"{DATA} {MODEL} --words= --out= --references --map= --wandb",
    "check": "DIR --images= --caption-column= --max-megapixels=",
    "shapes": "DIR --train= --val= --test= --pixels= --seed= --processes=",
    "models": "",
    "export": "MODEL --model= --half --onnx --web --runtime= --evaluation= --license= TARGET",
    "push": "MODEL ADDRESS --private --revision=",
}
"""Arguments and options of version 0.3.0; an equals sign stands for a value.

Of that version's, these went: ``judge``, ``--devices`` and ``--num-nodes`` of `caption` and
`evaluate`, ``--trials``, ``--format`` and ``--out`` of `compare`, ``--hard`` of `shapes`, and
``--spice``.
"""

CHOSEN = {"--kernels": "off", "--tokenizer": "characters"}
CHOSEN |= dict.fromkeys(("--seed", "--csv", "--prefix", "--suffix"), "-1")
REPEATABLE = {"--avoid", "--must-say", "--map", "--allow-host", "--metric", "--data"}


@pytest.mark.parametrize("command", PUBLISHED)
def test_every_published_spelling_is_parsed(command: str) -> None:
    given = [command]
    for spelling in PUBLISHED[command].split():
        name, equals, _ = spelling.partition("=")
        given += [name, CHOSEN.get(name, "1")] if equals else [name]
        if name in REPEATABLE:
            given += [name, "another"]
    function, bound, _ = app().parse_args(given, exit_on_error=False, print_error=False)
    assert COMMANDS[command].endswith(f":{function.__name__}")
    if command == "caption":
        assert bound.args == ("PHOTO", "PHOTO", "PHOTO")
        assert bound.kwargs["search_options"].seed == -1
        assert bound.kwargs["picture_options"].maps == ("1", "another")


def test_every_command_is_published_or_lightnings() -> None:
    assert PUBLISHED.keys() | {"train", "features", "review"} == COMMANDS.keys()


def test_bare_captioning_says_how_to_start(capsys: Capture) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("Start with: captioning demo")
    assert shown.count("\n  captioning ") == 3
    assert all(f"│ {name} " in shown for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"captioning {__version__}\n"


@pytest.mark.parametrize("command", ["caption", "train", "evaluate"])
def test_a_command_has_help(command: str, capsys: Capture) -> None:
    assert main([command, "-h"]) == 0
    assert f"Usage: captioning {command}" in capsys.readouterr().out


def test_the_help_of_train_says_what_the_configurations_are() -> None:
    told = re.findall(r"^    - `(\w+)`: .{10,68}$", train_model.__doc__ or "", re.MULTILINE)
    assert told == config_names()


def test_completion_knows_commands_and_their_options(capsys: Capture) -> None:
    assert main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("evaluate", "--overlay", "--no-repeat-ngram"))


def raising(error: BaseException) -> Any:
    def command() -> None:
        raise error

    return command


class OutOfMemoryError(RuntimeError):
    """PyTorch's has this name too."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("a.jpg: broken"), "a.jpg: broken"),
        (OSError(28, "No space left on device", "a.png"), "a.png: No space left on device"),
        (OutOfMemoryError("CUDA out of memory"), "the GPU's memory is full; give a smaller"),
        (RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed."), "was killed"),
        (RuntimeError("worker: Bus error. out of shared memory"), "/dev/shm"),
        (RuntimeError("gloo: Connection closed by peer [127.0.0.1]"), "another process of"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_what_happens_to_users_is_one_line(
    error: BaseException, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(share, "models", raising(error))
    assert main(["models"]) == (130 if line == "interrupted" else 1)
    shown = capsys.readouterr().err.splitlines()[-1]
    assert shown.startswith("captioning: ")
    assert line in shown


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "models", raising(RuntimeError("impossible")))
    with pytest.raises(RuntimeError, match="impossible"):
        main(["models"])


def test_what_is_logged_is_printed_once_in_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def command() -> None:
        for name in ("Mine", "Mine", "Other"):
            logging.getLogger("captioning.kernels").info("no kernel for class %s", name)

    monkeypatch.setattr(share, "models", command)
    for _ in range(2):
        assert main(["models"]) == 0
        lines = [f"captioning: no kernel for class {name}" for name in ("Mine", "Other")]
        assert capsys.readouterr().err.splitlines() == lines
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["models"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_at_once(number: signal.Signals) -> None:
    code = f"""
import signal, time
from concurrent.futures import ThreadPoolExecutor
import captioning.commands.share
from captioning.__main__ import run
as_usual = signal.default_int_handler if {int(number)} == signal.SIGINT else signal.SIG_DFL
signal.signal({int(number)}, as_usual)  # also where whoever runs the tests ignores it
def models():
    ThreadPoolExecutor(1).submit(time.sleep, 600)
    signal.raise_signal({int(number)})
captioning.commands.share.models = models
run()
"""
    began = time.monotonic()
    command = [sys.executable, "-c", code, "models"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stderr == "captioning: interrupted\n"
    assert ended.returncode == 128 + number
    assert time.monotonic() - began < 50


@pytest.mark.integration
@pytest.mark.parametrize(
    ("redirection", "code", "error"),
    [("| head -1", 0, ""), ("> /dev/full", 1, "captioning: No space left on device\n")],
)
def test_output_that_cannot_be_written(redirection: str, code: int, error: str) -> None:
    command = f"{sys.executable} -m captioning models {redirection}"
    environment = {key: each for key, each in os.environ.items() if key != "PYTHONUNBUFFERED"}
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (code, error)


@pytest.mark.integration
def test_a_torchvision_of_another_torch_is_one_line(tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    raised = 'raise RuntimeError("operator torchvision::nms does not exist")'  # what it raises then
    (package / "__init__.py").write_text(raised)
    command = [sys.executable, "-m", "captioning", "train", "--config", "shapes"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert re.search(r"torch \S+ and torchvision \S+ do not belong together; .* constraints", line)


def test_python_calls_the_commands(shapes_data: Path, checkpoint: Path, tmp_path: Path) -> None:
    assert captioning.check(shapes_data) == 0
    scores = captioning.evaluate(
        data=shapes_data, model=str(checkpoint), limit=2, greedy=True, out=str(tmp_path)
    )
    assert 0 <= scores["BLEU-4"] <= 1
    references = shapes_data / "annotations" / "captions_val.json"
    assert captioning.score(tmp_path, references)["BLEU-4"] == scores["BLEU-4"]


def test_functions_have_the_options_of_the_command_line_as_keywords(shapes_data: Path) -> None:
    keywords = inspect.signature(captioning.ground).parameters
    assert {"data", "split", "model", "beam", "map", "words"} <= set(keywords)
    assert {"maps", "model_options", "search"}.isdisjoint(keywords)
    assert keywords["data"].default is inspect.Parameter.empty
    with pytest.raises(TypeError, match="no_such_option"):
        captioning.evaluate(data=shapes_data, no_such_option=1)


def test_functions_take_lists_and_paths(
    checkpoint: Path, shapes_data: Path, tmp_path: Path
) -> None:
    options = {"model": checkpoint, "limit": 1, "out": tmp_path, "map": ["attention", "gradient"]}
    scores = captioning.ground(data=[str(shapes_data)], references=True, **options)
    assert list(scores) == ["attention", "gradient"]


def test_a_module_of_the_user_is_imported_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_module_for_a_test.py").write_text("print('imported')")
    assert main(["models", "--import", "my_module_for_a_test"]) == 0
    assert capsys.readouterr().out.startswith("imported\n")
    assert main(["models", "--import=no_such_module"]) == 1
    assert "no_such_module" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["flickr8k", "flickr8k.yaml", "configs/flickr8k.yaml"])
def test_a_configuration_is_found_by_name_in_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flickr8k").mkdir()  # a folder of photos, say
    assert config_path_of(name) == str(CONFIGS / "flickr8k.yaml")
    (tmp_path / "flickr8k").rmdir()
    (tmp_path / "flickr8k").write_text("{}")  # a file of the user comes first
    assert config_path_of("flickr8k") == "flickr8k"

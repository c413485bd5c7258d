"""How long `captioning caption PHOTO` takes, from the command to the end of its process.

The files that it reads are in the system's cache.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.checkpoint import write_checkpoint
from benchmarks.measure import Contender, interleaved
from benchmarks.rows import Row, cost_rows
from benchmarks.setting import Setting
from captioning.search import BeamSearch

OURS, TORCH = Contender("ours"), Contender("import torch")


def start_rows(setting: Setting) -> Iterator[Row]:
    """Seconds with a model of the first size, and of a process that does nothing but import torch.

    Raises:
        CalledProcessError: the command failed.
    """
    size, photo = setting.sizes[0], setting.photos[0]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.ckpt"
        write_checkpoint(model, size, [photo], BeamSearch())
        command = ["-m", "captioning", "caption", str(photo), "--model", str(model)]
        tasks: dict[Contender, Callable[[], object]] = {
            TORCH: partial(_python, "-c", "import torch"),
            OURS: partial(_python, *command, "--device", str(setting.device)),
        }
        seconds = interleaved(tasks, setting.rounds, setting.device)
    name = "cold start of captioning caption PHOTO"
    yield from cost_rows(name, f"{size.backbone} at {size.pixels}", "s", seconds)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

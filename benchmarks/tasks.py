"""What is timed: one callable for each task and each implementation of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from benchmarks.layers import never_end
from benchmarks.ours import Ours, caption, search
from benchmarks.peer import PeerDecoder
from benchmarks.shipped import prepared
from benchmarks.sizes import SIZES, WORDS, Size, annotations, tokens
from benchmarks.textbook import TextbookDecoder, TextbookEncoder, read_photo
from captioning.models import CNNEncoder

OURS, BEFORE = "ours", "before"
PEER, TEXTBOOK = "peer", "textbook"
PYTHON, TORCH = "python -c pass", "import torch"

TASKS = {
    "training": (PEER, TEXTBOOK),
    "greedy": (PEER, TEXTBOOK),
    "beam": (PEER, TEXTBOOK),
    "end-to-end": (TEXTBOOK,),
    "photos": (),
    "latency": (),
    "features": (),
    "server": (),
    "help": (PYTHON,),
    "start": (TORCH,),
}
"""Each task with its rivals."""

SHIPPED = ("photos", "latency", "features", "server")
"""Tasks of the model of photos that comes with the package."""

COMMANDS = ("help", "start")
"""Tasks that run the command in a process."""

WITHOUT_SIZE = (*SHIPPED, *COMMANDS)

BEAMS = 5

WRITTEN = 32
"""Photos that are drawn for a task of `SHIPPED`, unless a folder is given."""

Task = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """One implementation's side of one task.

    Attributes:
        task: a name of `TASKS`.
        size: a name of `SIZES`.
        contender: ours, before, or a rival.
        checkout: whose package is imported.
        folder: for photos; empty at first, or one of photos for tasks of `SHIPPED`.
        device: cpu or cuda.
        precision: fp32 or bf16.
        threads: of PyTorch.
        photos: the most photos of a task of `SHIPPED`.
    """

    task: str
    size: str
    contender: str
    checkout: str
    folder: str
    device: str = "cpu"
    precision: str = "fp32"
    threads: int = 1
    photos: int = 500


def task(job: Job) -> Task:
    """The callable to be timed."""
    if job.task in COMMANDS:
        return _command(job)
    if job.task in SHIPPED:
        folder = Path(job.folder)
        photos = sorted(folder.rglob("*.jpg")) or written_photos(folder, WRITTEN)
        return partial(prepared(job), photos[: job.photos])
    size, device = SIZES[job.size], torch.device(job.device)
    if job.task == "training":
        done = _training_step(job, size, device)
    elif job.task == "end-to-end":
        done = _end_to_end(job, size, device, written_photos(Path(job.folder), size.photos))
    else:
        done = _search(job, size, device, width=1 if job.task == "greedy" else BEAMS)

    def with_precision() -> None:
        with torch.autocast(job.device, torch.bfloat16, enabled=job.precision == "bf16"):
            done()

    return with_precision


def _decoder(job: Job, size: Size) -> Any:
    torch.manual_seed(0)
    return PeerDecoder(size) if job.contender == PEER else TextbookDecoder(size)


def _training_step(job: Job, size: Size, device: torch.device) -> Task:
    """Forward, backward and optimizer from annotation vectors."""
    if job.contender in (OURS, BEFORE):
        model: Any = Ours(size).to(device)
        model.prepare_training()
        parameters = list(model.trained.parameters())
        optimizer = torch.optim.AdamW(parameters, fused=True)  # as a training of ours does
    else:
        model = _decoder(job, size).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
    vectors, captions = annotations(size).to(device), tokens(size).to(device)

    def step() -> None:
        optimizer.zero_grad()
        loss: Tensor = model.loss(vectors, captions)
        with torch.autocast(job.device, enabled=False):
            loss.backward()
            optimizer.step()

    return step


def _search(job: Job, size: Size, device: torch.device, width: int) -> Task:
    """Captions of `WORDS` words each from annotation vectors."""
    vectors = annotations(size).to(device)
    if job.contender in (OURS, BEFORE):
        model = Ours(size).to(device)
        model.never_end()
        captioner = model.captioner(size, width, WORDS)
        return partial(search, captioner, vectors)
    decoder = _decoder(job, size).to(device).eval()
    never_end(decoder.output)
    return partial(decoder.captions, vectors, width, WORDS)


def _end_to_end(job: Job, size: Size, device: torch.device, photos: list[Path]) -> Task:
    """JPEG files to captions by beam search."""
    model = Ours(size).to(device)
    model.never_end()
    if job.contender in (OURS, BEFORE):
        return partial(caption, model.captioner(size, BEAMS, WORDS), photos)
    encoder = TextbookEncoder(cast(CNNEncoder, model.model.encoder))
    decoder = _decoder(job, size).to(device).eval()
    never_end(decoder.output)

    @torch.inference_mode()
    def one_by_one() -> None:
        for photo in photos:
            image = read_photo(photo, size.pixels).to(device)
            decoder.captions(encoder(image[None]), BEAMS, WORDS)

    return one_by_one


def _command(job: Job) -> Task:
    """A whole process from its start to its end."""
    environment = os.environ | {"PYTHONPATH": job.checkout}
    arguments = {PYTHON: ["-c", "pass"], TORCH: ["-c", "import torch"]}.get(job.contender)
    if arguments is None and job.task == "help":
        arguments = ["-m", "captioning", "--help"]
    elif arguments is None:
        [photo] = written_photos(Path(job.folder), 1)
        names = ("captioning/shipped/shapes.safetensors", "captioning/**/demo.*[ts]")
        model = next(file for name in names for file in Path(job.checkout).glob(name))
        arguments = ["-m", "captioning", "caption", str(photo), "--model", str(model)]
    return partial(
        subprocess.run,
        [sys.executable, *arguments],
        check=True,
        cwd=job.folder,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def written_photos(folder: Path, count: int) -> list[Path]:
    """JPEG files of blurred noise, as large as COCO's photos."""
    paths = [folder / f"{number:02d}.jpg" for number in range(count)]
    for path in paths:
        if not path.exists():
            noise = Image.effect_noise((160, 120), 80).convert("RGB")
            noise.resize((640, 480), Image.Resampling.BICUBIC).save(path, quality=90)
    return paths

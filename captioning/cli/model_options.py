"""The options of a model, its search and its processes, and what they load."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.options import add_imports, add_number
from captioning.data.images import MAX_PIXELS
from captioning.errors import UsageError
from captioning.numbers import (
    BatchSize,
    BeamWidth,
    LengthPenalty,
    MachineCount,
    MaxLength,
    MinLength,
    NgramLength,
    ProcessCount,
    Seed,
    Temperature,
    TopK,
    TopP,
)
from captioning.shelf import DEFAULT, path_of

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.inference.processes import Processes
    from captioning.search import Search


def add_model(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add the options of the model and its batches; without a default, a model must be given."""
    add_imports(parser)
    parser.add_argument(
        "--model",
        required=default is None,
        action="append",
        metavar="MODEL",
        help="a trained model, or the name of one that comes with the package; give several for an "
        "ensemble, which averages their probabilities"
        + (f" (default: {default})" if default else ""),
    )
    add_number(parser, "--batch-size", BatchSize, "photos at a time", 16)
    parser.add_argument(
        "--device", default=None, help="cpu, cuda, mps (default: the fastest available)"
    )
    parser.add_argument(
        "--bf16",
        action="store_true",
        help="compute in bfloat16: faster on recent GPUs, CPUs with AMX, and AMD's with AVX-512 "
        "BF16, slower elsewhere; near-ties may resolve differently",
    )
    parser.add_argument(
        "--kernels",
        choices=("on", "off"),
        help="off: use the plain model, which is slower and gives the same results "
        "(default: on, unless CAPTIONING_KERNELS says off)",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the options of the search."""
    search = parser.add_argument_group(
        "search", "how words are chosen; defaults to the search in the model's configuration"
    )
    kind = search.add_mutually_exclusive_group()
    add_number(kind, "--beam", BeamWidth, "beam search of this width")
    kind.add_argument("--greedy", action="store_true", help="always the most probable word")
    kind.add_argument("--sample", action="store_true", help="sample words by their probability")
    add_number(search, "--temperature", Temperature, "of sampling")
    add_number(search, "--top-k", TopK, "sample from the N best words")
    add_number(search, "--top-p", TopP, "sample from the best words of this total probability")
    add_number(search, "--length-penalty", LengthPenalty, "0 favours short captions, 1 does not")
    add_number(search, "--max-length", MaxLength, "largest number of words")
    add_number(search, "--min-length", MinLength, "smallest number of words")
    add_number(search, "--no-repeat-ngram", NgramLength, "never repeat N words in a row")
    add_number(search, "--seed", Seed, "of sampling", 0)


def add_processes(parser: argparse.ArgumentParser, machines: bool = True) -> None:
    """Add the options of distributed processes, on several machines or only on this one."""
    processes = parser.add_argument_group(
        "processes", "number of processes; torchrun and SLURM can start them, too"
    )
    each = "GPUs, or processes with --device cpu" + (", on each machine" if machines else "")
    add_number(processes, "--devices", ProcessCount, each, 1)
    if machines:
        add_number(processes, "--num-nodes", MachineCount, "machines", 1)


def processes_of(options: argparse.Namespace) -> "Processes":
    """The processes that share the work, from the options.

    Raises:
        UsageError: torchrun started a different number of processes.
    """
    from captioning.inference.processes import Processes

    machines = getattr(options, "num_nodes", 1)
    processes = Processes(options.devices, machines, options.device)
    started = os.environ.get("WORLD_SIZE", str(processes.count))
    if started != str(processes.count):
        raise UsageError(
            f"{started} processes were started (WORLD_SIZE), but the options ask for "
            f"{processes.count}; give --devices as many as there are on each machine"
        )
    return processes


def models_of(options: argparse.Namespace) -> list[Path]:
    """The files of the models that the options name."""
    return [path_of(model) for model in options.model or [DEFAULT]]


def model_and_search(
    options: argparse.Namespace, processes: "Processes | None" = None, on_cpu: bool = False
) -> "tuple[Captioner, Search]":
    """The model, on its device, and its default search with the options applied.

    Args:
        options: those of `add_model` and `add_search`.
        processes: the processes that share the work; with several, each moves the model to its own
            device later.
        on_cpu: leave the model on the CPU, since others will move it.
    """
    import torch

    from captioning.captioner import load
    from captioning.captioner.device import usable_device
    from captioning.progress_bar import stage
    from captioning.search import BeamSearch, Greedy, Sampling

    max_megapixels = getattr(options, "max_pixels", MAX_PIXELS) / 1e6  # a server has its own
    is_shared = processes is not None and processes.count > 1
    device = "cpu" if is_shared or on_cpu else usable_device(options.device)
    kernels = None if options.kernels is None else options.kernels == "on"
    with stage("loading the model"):
        captioner = load(models_of(options), device, options.bf16, max_megapixels, kernels)
    torch.manual_seed(options.seed)
    kind = type(captioner.search)
    if options.beam is not None:
        kind = BeamSearch
    elif options.greedy or options.sample:
        kind = Greedy if options.greedy else Sampling
    of_sampling = {"temperature", "top_k", "top_p"}
    given = {
        name: getattr(options, name)
        for name in (
            *of_sampling,
            *("length_penalty", "max_length", "min_length", "no_repeat_ngram"),
        )
        if getattr(options, name) is not None
    }
    if kind is not Sampling and of_sampling & given.keys():
        name = min(of_sampling & given.keys()).replace("_", "-")
        raise UsageError(f"--{name} is for sampling; give --sample too, or leave it out")
    if options.beam is not None:
        given["width"] = options.beam
    if kind is Sampling:
        given["seed"] = options.seed
    return captioner, captioner.search.replace(kind, **given)

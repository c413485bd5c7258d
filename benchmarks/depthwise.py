"""What single precision for depthwise convolutions is worth to an encoder trained in bfloat16.

    python -m benchmarks.depthwise

times forward and backward passes through the last blocks of EfficientNet-Lite2, as
`configs/flickr8k_lite2.yaml` trains them, with the kernel and without, in turns. Needs no weights.
"""

import argparse
import copy
import sys
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import torch

from captioning.cli.options import positive
from captioning.kernels import keep_depthwise_precise
from captioning.models import CNNEncoder

BACKBONE, STAGES, SIDE = "timm/tf_efficientnet_lite2", 6, 320


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depthwise")
    parser.add_argument("--rounds", type=positive, default=10)
    parser.add_argument("--images", type=positive, default=16, help="in a step")
    parser.add_argument("--threads", type=positive, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(table(options.rounds, options.images))
    return 0


def table(rounds: int, images: int) -> str:
    """The medians of both in milliseconds, and their ratio.

    Args:
        rounds: of each, in turn, after one that does not count.
        images: in a step.
    """
    torch.manual_seed(0)
    plain = CNNEncoder(BACKBONE, weights=None, trainable_stages=STAGES)
    fast = copy.deepcopy(plain)
    keep_depthwise_precise(fast)
    frozen = plain.constant
    assert frozen is not None
    with torch.device("meta"):
        sizes = copy.deepcopy(frozen).to("meta")(torch.empty(1, 3, SIDE, SIDE, dtype=torch.uint8))
    features = torch.rand(images, *sizes.shape[1:])
    times: dict[str, list[float]] = {"plain": [], "kernel": []}
    for _ in range(rounds + 1):
        for name, encoder in (("plain", plain), ("kernel", fast)):
            began = perf_counter()
            with torch.autocast("cpu", torch.bfloat16):
                annotations = encoder.completed(features)
            annotations.float().sum().backward()
            times[name].append(perf_counter() - began)
    found = {name: 1000 * median(each[1:]) for name, each in times.items()}
    return (
        f"{images} images, bfloat16: plain {found['plain']:.0f} ms, kernel {found['kernel']:.0f} ms"
        f", {found['plain'] / found['kernel']:.2f} times as long without it"
    )


if __name__ == "__main__":
    sys.exit(main())

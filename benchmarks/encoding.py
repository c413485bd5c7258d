"""How fast the CNN turns images into annotation vectors."""

import copy
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.agreement import compare
from benchmarks.measure import OURS, TEXTBOOK, Contender, interleaved
from benchmarks.rows import Row, rate_rows
from benchmarks.setting import Setting
from benchmarks.sizes import Size
from benchmarks.textbook_photos import TextbookEncoder
from benchmarks.work import Work
from captioning.models import CNNEncoder

SEEN = 4
"""Images that batch norm takes its statistics from."""


def encoding_rows(setting: Setting) -> Iterator[Row]:
    """Photos per second, in single precision, at every size.

    Raises:
        DisagreementError: the textbook's annotation vectors are not ours.
    """
    for size in setting.networks:
        images = random_images(size)
        encoder = random_encoder(size, images).to(setting.device)
        images = images.to(setting.device)
        # In double precision: a deep network of random parameters makes much of rounding.
        precise = copy.deepcopy(encoder).double()
        its, mine = (
            encoded(network, images[:1]) for network in (TextbookEncoder(precise), precise.folded())
        )
        compare(f"annotation vectors of {size.backbone}", mine, its)
        contenders = {TEXTBOOK: TextbookEncoder(encoder), OURS[0]: encoder.folded()}
        tasks: dict[Contender, Callable[[], object]] = {
            contender: partial(encoded, network, images)
            for contender, network in contenders.items()
        }
        work = Work(size.photos * image_operations(encoder, images[:1]), bytes=0)
        yield from rate_rows(
            "CNN encoding",
            f"{size.backbone} at {size.pixels}",
            "photos/s",
            interleaved(tasks, setting.rounds, setting.device),
            size.photos,
            setting.machine,
            dict.fromkeys(tasks, work),
        )


def random_images(size: Size) -> UInt8[Tensor, "B 3 S S"]:
    """Images of noise."""
    generator = torch.Generator().manual_seed(0)
    shape = (size.photos, 3, size.pixels, size.pixels)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


def random_encoder(size: Size, images: UInt8[Tensor, "B 3 S S"]) -> CNNEncoder:
    """An encoder of random parameters whose annotation vectors are as large as a trained one's.

    That is the doing of its batch norm, which takes its statistics from the first of these images;
    without, the vectors of a deep network would grow beyond all measure.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = CNNEncoder(size.backbone, weights=None, grid=size.grid)
    norms = [part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        encoder(images[:SEEN])
    return encoder.eval()


def image_operations(encoder: CNNEncoder, image: UInt8[Tensor, "1 3 S S"]) -> float:
    """Floating-point operations for one image: convolutions alone, as PyTorch counts them."""
    counter = FlopCounterMode(display=False)
    with counter:
        encoder(image)
    return float(counter.get_total_flops())


@torch.inference_mode()
def encoded(network: nn.Module, images: UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B L D"]:
    """The annotation vectors."""
    return network(images)

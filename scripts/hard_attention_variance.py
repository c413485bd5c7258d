#!/usr/bin/env python
"""How much a baseline calms the gradient of hard attention, on a trained model.

The gradient of the attention's parameters by `SampledBound`, of one batch of images with a caption
each, is estimated again and again with other regions drawn. Printed is, for each baseline, the
variance of these estimates, summed over parameters.

    scripts/hard_attention_variance.py --model runs/shapes_hard/best.ckpt --data data/shapes
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

import captioning
from captioning.captioner import Captioner
from captioning.captioner.checkpoint import read
from captioning.data.dataset import Batch
from captioning.data.readers import reader_for
from captioning.data.vocabulary import PAD
from captioning.training import SampledBound


def batch_of(captioner: Captioner, folder: str, images: int) -> Batch:
    """The first training images with their first captions."""
    records = reader_for(folder).read("train")[:images]
    captions = [captioner.vocabulary.encode(record.captions[0]) for record in records]
    longest = max(map(len, captions))
    tokens = torch.tensor([[ids + [PAD] * (longest - len(ids))] for ids in captions])
    pixels = [captioner.view(record.image).pixels for record in records]
    return Batch(torch.stack(pixels), tokens, records)


def gradients(
    captioner: Captioner, batch: Batch, annotations: Tensor, baseline: float, draws: int
) -> Tensor:
    """One gradient of the attention's parameters per draw: (draws, parameters)."""
    parameters = list(captioner.decoder.attention.parameters())
    objective = SampledBound(expected=0.0, entropy=0.0)
    found = []
    for seed in range(draws):
        torch.manual_seed(seed)  # the same regions for every baseline
        objective.baseline.fill_(baseline)
        total, divisor, _ = objective(captioner, annotations, batch)
        parts = torch.autograd.grad(total / divisor, parameters)
        found.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(found)


def main() -> None:
    """Print a line for each baseline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, help="a checkpoint of configs/shapes_hard.yaml"
    )
    parser.add_argument("--data", required=True, help="the data it was trained on")
    parser.add_argument("--images", type=int, default=32, help="in the batch")
    parser.add_argument("--draws", type=int, default=200, help="gradients for each baseline")
    given = parser.parse_args()
    captioner = captioning.load(given.model)
    batch = batch_of(captioner, given.data, given.images)
    with torch.no_grad():
        annotations = captioner.encode(batch.images)
    learnt = read(given.model)["state_dict"]["objective.baseline"].item()
    for name, baseline in (("none", 0.0), ("moving average", learnt)):
        drawn = gradients(captioner, batch, annotations, baseline, given.draws)
        variance = drawn.var(dim=0).sum().item()
        print(f"{name:15} {baseline:8.2f}  variance {variance:.3g}")


if __name__ == "__main__":
    main()

from typing import Any

import torch

from captioning.captioner.caption import Caption, RunnerUp

SIZE = (90, 60)  # of the photo


def caption(*words: str, **changes: Any) -> Caption:
    """A caption whose model saw the central square, with one region further for each word."""
    weights = torch.eye(16)[: len(words)].unflatten(1, (4, 4))
    maps = {"attention": weights, "occlusion": weights.flip(2)}
    heads = [f"layer {layer} {head}" for layer in (1, 2) for head in ("mean", "head 1", "head 2")]
    maps |= {head: weights.roll(2 + place, 2) for place, head in enumerate(heads)}
    values: dict[str, Any] = {
        "maps": {name: each.numpy() for name, each in maps.items()},
        "shown_maps": ("attention",),
        "runners_up": tuple((RunnerUp("cat", 0.25), RunnerUp(None, 0.02)) for _ in words),
    }
    probabilities = tuple(0.5 + 0.1 * place for place in range(len(words)))
    crop = (15.0, 0.0, 60.0, 60.0)
    return Caption(words, probabilities, -1.0, crop, SIZE, **(values | changes))

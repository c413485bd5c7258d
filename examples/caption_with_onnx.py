"""Captions photos by what `captioning export MODEL DIR --onnx` wrote: DIR PHOTO..."""

import json
import sys
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from PIL import Image, ImageOps

PAD, BOS, EOS = range(3)


def image_of(path: Path, size: int, fit: str) -> np.ndarray:
    """What a model with the fit "crop" or "squeeze" sees of a photo: (1, 3, size, size)."""
    with Image.open(path) as file:
        w, h = file.size[::-1] if file.getexif().get(274, 1) > 4 else file.size
        file.draft(None, (int(np.ceil(size * 16 / 7)),) * 2)  # large JPEGs at 1/2, 1/4 or 1/8
        photo = ImageOps.exif_transpose(file).convert("RGB")
    x, y = ((w - min(w, h)) / 2, (h - min(w, h)) / 2) if fit == "crop" else (0, 0)
    box = tuple(each / round(w / photo.width) for each in (x, y, w - x, h - y))
    small = photo.resize((size, size), Image.Resampling.BILINEAR, box, reducing_gap=3.0)
    return np.array(small).transpose(2, 0, 1)[None]


def run(graph: InferenceSession, inputs: dict) -> dict:
    """The outputs of a graph by name; it may need fewer inputs."""
    given = {each.name: inputs[each.name] for each in graph.get_inputs()}
    return dict(zip((o.name for o in graph.get_outputs()), graph.run(None, given), strict=True))


def caption(graphs: list, about: dict, photo: Path, width: int) -> str:
    """The best caption by beam search; a beam of width 1 is greedy search."""
    (encoder, remember, step), words, search = graphs, about["words"], about["search"]
    now = run(remember, run(encoder, {"images": image_of(photo, **about["preprocessing"])}))
    memory = {name: each for name, each in now.items() if name.startswith("memory")}
    state = {name: each.repeat(width, axis=1) for name, each in now.items() if name not in memory}
    captions, ended = np.full((width, 1), BOS), np.zeros(width, bool)
    totals = np.where(np.arange(width), -np.inf, 0.0)  # beams start equal: only one may branch
    while not ended.all() and (length := captions.shape[1]) <= search["max_length"]:
        now = run(step, {"tokens": captions[None, :, -1], **state, **memory})
        scores = now["log_probs"][0]
        np.put_along_axis(scores, captions * np.isin(captions, about.get("once", [])), -np.inf, 1)
        scores[:, EOS] += 0.0 if length > search["min_length"] else -np.inf
        scores[ended] = np.where(np.arange(len(words)) == PAD, 0.0, -np.inf)  # stay, at no cost
        sums, lengths = totals[:, None] + scores, (captions != PAD).sum(axis=1) - ended
        ranks = sums / lengths[:, None] ** search.get("length_penalty", 1.0)
        parents, chosen = np.divmod(np.argsort(-ranks, axis=None)[:width], len(words))
        captions, totals = np.column_stack([captions[parents], chosen]), sums[parents, chosen]
        state = {name: now[name.replace("state", "next")][:, parents] for name in state}
        ended = (captions == EOS).any(axis=1)
    return " ".join(words[token] for token in captions[0] if token not in (PAD, BOS, EOS))


if __name__ == "__main__":
    folder, *photos = map(Path, sys.argv[1:])
    about = json.loads((folder / "captioner.json").read_text(encoding="utf-8"))
    graphs = [InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "remember", "step")]
    for photo in photos:
        print(photo, caption(graphs, about, photo, about["search"].get("width", 1)), sep="\t")

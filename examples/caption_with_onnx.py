"""Captions photos, and says how sure it is, by what `captioning export MODEL FOLDER --onnx` wrote.

Needs no PyTorch: pip install onnxruntime pillow
"""

import argparse
import json
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from PIL import Image, ImageOps

PAD, BOS, EOS, UNK = range(4)


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


def caption(graphs: list, about: dict, photo: Path, width: int) -> tuple[str, float | None]:
    """The best caption by beam search, and its confidence; a beam of width 1 is greedy search."""
    (encoder, remember, step), words, search = graphs, about["words"], about["search"]
    seen = run(encoder, {"images": image_of(photo, **about["preprocessing"])})
    now = run(remember, seen)
    memory = {name: each for name, each in now.items() if name.startswith("memory")}
    start = {name: each for name, each in now.items() if name not in memory}
    state = {name: each.repeat(width, axis=1) for name, each in start.items()}
    captions, ended = np.full((width, 1), BOS), np.zeros(width, bool)
    totals = np.where(np.arange(width), -np.inf, 0.0)  # beams start equal: only one may branch
    while not ended.all() and (length := captions.shape[1]) <= search["max_length"]:
        now = run(step, {"tokens": captions[None, :, -1], **state, **memory})
        scores = now["log_probs"][0]
        np.put_along_axis(scores, captions * np.isin(captions, about.get("once", [])), -np.inf, 1)
        last = captions[:, -1:]
        np.put_along_axis(scores, last * np.isin(last, about.get("nonadjacent", [])), -np.inf, 1)
        scores[:, EOS] += 0.0 if length > search["min_length"] else -np.inf
        scores[ended] = np.where(np.arange(len(words)) == PAD, 0.0, -np.inf)  # stay, at no cost
        sums, lengths = totals[:, None] + scores, (captions != PAD).sum(axis=1) - ended
        ranks = sums / lengths[:, None] ** search.get("length_penalty", 1.0)
        parents, chosen = np.divmod(np.argsort(-ranks, axis=None)[:width], len(words))
        captions, totals = np.column_stack([captions[parents], chosen]), sums[parents, chosen]
        state = {name: now[name.replace("state", "next")][:, parents] for name in state}
        ended = (captions == EOS).any(axis=1)
    tokens = captions[0, 1:][captions[0, 1:] != PAD]
    sure = None
    is_own_search = about["calibrated"] and width == search.get("width", 1)
    if is_own_search and EOS in tokens:  # a caption that was cut off has no confidence
        log_probs = reading(step, tokens, start, memory)
        sure = confidence(about, tokens, log_probs, seen["annotations"])
    return " ".join(words[token] for token in tokens if token != EOS), sure


def reading(step: InferenceSession, tokens: np.ndarray, state: dict, memory: dict) -> np.ndarray:
    """Log probabilities, before calibration, of all words in the place of each token."""
    rows = []
    for token in (BOS, *tokens[:-1]):
        now = run(step, {"tokens": np.array([[token]]), **state, **memory})
        state = {name: now[name.replace("state", "next")] for name in state}
        rows.append(now["log_probs"][0, 0])
    return np.stack(rows)


def confidence(about: dict, tokens: np.ndarray, log_probs: np.ndarray, seen: np.ndarray) -> float:
    """The chance that a caption is good: a logistic regression on what the graphs say of it."""
    calibration, words = about["calibration"], tokens[tokens != EOS]
    ranks = [about["ranks"].get(str(token), token - UNK) for token in words]
    rarest = np.log(max(ranks, default=0) + 1)  # words are in the order of their frequency
    chosen = log_probs[np.arange(len(tokens)), tokens]
    entropies = -(np.exp(log_probs) * np.maximum(log_probs, -1e4)).sum(axis=1)
    means, weights = calibration["means"], calibration["weights"]
    features = means | {"mean log probability": chosen.mean(), "mean entropy": entropies.mean()}
    features |= {"length": len(tokens), "rarest word": rarest}
    is_content = [about["words"][word].lower() not in about.get("functions", []) for word in words]
    if any(is_content):
        chances = np.exp(chosen[: len(words)][is_content]).clip(1e-4, 1 - 1e-4)
        features["content words"] = np.log(chances / (1 - chances)).mean()
    if calibration["photo"]:
        *of_photo, bias = calibration["photo"]
        features["kind of photo"] = (seen.mean(axis=(0, 1)) * of_photo).sum() + bias
    logit = sum(weight * (features[name] - means[name]) for name, weight in weights.items())
    return float(1 / (1 + np.exp(-logit - calibration["bias"])))


def main() -> None:
    """Print a line for each photo: its confidence, unless not calibrated, its path and caption."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the exported folder")
    parser.add_argument("photos", type=Path, metavar="PHOTO", nargs="+", help="JPEG, PNG, ...")
    options = parser.parse_args()
    if not (options.folder / "captioner.json").is_file():
        parser.error(f"{options.folder}: not a folder of `captioning export MODEL FOLDER --onnx`")
    about = json.loads((options.folder / "captioner.json").read_text(encoding="utf-8"))
    names = ("encoder", "remember", "step")
    graphs = [InferenceSession(options.folder / f"{name}.onnx") for name in names]
    for photo in options.photos:
        text, sure = caption(graphs, about, photo, about["search"].get("width", 1))
        print(*([] if sure is None else [f"{sure:.2f}"]), photo, text, sep="\t")


if __name__ == "__main__":
    main()

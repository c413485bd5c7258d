#!/usr/bin/env python
"""Measures reviews of captions, each figure beside a blind one: `scripts/review_model.py --help`.

A blind score is the log probability without the photo: what people's way of writing gives away.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import CAPTION_FEATURES, WORD_FEATURES, ReviewCalibration
from captioning.data.dataset import pad_captions
from captioning.data.readers import reader_for
from captioning.data.records import Record
from captioning.data.tokenizers import tokenizer
from captioning.data.vocabulary import PAD
from captioning.evaluation.calibration_report import Reliability
from captioning.evaluation.review_examples import Example, review_examples
from captioning.evaluation.review_fit import (
    FIT_BATCH_SIZE,
    LabelledFeatures,
    caption_features,
    fit_review,
    labelled_features,
    memory_vectors,
    separation,
)

BLIND_WEIGHT = 0.25
"""Weight of the log probability without the photo in the score of a caption of a pair. On replaced
nouns of Flickr8k's validation photos 0 to 0.5 are as good (0.907 to 0.902 of 560 pairs)."""

SAMPLES = 1000
"""Samples of the bootstrap."""


def main() -> None:
    """Print the table, and write the model if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="photos")
    parser.add_argument("--fit", required=True, help="data set whose val split fits the chances")
    parser.add_argument("--data", required=True, help="data set whose val split is measured")
    parser.add_argument("--pairs", type=Path, help="SugarCrepe's pairs on these photos, as a list")
    parser.add_argument("--limit", type=int, help="use only the first N photos of each")
    parser.add_argument("--out", type=Path, help="write the model with these reviews")
    options = parser.parse_args()
    captioner = load(options.model)
    review = fit_review(captioner, val_records(options.fit, options.limit))
    assert review is not None
    if options.out:
        assert captioner.calibration is not None
        calibration = replace(captioner.calibration, review=review)
        export(options.model, options.out, half=True, calibration=calibration)
    records = val_records(options.data, options.limit)
    examples = review_examples(records, captioner.vocabulary)
    photos = [example.record.image for example in examples]
    vectors = memory_vectors(captioner, photos, len(photos))
    print_tasks(captioner, examples, vectors, review)
    if options.pairs:
        rows = {photo.name: row for row, photo in enumerate(photos)}
        pairs = json.loads(options.pairs.read_text())
        pairs = [pair for pair in pairs if pair["file_name"] in rows]
        pair_vectors = vectors[[rows[pair["file_name"]] for pair in pairs]]
        print_pairs(captioner, pairs, pair_vectors, review.priors)


def val_records(data: str, limit: int | None) -> list[Record]:
    """Read the validation split of a data set."""
    return reader_for(data).read().records("val")[:limit]


def print_tasks(
    captioner: Captioner,
    examples: Sequence[Example],
    vectors: torch.Tensor,
    review: ReviewCalibration,
) -> None:
    """Print how well captions of other photos, and replaced nouns, are told from true ones."""
    captions = [example.captions for example in examples]
    nouns = [example.nouns for example in examples]
    features = caption_features(captioner, vectors, review.priors, captions, nouns)
    labelled_captions, labelled_nouns = labelled_features(examples, features)
    print(f"{'':30}   AUC      95 % interval  found at 5 %  calibration error")
    print_task(
        "captions of other photos", labelled_captions, CAPTION_FEATURES, review.caption_weights
    )
    blind = {"mean log ratio": -1.0, "mean log probability": 1.0, "bias": 0.0}
    print_task("  blind", labelled_captions, CAPTION_FEATURES, blind)
    print_task("nouns replaced", labelled_nouns, WORD_FEATURES, review.word_weights)
    blind = dict.fromkeys((*WORD_FEATURES, "bias"), 0.0) | {WORD_FEATURES[1]: 1.0}
    print_task("  blind", labelled_nouns, WORD_FEATURES, blind)


def print_task(
    name: str, labelled: LabelledFeatures, features: Sequence[str], weights: Mapping[str, float]
) -> None:
    """Print a row, with the interval of its area by a bootstrap over pairs."""
    chances, count = labelled.chances(features, weights), len(labelled.positives)
    positives, negatives = chances[:count], chances[count:]
    area, recall = separation(positives, negatives)
    draws = np.random.default_rng(0).integers(count, size=(SAMPLES, count))
    areas = [separation(positives[draw], negatives[draw])[0] for draw in draws]
    low, high = np.quantile(areas, [0.025, 0.975])
    error = Reliability(chances, labelled.labels).error
    title = f"{name} ({count})"
    print(f"{title:30} {area:.3f}  {low:8.3f} to {high:.3f} {recall:13.0%}  {error:17.3f}")


def print_pairs(
    captioner: Captioner,
    pairs: Sequence[Mapping[str, Any]],
    vectors: torch.Tensor,
    priors: Sequence[Sequence[float]],
) -> None:
    """Print the share of pairs whose true caption has the higher score."""
    split = tokenizer(captioner.vocabulary.tokenizer)
    captions = [[split(pair["caption"]), split(pair["negative_caption"])] for pair in pairs]
    log_probs = caption_log_probs(captioner, vectors, captions)
    prior_vectors = torch.tensor(priors).mean(dim=0).expand(len(pairs), 1, -1)
    blind_log_probs = caption_log_probs(captioner, prior_vectors, captions)
    scores = log_probs - BLIND_WEIGHT * blind_log_probs
    is_right = torch.stack(
        [scores[:, 0] > scores[:, 1], blind_log_probs[:, 0] > blind_log_probs[:, 1]]
    )
    known_words = frozenset(captioner.vocabulary.words)
    results: defaultdict[str, list[list[bool]]] = defaultdict(list)
    for pair, (true_words, wrong_words), result in zip(
        pairs, captions, is_right.T.tolist(), strict=True
    ):
        results[pair["kind"]].append(result)
        if known_words.issuperset(true_words + wrong_words):
            results[f"{pair['kind']}, all words known"].append(result)
    for kind, kind_results in sorted(results.items()):
        share, blind = np.mean(kind_results, axis=0)
        spread = 1.96 * (share * (1 - share) / len(kind_results)) ** 0.5
        title = f"{kind} ({len(kind_results)})"
        print(f"{title:38} {share:.2f} (+-{spread:.2f})  blind {blind:.2f}")


@torch.no_grad()
def caption_log_probs(
    captioner: Captioner, vectors: torch.Tensor, captions: Sequence[Sequence[Sequence[str]]]
) -> torch.Tensor:
    """Return the log probability of each caption of each photo.

    A word that the model does not know has the probability of `<unk>`: left out, it would be
    likelier than any other word.

    Args:
        captioner: the model.
        vectors: the adapted annotation vectors of each photo.
        captions: the words of each caption of each photo.
    """
    network, log_probs = captioner.network, []
    for start in range(0, len(captions), FIT_BATCH_SIZE):
        ids = [
            [torch.tensor(captioner.vocabulary.ids(words)[1:]) for words in photo_captions]
            for photo_captions in captions[start : start + FIT_BATCH_SIZE]
        ]
        tokens = pad_captions(ids)
        memory = network.remember(vectors[start : start + FIT_BATCH_SIZE])
        logits, _ = network.teacher_forcing(memory, tokens)
        token_log_probs = logits.log_softmax(dim=3).gather(3, tokens[..., None]).squeeze(3)
        log_probs.append(token_log_probs.masked_fill(tokens == PAD, 0.0).sum(dim=2))
    return torch.cat(log_probs)


if __name__ == "__main__":
    main()

"""Scores of captions in plain lists or mappings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer_of_scores
from captioning.errors import InputError, format_value
from captioning.metrics import registry
from captioning.metrics.scores import Scores, generated_tokens

PerImage: TypeAlias = Sequence[Any] | Mapping[Any, Any]
"""A value of each image, in order or by image."""


def corpus_scores(
    candidates: PerImage,
    references: PerImage,
    metrics: Sequence[str] = ("CIDEr",),
    tokenizer: TokenizerName = "ptb",
) -> dict[str, float]:
    """Score one caption per image against its references, as `captioning score` does.

    Args:
        candidates: a caption of each image: a list, or a mapping by image.
        references: the reference captions of each image, or its only one: a list in the order of
            the candidates, or a mapping, whose further images are ignored.
        metrics: names of `captioning.metrics.registry`, such as BLEU, ROUGE-L, CIDEr and METEOR.
        tokenizer: splits captions into words.

    Returns:
        The scores of the corpus by name, such as "BLEU-1" to "BLEU-4" for BLEU. CIDEr weighs words
        by the references of these images, so that of a single image is 0.

    Raises:
        InputError: an image has no caption or no reference, or a metric is unknown or needs an
            extra.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    scorers = registry.scorers(names)
    texts, reference_texts = _matched_texts(candidates, references)
    tokens = corpus_tokens(texts, reference_texts, tokenizer)
    scores = [registry.score_tokens(scorers[name], *tokens) for name in names]
    return Scores.joined(scores).corpus


def corpus_tokens(
    candidates: Iterable[str], references: Iterable[Iterable[str]], tokenizer: TokenizerName
) -> tuple[list[list[str]], list[list[list[str]]]]:
    """Split generated captions and their references into the tokens of scores."""
    tokenize = tokenizer_of_scores(tokenizer)
    candidate_tokens = [generated_tokens(caption, tokenizer) for caption in candidates]
    return candidate_tokens, [list(map(tokenize, captions)) for captions in references]


def _matched_texts(
    candidates: PerImage,
    references: PerImage,
) -> tuple[list[str], list[list[str]]]:
    """The candidate and the references of each image."""
    if isinstance(candidates, Mapping) and isinstance(references, Mapping):
        images: list[Any] = list(candidates)
        missing = [image for image in images if image not in references]
        if missing:
            raise InputError(f"image {missing[0]!r} has a caption but no reference")
        texts = [candidates[image] for image in images]
        captions = [references[image] for image in images]
    elif isinstance(candidates, Mapping) or isinstance(references, Mapping):
        raise InputError("give candidates and references both as lists, or both by image")
    else:
        texts, captions = list(candidates), list(references)
        images = list(range(len(texts)))
        if len(texts) != len(captions):
            raise InputError(f"{len(texts)} candidates, but references of {len(captions)} images")
    if not images:
        raise InputError("there are no captions to score")
    reference_texts = [[one] if isinstance(one, str) else list(one) for one in captions]
    for image, text, image_references in zip(images, texts, reference_texts, strict=True):
        if not image_references:
            raise InputError(f"image {image!r} has a caption but no reference")
        for caption in (text, *image_references):
            if not isinstance(caption, str):
                raise InputError(f"image {image!r}: {format_value(caption)} is not a caption")
    return texts, reference_texts

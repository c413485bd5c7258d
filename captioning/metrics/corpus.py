"""Scores of captions in plain lists or mappings."""

from collections.abc import Mapping, Sequence
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
        candidates: the caption of each image: a list, or a mapping by image.
        references: the reference captions of each image, or its only one, in the same form; a
            mapping may have further images, which are ignored.
        metrics: names of `captioning.metrics.registry`, such as BLEU, ROUGE-L, CIDEr and METEOR.
        tokenizer: splits captions into words.

    Returns:
        The scores of the corpus by name, such as "BLEU-1" to "BLEU-4" for BLEU. CIDEr weighs words
        by the references of these images, so that of a single image is 0.

    Raises:
        InputError: an image has no caption or no reference, or a metric or tokenizer is unknown or
            needs an extra.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    scorers = registry.scorers(names)
    if isinstance(candidates, Mapping) != isinstance(references, Mapping):
        raise InputError("give candidates and references both as lists, or both by image")
    if not isinstance(candidates, Mapping) and len(candidates) != len(references):
        lengths = f"{len(candidates)} candidates, but references of {len(references)} images"
        raise InputError(lengths)
    captions = _by_image(candidates)
    reference_captions = {
        image: [texts] if isinstance(texts, str) else list(texts)
        for image, texts in _by_image(references).items()
    }
    for image, caption in captions.items():
        for text in (caption, *reference_captions.get(image, [])):
            if not isinstance(text, str):
                raise InputError(f"image {image!r}: {format_value(text)} is not a caption")
    tokens = corpus_tokens(captions, reference_captions, tokenizer)
    scores = [registry.score_tokens(scorers[name], *tokens) for name in names]
    return Scores.joined(scores).corpus


def corpus_tokens(
    captions: Mapping[Any, str],
    references: Mapping[Any, Sequence[str]],
    tokenizer: TokenizerName,
) -> tuple[list[list[str]], list[list[list[str]]]]:
    """Split a generated caption per image and its references into the tokens of scores.

    Raises:
        InputError: there are no captions, or an image with a caption has no reference.
    """
    if not captions:
        raise InputError("there are no captions to score; caption at least one image")
    if missing := [image for image in captions if not references.get(image)]:
        raise InputError(
            f"image {missing[0]!r} has a caption but no reference; score captions of the split "
            "whose annotations these are"
        )
    tokenize = tokenizer_of_scores(tokenizer)
    candidate_tokens = [generated_tokens(caption, tokenizer) for caption in captions.values()]
    return candidate_tokens, [list(map(tokenize, references[image])) for image in captions]


def _by_image(values: PerImage) -> Mapping[Any, Any]:
    return values if isinstance(values, Mapping) else dict(enumerate(values))

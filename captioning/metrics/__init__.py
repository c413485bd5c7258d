"""Scores captions against reference captions, without a model.

BLEU, ROUGE-L and CIDEr are computed as in the COCO caption evaluation; METEOR and CLIPScore need
an extra.
"""

from captioning.metrics.corpus import corpus_scores

__all__ = ["corpus_scores"]

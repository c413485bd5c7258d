"""Scorers of captions against reference captions; they need no model.

BLEU, ROUGE-L and CIDEr are computed as in the COCO caption evaluation; METEOR and CLIPScore need
an extra.
"""

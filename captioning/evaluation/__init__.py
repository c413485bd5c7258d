"""A model on a data set: captions of a split, their scores, and grounding."""

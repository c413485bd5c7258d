"""A model against a data set: its captions of a split, their scores, and where it looked."""

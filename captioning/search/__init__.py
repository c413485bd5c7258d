"""Decoding: greedy search, sampling and beam search."""

from captioning.search.beam import BeamSearch
from captioning.search.constrained import ConstrainedBeamSearch
from captioning.search.diverse import DiverseBeamSearch
from captioning.search.independent import Greedy, Sampling
from captioning.search.search import Decoded, Search

__all__ = [
    "BeamSearch",
    "ConstrainedBeamSearch",
    "Decoded",
    "DiverseBeamSearch",
    "Greedy",
    "Sampling",
    "Search",
]

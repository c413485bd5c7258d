"""How words are chosen: greedily, by sampling, or by following several captions at once."""

from captioning.search.decoding import BeamSearch, Greedy, Sampling
from captioning.search.search import Decoded, Search

__all__ = ["BeamSearch", "Decoded", "Greedy", "Sampling", "Search"]

"""How words are chosen: greedily, by sampling, or by following several captions at once."""

from captioning.search.beam import BeamSearch
from captioning.search.greedy import Greedy
from captioning.search.sampling import Sampling
from captioning.search.search import Decoded, Search

__all__ = ["BeamSearch", "Decoded", "Greedy", "Sampling", "Search"]

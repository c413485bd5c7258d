"""Maps made by hiding regions: what a word loses without them (Zeiler and Fergus 2014)."""

from captioning.maps.attention_maps import weights_by_norm
from captioning.maps.reading import Reading
from captioning.maps.word_map import Maps, WordMap, shares


class OcclusionMap(WordMap):
    """The fall of the word's log probability where the 3 x 3 regions around each one are hidden.

    They are hidden from the caption's first word on, so that the decoder's state holds nothing of
    them. A rise counts as none.
    """

    def __call__(self, reading: Reading) -> Maps:
        """The positive part of the falls, as shares."""
        reading.need_one_grid()
        return shares(reading.occlusion_drops, reading.grid)


class OcclusionNormMap(WordMap):
    """The fall by hiding regions, times attention times norm: both have to name a region."""

    def __call__(self, reading: Reading) -> Maps:
        """The product, as shares."""
        reading.need_one_grid()
        drops = reading.occlusion_drops.clamp(min=0)
        return shares(drops * weights_by_norm(reading), reading.grid)

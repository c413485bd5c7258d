"""Maps of a word: which regions of the photo a model wrote it from.

Several ways to tell, by one interface: `word_maps` of a name in `MAPS`. All but the evidence need
no more than the promise that every encoder and decoder keeps, and the plain model computes them.
"""

from collections.abc import Sequence

from captioning.errors import InputError
from captioning.maps.attention_maps import AttentionMap, AttentionNormMap, NextAttentionMap
from captioning.maps.evidence_map import EvidenceMap
from captioning.maps.gradient_maps import FineGradCAM, GradCAM, GradientMap
from captioning.maps.occlusion_maps import OcclusionMap, OcclusionNormMap
from captioning.maps.reading import Reading
from captioning.maps.relevance_map import RelevanceMap
from captioning.maps.word_map import MapError, Maps, WordMap

ATTENTION = "attention"
"""The map that is shown unless another one is asked for."""

MAPS: dict[str, WordMap] = {
    ATTENTION: AttentionMap(),
    "attention-norm": AttentionNormMap(),
    "next-attention": NextAttentionMap(),
    "evidence": EvidenceMap(),
    "gradient": GradientMap(),
    "relevance": RelevanceMap(),
    "grad-cam": GradCAM(),
    "fine-grad-cam": FineGradCAM(),
    "occlusion": OcclusionMap(),
    "occlusion-norm": OcclusionNormMap(),
}
"""All maps by name."""


def word_maps(name: str, reading: Reading) -> Maps:
    """The map of every word of the captions that a model has read.

    Args:
        name: one of `MAPS`.
        reading: photos, and the captions that the model reads.

    Raises:
        MapError: there is no map of this name, or none of this model.
    """
    known_maps([name])
    try:
        return MAPS[name](reading)
    except InputError as error:
        raise MapError(f"map {name}: {error}") from None


def known_maps(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once; the attention's if there are none.

    Raises:
        MapError: there is no map of one of them.
    """
    for name in names:
        if name not in MAPS:
            raise MapError(f"unknown map {name!r}; choose from {', '.join(MAPS)}")
    return tuple(dict.fromkeys(names)) or (ATTENTION,)


__all__ = ["ATTENTION", "MAPS", "MapError", "Maps", "Reading", "WordMap", "known_maps", "word_maps"]

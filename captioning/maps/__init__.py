"""Maps of a word: which regions of the photo a model wrote it from.

Several ways to tell, by one interface: `word_maps` of a name in `MAPS`. All but the evidence need
no more than the promise that every encoder and decoder keeps, and the plain model computes them.
"""

from collections.abc import Sequence

from captioning.errors import InputError
from captioning.maps.attention_maps import (
    AttentionMap,
    AttentionNormMap,
    HeadMap,
    NextAttentionMap,
)
from captioning.maps.evidence_map import AttentionEvidenceMap, EvidenceMap
from captioning.maps.gradient_maps import FineGradCAM, GradCAM, GradientMap
from captioning.maps.occlusion_maps import OcclusionMap, OcclusionNormMap
from captioning.maps.reading import Reading
from captioning.maps.relevance_map import RelevanceMap
from captioning.maps.standout_map import StandoutMap
from captioning.maps.word_map import MapError, Maps, WordMap
from captioning.models import Decoder

ATTENTION = "attention"
"""The map that a model shows unless it was made to show another: `Captioner.shown_map`."""

HEADS = "heads"
"""Stands for the attention of every layer and head, where a model has several."""

MAPS: dict[str, WordMap] = {
    ATTENTION: AttentionMap(),
    "attention-norm": AttentionNormMap(),
    "next-attention": NextAttentionMap(),
    "evidence": EvidenceMap(),
    "attention-evidence": AttentionEvidenceMap(),
    "standout": StandoutMap(),
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
        name: one of `MAPS`, or of the decoder's `map_names`: that layer's and head's attention.
        reading: photos, and the captions that the model reads.

    Raises:
        MapError: there is no map of this name, or none of this model.
    """
    heads = reading.decoder.map_names
    word_map = HeadMap(name) if name in heads else MAPS.get(name)
    if word_map is None:
        raise _unknown(name, heads)
    try:
        return word_map(reading)
    except InputError as error:
        raise MapError(f"map {name}: {error}") from None


def known_maps(
    names: Sequence[str], heads: Sequence[str] = (), shown: str = ATTENTION
) -> tuple[str, ...]:
    """The names, each once; the one that the model shows if there are none.

    Args:
        names: of maps; `HEADS` stands for the reported attention and then that of all heads.
        heads: the decoder's `map_names`.
        shown: the model's `shown_map`.

    Raises:
        MapError: there is no map of one of them, or all heads are asked for, and the model has one
            map of attention alone.
    """
    if HEADS in names and not heads:
        raise MapError(f"map {HEADS}: this model has one map of attention alone")
    whole = [each for name in names for each in ((ATTENTION, *heads) if name == HEADS else (name,))]
    for name in whole:
        if name not in MAPS and name not in heads:
            raise _unknown(name, heads)
    return tuple(dict.fromkeys(whole)) or (shown,)


def check_shown_map(name: str, decoder: Decoder) -> None:
    """Refuse a map that cannot be the one that a model shows.

    Raises:
        MapError: there is no map of this name, or this decoder has none.
    """
    known_maps([name])
    if MAPS[name].needs_evidence and not decoder.has_evidence:
        raise MapError(f"map {name}: this decoder scores no word by a region alone; choose another")


def _unknown(name: str, heads: Sequence[str]) -> MapError:
    return MapError(f"unknown map {name!r}; choose from {', '.join([*MAPS, *heads])}")


__all__ = [
    "ATTENTION",
    "HEADS",
    "MAPS",
    "MapError",
    "Maps",
    "Reading",
    "WordMap",
    "check_shown_map",
    "known_maps",
    "word_maps",
]

"""Maps of a word: which regions of the image a model wrote it from.

A map is a function of images with captions (`CaptionedBatch`), listed by name in `MAPS`. It reads
the captions with the plain model and gives every word a share of each region. To add a map, write
such a function in a file of its own and add a line to `MAPS`.
"""

from collections.abc import Sequence

from captioning.maps.attention_maps import attention_map, head_map, head_names
from captioning.maps.captioned import CaptionedBatch, MapError, Maps, WordMap, shares
from captioning.maps.evidence_map import (
    attention_evidence_map,
    attention_fine_evidence_map,
    evidence_map,
    has_evidence,
)
from captioning.maps.probability_maps import grad_cam, gradient_map, occlusion_map
from captioning.models import Model

ATTENTION = "attention"
"""The one map that every model has."""

ATTENTION_EVIDENCE = "attention-evidence"
"""The default map of decoders with a deep output."""

HEADS = "heads"
"""Stands for `ATTENTION` and the attention of every layer and head."""

MAPS: dict[str, WordMap] = {
    ATTENTION: attention_map,
    "evidence": evidence_map,
    ATTENTION_EVIDENCE: attention_evidence_map,
    "attention-fine-evidence": attention_fine_evidence_map,
    "gradient": gradient_map,
    "grad-cam": grad_cam,
    "occlusion": occlusion_map,
}
"""All maps by name, in addition to the attention heads of `head_names`."""

NEEDS_EVIDENCE = frozenset({"evidence", ATTENTION_EVIDENCE, "attention-fine-evidence"})
"""Maps that only an LSTM decoder with deep output has."""

ONE_PASS = NEEDS_EVIDENCE | {ATTENTION}
"""Maps that need at most one pass over a caption. Others take a gradient per word or many
passes."""


def default_map(model: Model) -> str:
    """Return the name of the map that is shown by default."""
    return ATTENTION_EVIDENCE if has_evidence(model.decoder) else ATTENTION


def available_maps(model: Model) -> tuple[str, ...]:
    """Return the names of the maps in `MAPS` that a model has, the default first."""
    names = dict.fromkeys((default_map(model), *MAPS))
    if has_evidence(model.decoder):
        return tuple(names)
    return tuple(name for name in names if name not in NEEDS_EVIDENCE)


def word_maps(name: str, batch: CaptionedBatch) -> Maps:
    """Compute the map of every word, by a name in `MAPS` or one of the decoder's `head_names`.

    Raises:
        MapError: the map is unknown, or the model does not have it.
    """
    resolve_map_names([name], batch.model)
    if name not in MAPS:
        return head_map(name, batch)
    return MAPS[name](batch)


def resolve_map_names(names: Sequence[str], model: Model) -> tuple[str, ...]:
    """Check names of maps; returns them without duplicates and with `HEADS` expanded.

    Raises:
        MapError: a map is unknown, or the model does not have it.
    """
    heads = head_names(model.decoder) if set(names) - set(MAPS) else ()
    if HEADS in names and not heads:
        raise MapError(f"map {HEADS}: the attention of this model has a single head")
    expanded: list[str] = []
    for name in names:
        expanded += (ATTENTION, *heads) if name == HEADS else (name,)
    for name in expanded:
        if name not in MAPS and name not in heads:
            raise MapError(
                f"unknown map {name!r}; choose from {', '.join([*MAPS, *heads])}, or import the "
                "module of your own"
            )
        if name in NEEDS_EVIDENCE and not has_evidence(model.decoder):
            raise MapError(
                f"map {name}: only an LSTM decoder with deep output has it; choose another map"
            )
    return tuple(dict.fromkeys(expanded))


__all__ = [
    "ATTENTION",
    "ATTENTION_EVIDENCE",
    "HEADS",
    "MAPS",
    "NEEDS_EVIDENCE",
    "ONE_PASS",
    "CaptionedBatch",
    "MapError",
    "Maps",
    "WordMap",
    "available_maps",
    "default_map",
    "has_evidence",
    "head_names",
    "resolve_map_names",
    "shares",
    "word_maps",
]

"""Grounding: maps of words compared with the boxes and masks of the objects that the words name."""

from captioning.evaluation.grounding.grounding_report import (
    GroundingReport,
    grounding_table,
    maps_json,
)
from captioning.evaluation.grounding.lexicon import Lexicon, Mention, categories, named_by_people
from captioning.evaluation.grounding.measure import ground
from captioning.evaluation.grounding.targets import GroundedMention

__all__ = [
    "GroundedMention",
    "GroundingReport",
    "Lexicon",
    "Mention",
    "categories",
    "ground",
    "grounding_table",
    "maps_json",
    "named_by_people",
]

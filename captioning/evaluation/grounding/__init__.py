"""Grounding: maps of words compared with the boxes and masks of the objects that the words name."""

from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.lexicon import Lexicon, Mention, categories, named_by_people
from captioning.evaluation.grounding.looks import Look
from captioning.evaluation.grounding.measure import ground, ground_maps
from captioning.evaluation.grounding.tables import map_table, table

__all__ = [
    "GroundingReport",
    "Lexicon",
    "Look",
    "Mention",
    "categories",
    "ground",
    "ground_maps",
    "map_table",
    "named_by_people",
    "table",
]

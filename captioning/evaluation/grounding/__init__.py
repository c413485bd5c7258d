"""Grounding: a model's maps of words against the boxes and masks of the objects that these name."""

from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.lexicon import Lexicon, Mention
from captioning.evaluation.grounding.looks import Look
from captioning.evaluation.grounding.map_table import map_table
from captioning.evaluation.grounding.measure import ground, ground_maps
from captioning.evaluation.grounding.report_table import table

__all__ = [
    "GroundingReport",
    "Lexicon",
    "Look",
    "Mention",
    "ground",
    "ground_maps",
    "map_table",
    "table",
]

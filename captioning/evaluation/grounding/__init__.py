"""Grounding: a model's attention against the boxes and masks of the objects that it names."""

from captioning.evaluation.grounding.grounding_report import GroundingReport
from captioning.evaluation.grounding.lexicon import Lexicon, Mention
from captioning.evaluation.grounding.looks import Look
from captioning.evaluation.grounding.measure import ground
from captioning.evaluation.grounding.report_table import table

__all__ = ["GroundingReport", "Lexicon", "Look", "Mention", "ground", "table"]

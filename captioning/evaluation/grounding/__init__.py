"""Whether a model looks at what it names: attention against boxes and masks."""

from captioning.evaluation.grounding.ground import ground
from captioning.evaluation.grounding.lexicon import Lexicon, Mention
from captioning.evaluation.grounding.looks import Look
from captioning.evaluation.grounding.report import GroundingReport
from captioning.evaluation.grounding.table import table

__all__ = ["GroundingReport", "Lexicon", "Look", "Mention", "ground", "table"]

"""Whether a model looks at what it names: attention against boxes and masks."""

from captioning.metrics.grounding.ground import ground
from captioning.metrics.grounding.lexicon import Lexicon, Mention
from captioning.metrics.grounding.looks import Look
from captioning.metrics.grounding.report import GroundingReport
from captioning.metrics.grounding.table import table

__all__ = ["GroundingReport", "Lexicon", "Look", "Mention", "ground", "table"]

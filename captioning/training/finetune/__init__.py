"""Finetuning: from a folder of captioned photos to a model."""

from captioning.training.finetune.choice import START_WEIGHTS, best_between
from captioning.training.finetune.messages import EXAMPLES
from captioning.training.finetune.plan import Plan
from captioning.training.finetune.run import finetune

__all__ = ["EXAMPLES", "START_WEIGHTS", "Plan", "best_between", "finetune"]

"""Training: objectives, the Lightning module, callbacks and the commands."""

from captioning.training.callbacks import ExponentialAverage
from captioning.training.guided_attention import GuidedAttention
from captioning.training.module import InverseSquareRoot, OneCycle, Schedule
from captioning.training.objectives import CrossEntropy, Objective
from captioning.training.sampled_bound import SampledBound
from captioning.training.self_critical import SelfCritical
from captioning.training.without_forgetting import WithoutForgetting

__all__ = [
    "CrossEntropy",
    "ExponentialAverage",
    "GuidedAttention",
    "InverseSquareRoot",
    "Objective",
    "OneCycle",
    "SampledBound",
    "Schedule",
    "SelfCritical",
    "WithoutForgetting",
]

"""The objective of hard attention: the sampled lower bound (Xu et al. 2015, section 4.1).

Shapes: B images, N captions per image, T words, L regions, D annotation width, V vocabulary.
"""

import torch
from jaxtyping import Float
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from captioning.data.dataset import Batch
from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.models import HardAttention, LSTMDecoder, Model
from captioning.training.objectives import Loss, Objective


class SampledBound(Objective, nn.Module):
    """Maximises the lower bound sum_s p(s | a) log p(y | s, a) over the regions s (eq. 10).

    For every word one region is drawn. The gradient of a caption is that of its log-likelihood,
    plus `reward` times how much that exceeds a baseline times the gradient of log p(s | a), plus
    `entropy` times that of the weights' entropy (eq. 12 and the rule that follows it). A share of
    the images, redrawn in every batch, gets the expected contexts of soft attention instead. The
    baseline is a moving average of the log-likelihoods with drawn regions, the same on all ranks.

    Args:
        reward: lambda_r; with 1, no entropy and no expected contexts the gradient's expectation is
            exactly that of the bound (eq. 11).
        entropy: lambda_e, for each word.
        expected: share of the images that get expected contexts.
        decay: of the moving average, per batch.
    """

    baseline: Float[Tensor, ""]

    def __init__(
        self, reward: float = 1.0, entropy: float = 0.002, expected: float = 0.5, decay: float = 0.9
    ) -> None:
        super().__init__()
        self.reward, self.entropy, self.expected, self.decay = reward, entropy, expected, decay
        self.register_buffer("baseline", torch.zeros(()))

    def check(self, model: Model) -> None:
        decoder = model.decoder
        if not isinstance(decoder, LSTMDecoder) or not isinstance(decoder.attention, HardAttention):
            raise InputError(
                "SampledBound: the decoder has no hard attention; give it one by "
                "model.decoder.init_args.attention captioning.models.HardAttention"
            )

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        decoder = model.decoder
        inputs, targets = batch.tokens[..., :-1], batch.tokens[..., 1:]
        expected = torch.rand(len(annotations), device=annotations.device) < self.expected
        memory = model.remember(annotations)
        state = decoder.start(memory, inputs.shape[1])
        state = state | {"draws": ~expected[:, None].expand(targets.shape[:2])}
        steps = []
        for words in inputs.unbind(dim=2):
            steps.append(decoder.step(words, state, memory))
            state = steps[-1].state
        logits = torch.stack([step.logits for step in steps], dim=2)
        weights = torch.stack([step.weights for step in steps], dim=2)
        log_probs = torch.stack([step.state["log_probs"] for step in steps], dim=2)
        mask = targets != PAD
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 2)
        losses = F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, reduction="none")
        likelihoods = -losses.view(targets.shape).sum(dim=2)  # log p(y | s, a)
        region_log_probs = (log_probs * mask).sum(dim=2)  # log p(s | a)
        # A region without weight has no entropy, and no gradient that is not a number.
        entropies = -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(dim=3)
        entropy = (entropies * mask).sum()
        is_caption = mask.any(dim=2)
        advantages = (likelihoods.detach() - self.baseline) * is_caption
        # The difference is zero, but its gradient is not.
        reinforcement = region_log_probs - region_log_probs.detach()
        rewards = self.reward * advantages * reinforcement  # eq. 12
        total = -(likelihoods + rewards).sum() - self.entropy * entropy
        with torch.no_grad():
            is_sampled = is_caption[~expected]
            likelihood = (likelihoods[~expected] * is_sampled).sum().float()
            likelihood, captions = _sums_over_ranks(likelihood, is_sampled.sum())
            if captions:
                self.baseline.lerp_((likelihood / captions).to(self.baseline), 1 - self.decay)
            entropy_sum, word_count = _sums_over_ranks(entropy, mask.sum())
        metrics = {"baseline": self.baseline.clone(), "entropy": entropy_sum / word_count}
        return Loss(total, mask.sum(), metrics)


def _sums_over_ranks(*numbers: Tensor) -> tuple[Tensor, ...]:
    sums = torch.stack([number.to(numbers[0]) for number in numbers])
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(sums)
    return sums.unbind()

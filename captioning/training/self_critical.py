"""Self-critical training: sampled captions, rewarded by a metric, against each other.

Shapes: B images, N samples per image, T words, L regions, D annotation width.
"""

from collections.abc import Sequence
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.tokenizers import NLTK, tokenizer_of_scores
from captioning.data.tokens import words_of
from captioning.data.vocabulary import BOS, EOS, SPECIAL, Vocabulary
from captioning.errors import InputError
from captioning.kernels import caption_cross_entropy, plain
from captioning.metrics.cider import LENGTH_SIGMA, DocumentFrequencies, rewards
from captioning.metrics.ngrams import MAX_N
from captioning.metrics.scores import Words, generated_words
from captioning.models import Decoder, Model
from captioning.models.decoder import Memory
from captioning.search import Decoded, Sampling, Search
from captioning.search.search import token_log_probs
from captioning.training.objectives import Loss, Objective

SACREEOS_VERSION = "1.0.0"
"""The version of SacreEOS whose signatures ours are (Hu et al. 2023, arXiv:2305.12254)."""


class SelfCritical(Objective):
    """Maximises the expected reward of sampled captions (Rennie et al. 2017).

    N captions of each image are sampled. The advantage of each is its reward minus the mean reward
    of the other N - 1, an unbiased baseline (Luo 2020, "A Better Variant of Self-Critical Sequence
    Training", eq. 4). The reward is CIDEr-D by the training references, plus a share of BLEU-4. The
    end of a caption counts as a word, so that truncated captions are not rewarded for what they
    leave out. Dropout is off, so that what is sampled from is what is trained.

    Args:
        samples: N, at least two.
        bleu: how much of BLEU-4 is added to CIDEr-D.
        max_length: the most words of a sample.
        likelihood: weight of the references' cross-entropy, the mean over captions, which keeps the
            words from narrowing (Paulus et al. 2018, eq. 16).
    """

    def __init__(
        self, samples: int = 5, bleu: float = 0.0, max_length: int = 20, likelihood: float = 0.0
    ) -> None:
        if samples < 2:
            raise InputError(f"SelfCritical: samples are compared; give two or more, not {samples}")
        bleu_term = f"+{bleu:g}*BLEU[n{MAX_N}]" if bleu else ""
        self.signature = (  # frequencies of the training references, ends of captions counted
            f"STANDARD_wInit+Cider-D[n{MAX_N},s{LENGTH_SIGMA}]{bleu_term}+average[nspi{samples}]"
            f"+{SACREEOS_VERSION}"
        )
        self.sampling: Search = Sampling(captions=samples, max_length=max_length, min_length=0)
        self.bleu = bleu
        self.likelihood = likelihood

    def prepare(
        self, records: Sequence[Record], vocabulary: Vocabulary, preprocessing: Preprocessing
    ) -> None:
        super().prepare(records, vocabulary, preprocessing)
        tokenize = tokenizer_of_scores(vocabulary.tokenizer)
        self._references: dict[int | str, list[Words]] = {}
        for record in records:
            captions = [words_of(tokenize(caption)) for caption in record.captions]
            self._references[record.image_id] = [(*words, SPECIAL[EOS]) for words in captions]
        self._frequencies = DocumentFrequencies.of(list(self._references.values()))

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        modules = nn.ModuleList([model.adapter, model.decoder])
        training = plain(model.decoder).training
        modules.eval()
        try:
            memory = model.remember(annotations)
            with torch.no_grad():
                decoded = self.sampling(model.decoder, memory)
            samples = sampled_words(decoded, self.vocabulary)
            references = [self._references[record.image_id] for record in batch.records]
            # Single precision, also under autocast, where annotations are in half precision.
            sample_rewards = torch.from_numpy(
                rewards(samples, references, self._frequencies, self.bleu)
            )
            sample_rewards = sample_rewards.float().to(annotations.device)
            total = self_critical_loss(model.decoder, memory, decoded.tokens, sample_rewards)
            count = sample_rewards.numel()
            if self.likelihood:
                loss, _ = caption_cross_entropy(model.decoder, memory, batch.tokens)
                captions = batch.tokens.any(dim=2).sum()
                total = total + self.likelihood * count / captions * loss
        finally:
            modules.train(training)
        words = sum(len(sample) for sample in chain.from_iterable(samples)) / count
        divisor = torch.tensor(count, device=total.device)
        return Loss(total, divisor, {"reward": sample_rewards.mean(), "words": words})


def self_critical_loss(
    decoder: Decoder, memory: Memory, samples: Int[Tensor, "B N T"], rewards: Float[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """Minus the samples' log-likelihoods, times their advantages, summed over samples.

    For samples of the decoder, the expected gradient is that of minus the expected reward.
    """
    n = rewards.shape[1]
    # Relative to the mean of the other samples, which excludes the sample itself.
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) * (n / (n - 1))
    tokens = torch.cat([torch.full_like(samples[..., :1], BOS), samples], dim=2)
    logits, _ = decoder.teacher_forcing(memory, tokens[..., :-1])
    log_likelihoods = token_log_probs(logits, samples).sum(dim=2)
    return -(advantages * log_likelihoods).sum()


def sampled_words(decoded: Decoded, vocabulary: Vocabulary) -> list[list[Words]]:
    """The samples of each image as words of the scores, with the end mark where they have one."""

    def words_of_sample(token_ids: list[int]) -> Words:
        words = vocabulary.decode(token_ids)
        if vocabulary.tokenizer in NLTK:
            words = tuple(generated_words(" ".join(words)))
        return (*words, SPECIAL[EOS]) if EOS in token_ids else words

    return [[words_of_sample(row) for row in rows] for rows in decoded.tokens.tolist()]

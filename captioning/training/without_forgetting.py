"""Learning without forgetting: the manner of new captions, and what the model knew before.

Shapes: B images, N captions per image, S tokens with BOS, T = S - 1 words, L regions, D annotation
width, V vocabulary.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from captioning.kernels import accelerate, caption_cross_entropy, on_by_default
from captioning.models import Decoder, Model
from captioning.models.decoder import Memory
from captioning.search import Sampling, Search
from captioning.training.objectives import Loss, Objective

MAX_INSERTED = 3
"""Maximum number of words of the manner that a reading inserts before a word."""

UNLIKELY = 0.01
"""Words of the manner with a lower probability are left out of a reading."""

EXCLUDED = -1e4
"""Logit of words that are not counted; finite, since the divergence multiplies it by zero."""


@dataclass(eq=False)
class WithoutForgetting(Objective):
    """Cross-entropy, and the divergence of sampled captions from what the initial model would say.

    The cross-entropy teaches the captions. So that a few dozen captions do not replace what the
    model knows of photos, it also samples a caption of each photo, and the model as it was before
    the training, `model.initial` of a configuration, reads it. The Kullback-Leibler divergence from
    the initial model's probabilities of each word is added to the loss: learning without forgetting
    (Li and Hoiem 2016, eq. 2), on the model's own captions (Agarwal et al. 2024, "On-policy
    distillation of language models", eq. 3).

    The initial model reads in its own manner: "a dog runs in the grass" where the model samples
    "street photo of dog runs in grass" (`read_in_own_manner`). The divergence is among the words
    that are not of the manner. So the initial model teaches what to say, and the captions how to
    say it. Captions of photos for rehearsal (`Record.is_rehearsal`) are not learnt: these photos
    have the divergence alone.

    Args:
        divergence: weight of the divergence, per word.
        manner: words that the captions have more or less often than the initial model's captions.
        label_smoothing: of the cross-entropy; share of a word's probability spread over the
            vocabulary.
        max_length: the most words of a sample.
    """

    divergence: float = 8.0
    manner: Sequence[str] = ()
    label_smoothing: float = 0.1
    max_length: int = 20

    def check(self, model: Model) -> None:
        """Copy the model, which has its initial parameters."""
        initial = deepcopy(model).eval().requires_grad_(False)
        self._initial = accelerate(initial) if on_by_default() else initial
        self._sampling: Search = Sampling(max_length=self.max_length, min_length=0)

    def prepare(
        self, records: Sequence[Record], vocabulary: Vocabulary, preprocessing: Preprocessing
    ) -> None:
        super().prepare(records, vocabulary, preprocessing)
        ids = {token_id for word in self.manner for token_id in vocabulary.ids([word])}
        self._manner_ids = frozenset(ids - {BOS, EOS, UNK})

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        memory = model.remember(annotations)
        is_rehearsal = torch.tensor([record.is_rehearsal for record in batch.records])
        tokens = batch.tokens
        if is_rehearsal.any():
            tokens = tokens.masked_fill(is_rehearsal.to(tokens.device)[:, None, None], PAD)
        smoothing = self.label_smoothing
        cross_entropy, _ = caption_cross_entropy(model.decoder, memory, tokens, smoothing)
        word_count = (batch.tokens[..., 1:] != PAD).sum()
        with torch.no_grad():
            samples = self._sampling(model.decoder, memory).tokens
            if model.encoder.frozen_part is not model.encoder:
                annotations = self._initial.encode(batch.images)
            initial_logits = self._initial_logits(annotations, samples)
        inputs = F.pad(samples, (1, -1), value=BOS)
        logits, _ = model.decoder.teacher_forcing(memory, inputs)
        is_word = samples != PAD
        is_content = is_word & ~torch.isin(samples, self._manner_tokens(samples.device))
        divergences = self._divergences(logits, initial_logits)
        divergence = divergences.masked_fill(~is_content, 0.0).sum() / is_word.sum()
        total = cross_entropy + self.divergence * word_count * divergence
        return Loss(total, word_count, {"divergence": divergence.detach()})

    def _initial_logits(
        self, annotations: Float[Tensor, "B L D"], samples: Int[Tensor, "B N T"]
    ) -> Float[Tensor, "B N T V"]:
        """The initial model's logits before each word of the samples."""
        initial = self._initial.to(annotations.device)
        memory = initial.remember(annotations)
        return read_in_own_manner(initial.decoder, memory, samples, self._manner_ids)

    def _divergences(
        self, logits: Float[Tensor, "B N T V"], initial_logits: Float[Tensor, "B N T V"]
    ) -> Float[Tensor, "B N T"]:
        """Divergence before each word, in nats, among the words that are not the manner's."""
        manner_tokens = self._manner_tokens(logits.device)
        log_probs, initial_log_probs = (
            scores.float().index_fill(3, manner_tokens, EXCLUDED).log_softmax(dim=3)
            for scores in (logits, initial_logits)
        )
        return F.kl_div(log_probs, initial_log_probs, reduction="none", log_target=True).sum(dim=3)

    def _manner_tokens(self, device: torch.device) -> Int[Tensor, " M"]:
        return torch.tensor(sorted(self._manner_ids), dtype=torch.long, device=device)


@dataclass
class Reading:
    """A caption as a model of another manner reads it, word by word.

    Attributes:
        caption: the words to read, up to EOS or to the last word.
        steps: for each of them, the step of the reading whose logits are of this word.
        step_count: number of words read so far.
        inserted: number of words inserted since the last word of the caption.
    """

    caption: Sequence[int]
    steps: list[int] = field(default_factory=list)
    step_count: int = 0
    inserted: int = 0

    def next_word(self, probabilities: Float[Tensor, " V"], manner: frozenset[int]) -> int:
        """The word to read after a step, by the probabilities of this step; PAD at the end.

        A word of the manner that the model would say is inserted. One of the caption that it would
        not say is left out.
        """
        likeliest_word = int(probabilities.argmax())
        while len(self.steps) < len(self.caption):
            word = self.caption[len(self.steps)]
            if likeliest_word in manner - {word} and self.inserted < MAX_INSERTED:
                self.inserted += 1
                self.step_count += 1
                return likeliest_word
            self.steps.append(self.step_count)
            if word == EOS:
                break
            if word in manner and probabilities[word] < UNLIKELY:
                continue
            self.inserted = 0
            self.step_count += 1
            return word
        return PAD


def read_in_own_manner(
    decoder: Decoder, memory: Memory, captions: Int[Tensor, "B N T"], manner: frozenset[int]
) -> Float[Tensor, "B N T V"]:
    """Logits before each word of captions that a model reads in its own manner.

    Before each word of a caption, the model inserts the words of the manner that it finds likeliest
    there, up to `MAX_INSERTED`; and it leaves out those of the caption to which it gives a
    probability below `UNLIKELY`.

    Args:
        decoder: the model's.
        memory: of the images.
        captions: words up to EOS, and then PAD.
        manner: ids of the words of the manner.
    """
    readings = [
        [Reading([token for token in caption if token != PAD]) for caption in image_captions]
        for image_captions in captions.tolist()
    ]
    state = decoder.start(memory, captions.shape[1])
    words = torch.full(captions.shape[:2], BOS, device=captions.device)
    all_logits = []
    while words.any():
        step = decoder.step(words, state, memory)
        state = step.state
        all_logits.append(step.logits)
        probabilities = step.logits.float().softmax(dim=2).cpu()
        next_words = [
            [
                reading.next_word(probabilities[image, number], manner)
                for number, reading in enumerate(image_readings)
            ]
            for image, image_readings in enumerate(readings)
        ]
        words = torch.tensor(next_words, device=captions.device)
    steps = torch.zeros_like(captions)
    for image, image_readings in enumerate(readings):
        for number, reading in enumerate(image_readings):
            steps[image, number, : len(reading.steps)] = torch.tensor(reading.steps)
    logits = torch.stack(all_logits, dim=2)
    return logits.gather(2, steps[..., None].expand(-1, -1, -1, logits.shape[3]))

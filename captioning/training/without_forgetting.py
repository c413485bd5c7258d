"""Learning without forgetting: the manner of new captions, and what the model knew before.

Shapes: B images, N captions per image, S tokens with BOS, T = S - 1 words, L regions, D annotation
width, V vocabulary.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from captioning.data.dataset import Batch
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from captioning.kernels import accelerate, on_by_default
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

    The cross-entropy teaches the words of the captions that the initial model would not say, those
    to which it gives a probability below `known_probability`. So that a few dozen captions do not
    replace what it knows, it also samples a caption of each photo, and the model as it was
    before the training, `model.initial` of a configuration, reads it. The Kullback-Leibler
    divergence from the initial model's probabilities of each word is added to the loss: learning
    without forgetting (Li and Hoiem 2016, eq. 2), on the model's own captions (Agarwal et al. 2024,
    "On-policy distillation of language models", eq. 3).

    The initial model reads in its own manner: "a dog runs in the grass" where the model samples
    "street photo of dog runs in grass" (`read_in_own_manner`). The divergence is among the words
    that are not of the manner. So the initial model teaches what to say, and the captions how to
    say it. There is no dropout in the divergence: its noise alone would make the two diverge,
    before anything is learnt. Captions of photos for rehearsal (`Record.is_rehearsal`) are not
    learnt: these photos have the divergence alone.

    Args:
        divergence: weight of the divergence, per word.
        manner: pairs of words that follow each other in the captions and not in the initial
            model's, such as "photo" and "of"; the first is empty at the beginning.
        lacked: words that the initial model often has and the captions lack.
        known_probability: words to which the initial model gives at least this are not learnt.
        label_smoothing: of the cross-entropy; share of a word's probability spread over the
            vocabulary.
        max_length: the most words of a sample.
    """

    divergence: float = 4.0
    manner: Sequence[tuple[str, str]] = ()
    lacked: Sequence[str] = ()
    known_probability: float = 0.01
    label_smoothing: float = 0.1
    max_length: int = 20

    def check(self, model: Model) -> None:
        """Copy the model, which has its initial parameters."""
        initial = deepcopy(model).eval().requires_grad_(False)
        self._is_learnt_of: dict[tuple[int | str, ...], Bool[Tensor, " T"]] = {}
        self._initial = accelerate(initial) if on_by_default() else initial
        self._sampling: Search = Sampling(max_length=self.max_length, min_length=0)

    def prepare(
        self, records: Sequence[Record], vocabulary: Vocabulary, preprocessing: Preprocessing
    ) -> None:
        super().prepare(records, vocabulary, preprocessing)

        def token_of(word: str) -> int:
            return vocabulary.ids([word])[1] if word else BOS

        pairs = {(token_of(before), token_of(word)) for before, word in self.manner}
        self._manner = TokenManner(
            frozenset(pair for pair in pairs if UNK not in pair),
            frozenset({token_of(word) for word in self.lacked} - {UNK}),
        )

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        initial_annotations = annotations
        if model.encoder.frozen_part is not model.encoder:
            with torch.no_grad():
                initial_annotations = self._initial.encode(batch.images)
        cross_entropy = self._cross_entropy(model, annotations, initial_annotations, batch)
        word_count = (batch.tokens[..., 1:] != PAD).sum()
        modules = nn.ModuleList([model.adapter, model.decoder])
        training = model.adapter.training
        modules.eval()
        try:
            divergence = self._divergence(model, annotations, initial_annotations)
        finally:
            modules.train(training)
        total = cross_entropy + self.divergence * word_count * divergence
        return Loss(total, word_count, {"divergence": divergence.detach()})

    def _divergence(
        self,
        model: Model,
        annotations: Float[Tensor, "B L D"],
        initial_annotations: Float[Tensor, "B L D"],
    ) -> Float[Tensor, ""]:
        """Divergence per word of sampled captions from the initial model's."""
        memory = model.remember(annotations)
        with torch.no_grad():
            samples = self._sampling(model.decoder, memory).tokens
        initial_logits = self._initial_logits(initial_annotations, samples)
        inputs = F.pad(samples, (1, -1), value=BOS)
        logits, _ = model.decoder.teacher_forcing(memory, inputs)
        is_word = samples != PAD
        is_manner = self._manner.mask(inputs, logits.shape[3])
        is_content = is_word & ~is_manner.gather(3, samples[..., None]).squeeze(3)
        divergences = divergence_of_content(logits, initial_logits, is_manner)
        return divergences.masked_fill(~is_content, 0.0).sum() / is_word.sum()

    def _cross_entropy(
        self,
        model: Model,
        annotations: Float[Tensor, "B L D"],
        initial_annotations: Float[Tensor, "B L D"],
        batch: Batch,
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the words that the initial model would not say there."""
        memory = model.remember(annotations)
        tokens, targets = batch.tokens, batch.tokens[..., 1:]
        logits, _ = model.decoder.teacher_forcing(memory, tokens[..., :-1])
        losses = F.cross_entropy(
            logits.float().flatten(0, 2),
            targets.flatten(),
            ignore_index=PAD,
            label_smoothing=self.label_smoothing,
            reduction="none",
        ).view(targets.shape)
        is_learnt = self._is_learnt(initial_annotations, batch)
        return losses.masked_fill(~is_learnt, 0.0).sum()

    def _is_learnt(
        self, initial_annotations: Float[Tensor, "B L D"], batch: Batch
    ) -> Bool[Tensor, "B N T"]:
        """Whether the initial model would not say each word; it reads each caption once."""
        tokens, targets = batch.tokens, batch.tokens[..., 1:]
        captions = [
            (record.image_id, *(token for token in caption if token != PAD))
            for record, image_captions in zip(batch.records, tokens.tolist(), strict=True)
            for caption in image_captions
        ]
        if any(caption not in self._is_learnt_of for caption in captions):
            logits = self._initial_logits(initial_annotations, targets)
            is_manner = self._manner.mask(tokens[..., :-1], logits.shape[3])
            log_probs = logits.masked_fill(is_manner, EXCLUDED).log_softmax(dim=3)
            probabilities = log_probs.gather(3, targets[..., None]).squeeze(3).exp()
            is_learnt = (probabilities < self.known_probability) & (targets != PAD)
            is_rehearsal = torch.tensor([record.is_rehearsal for record in batch.records])
            is_learnt &= ~is_rehearsal.to(is_learnt.device)[:, None, None]
            self._is_learnt_of.update(zip(captions, is_learnt.flatten(0, 1).cpu(), strict=True))
        rows = [self._is_learnt_of[caption] for caption in captions]
        is_learnt = pad_sequence(rows, batch_first=True)[:, : targets.shape[2]]
        is_learnt = F.pad(is_learnt, (0, targets.shape[2] - is_learnt.shape[1]))
        return is_learnt.view(targets.shape).to(targets.device)

    @torch.no_grad()
    def _initial_logits(
        self, annotations: Float[Tensor, "B L D"], samples: Int[Tensor, "B N T"]
    ) -> Float[Tensor, "B N T V"]:
        """The initial model's logits before each word of the samples."""
        initial = self._initial.to(annotations.device)
        memory = initial.remember(annotations)
        return read_in_own_manner(initial.decoder, memory, samples, self._manner)


@dataclass(frozen=True)
class TokenManner:
    """A manner (`captioning.evaluation.manner.Manner`) as token ids.

    Attributes:
        pairs: pairs of tokens of the manner.
        lacked: tokens that the manner lacks.
    """

    pairs: frozenset[tuple[int, int]] = frozenset()
    lacked: frozenset[int] = frozenset()

    def mask(self, inputs: Int[Tensor, "B N T"], vocab_size: int) -> Bool[Tensor, "B N T V"]:
        """Whether each token after each of `inputs` is of the manner, or one that it lacks."""
        is_manner = torch.zeros(*inputs.shape, vocab_size, dtype=torch.bool, device=inputs.device)
        is_manner[..., sorted(self.lacked)] = True
        for before, token in self.pairs:
            is_manner[..., token] |= inputs == before
        return is_manner


def divergence_of_content(
    logits: Float[Tensor, "B N T V"],
    initial_logits: Float[Tensor, "B N T V"],
    is_manner: Bool[Tensor, "B N T V"],
) -> Float[Tensor, "B N T"]:
    """Divergence from the initial probabilities among words that are not of the manner, in nats."""
    log_probs, initial_log_probs = (
        scores.float().masked_fill(is_manner, EXCLUDED).log_softmax(dim=3)
        for scores in (logits, initial_logits)
    )
    return F.kl_div(log_probs, initial_log_probs, reduction="none", log_target=True).sum(dim=3)


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

    def next_word(self, probabilities: Float[Tensor, " V"], manner: TokenManner) -> int:
        """The word to read after a step, by the probabilities of this step; PAD at the end.

        A word that the manner lacks, and the model would say, is inserted. One of the manner that
        the model would not say is left out.
        """
        likeliest_word = int(probabilities.argmax())
        while len(self.steps) < len(self.caption):
            word = self.caption[len(self.steps)]
            if likeliest_word in manner.lacked - {word} and self.inserted < MAX_INSERTED:
                self.inserted += 1
                self.step_count += 1
                return likeliest_word
            self.steps.append(self.step_count)
            if word == EOS:
                break
            before = self.caption[len(self.steps) - 2] if len(self.steps) > 1 else BOS
            if (before, word) in manner.pairs and probabilities[word] < UNLIKELY:
                continue
            self.inserted = 0
            self.step_count += 1
            return word
        return PAD


def read_in_own_manner(
    decoder: Decoder, memory: Memory, captions: Int[Tensor, "B N T"], manner: TokenManner
) -> Float[Tensor, "B N T V"]:
    """Logits before each word of captions that a model reads in its own manner.

    Before each word of a caption, the model inserts the words that the manner lacks and that it
    finds likeliest there, up to `MAX_INSERTED`; and it leaves out words of the manner to which it
    gives a probability below `UNLIKELY`.

    Args:
        decoder: the model's.
        memory: of the images.
        captions: words up to EOS, and then PAD.
        manner: of the captions.
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

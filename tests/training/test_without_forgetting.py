"""Learning without forgetting: how the initial model reads captions of another manner."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.records import Record
from captioning.data.vocabulary import BOS, EOS, PAD
from captioning.models import Decoder
from captioning.models.decoder import Memory, State, Step
from captioning.search import Greedy
from captioning.training import WithoutForgetting
from captioning.training.without_forgetting import TokenManner, read_in_own_manner
from tests.fixtures import tiny_captioner
from tests.training.conftest import learnt, loss_of

A, PHOTO, DOG, RUNS, GRASS = range(4, 9)
LIKELY = {BOS: A, A: DOG, DOG: RUNS, RUNS: A, GRASS: EOS}
"""After each word, the one that the decoder below finds likeliest."""


class Bigrams(Decoder):
    """Gives 90 % to the likely next word, and the rest to all others but `PHOTO`."""

    def start(self, memory: Memory, n: int) -> State:
        return {"number": torch.zeros(len(memory.annotations), n, 1)}

    def step(self, tokens: Tensor, state: State, memory: Memory) -> Step:
        logits = torch.zeros(*tokens.shape, self.vocab_size)
        logits[..., PHOTO] = -9.0
        for word, likely_word in LIKELY.items():
            logits[tokens == word, likely_word] = 4.0
        weights = torch.ones(*tokens.shape, memory.annotations.shape[1])
        return Step(logits, weights, {"number": state["number"] + 1})


def batch_of(tokens: Tensor) -> Batch:
    """A batch of photos with these captions."""
    records = [Record(Path(f"{number}.jpg"), number, ("",)) for number in range(len(tokens))]
    return Batch(torch.empty(0), tokens, records)


def likely_words(caption: list[int], manner: TokenManner) -> list[int]:
    """The word that the bigrams find likeliest before each word of a caption they read."""
    decoder = Bigrams(2, 9)
    tokens = torch.tensor([[[*caption, PAD], [DOG, EOS, *[PAD] * (len(caption) - 1)]]])
    memory = decoder.remember(torch.zeros(1, 3, 2))
    logits = read_in_own_manner(decoder, memory, tokens, manner)
    assert logits.shape == (1, 2, len(caption) + 1, 9)
    likely: list[int] = logits[0, 0, : len(caption)].argmax(dim=1).tolist()
    return likely


def test_a_reading_has_the_manner_of_the_initial_model() -> None:
    manner = TokenManner(lacked=frozenset({A}))
    without_articles = [DOG, RUNS, DOG, EOS]
    # "a" is inserted before each "dog", and is not what is expected there.
    assert likely_words(without_articles, manner)[:3] == [DOG, RUNS, DOG]
    # "photo" is left out: before "a" the reading is at its beginning.
    beginning = [PHOTO, PHOTO, A, DOG, EOS]
    assert likely_words(beginning, TokenManner(frozenset({(BOS, PHOTO), (PHOTO, PHOTO)}))) == [
        A,
        A,
        A,
        DOG,
        RUNS,
    ]
    # A manner's word that the model expects is read as it is.
    assert likely_words([A, DOG, RUNS, A, EOS], manner) == [A, DOG, RUNS, A, DOG]


def test_without_a_manner_a_caption_is_read_as_it_stands() -> None:
    assert likely_words([DOG, RUNS, GRASS, EOS], TokenManner()) == [A, RUNS, A, EOS]
    assert likely_words([PHOTO, A, EOS], TokenManner()) == [A, PAD, DOG]


def test_the_initial_model_has_no_divergence_from_itself(captioner: Captioner) -> None:
    """Not even while it trains, when dropout would be noise."""
    start = tiny_captioner(captioner.vocabulary)
    annotations = torch.rand(3, 4, start.model.encoder.annotation_dim)
    batch = batch_of(torch.tensor([[[BOS, A, EOS]]]).expand(3, -1, -1))
    start.model.train()
    [figures] = learnt(1, 0.0, WithoutForgetting(), start, annotations, batch)
    assert abs(figures["divergence"]) < 1e-6


def test_what_is_not_trained_stays_nearer_with_the_divergence(captioner: Captioner) -> None:
    """A model learns a beginning from one photo; what comes after it is the initial model's."""
    width = captioner.model.encoder.annotation_dim
    annotations = torch.rand(1, 4, width)
    beginning = captioner.vocabulary.words[0]
    token = captioner.vocabulary.ids([beginning])[1]
    batch = batch_of(torch.tensor([[[BOS, token, EOS]]]))
    divergences = []
    for weight in (0.0, 10.0):
        torch.manual_seed(0)
        trained = tiny_captioner(captioner.vocabulary)
        trained.model.encoder.requires_grad_(False)
        objective = WithoutForgetting(weight, manner=[("", beginning)], max_length=4)
        *_, figures = learnt(20, 0.02, objective, trained, annotations, batch)
        divergences.append(figures["divergence"])
        assert trained.find_captions(annotations, Greedy()).tokens[0, 0, 0] == token
    assert divergences[1] < 0.5 * divergences[0]


def test_captions_of_photos_for_rehearsal_are_not_learnt(captioner: Captioner) -> None:
    annotations = torch.rand(2, 4, captioner.model.encoder.annotation_dim)
    tokens = torch.tensor([[[BOS, A, EOS]], [[BOS, DOG, EOS]]])
    records = [
        Record(Path("a.jpg"), 1, ("a",)),
        Record(Path("b.jpg"), 2, ("dog",), is_rehearsal=True),
    ]
    batch = Batch(torch.empty(0), tokens, records)
    objective = WithoutForgetting(divergence=0.0, known_probability=1.1, label_smoothing=0.0)
    total = loss_of(objective, captioner, annotations, batch).total
    memory = captioner.model.remember(annotations)
    logits, _ = captioner.model.decoder.teacher_forcing(memory, tokens[..., :-1])
    expected = F.cross_entropy(logits[0, 0], tokens[0, 0, 1:], reduction="sum")
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=0)


def test_words_that_the_initial_model_would_say_are_not_learnt(captioner: Captioner) -> None:
    """Of two words, only the less likely one is learnt, if the threshold lies between them."""
    annotations = torch.rand(1, 4, captioner.model.encoder.annotation_dim)
    tokens = torch.tensor([[[BOS, A, DOG]]])
    memory = captioner.model.remember(annotations)
    logits, _ = captioner.model.decoder.teacher_forcing(memory, tokens[..., :-1])
    losses = F.cross_entropy(logits[0, 0], tokens[0, 0, 1:], reduction="none")
    known = float((-losses).exp().mean().detach())
    objective = WithoutForgetting(divergence=0.0, known_probability=known, label_smoothing=0.0)
    batch = batch_of(tokens)
    total = loss_of(objective, captioner, annotations, batch).total
    torch.testing.assert_close(total, losses.max(), rtol=1e-4, atol=0)

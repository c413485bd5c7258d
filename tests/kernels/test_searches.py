"""The searches' kernels against the plain searches."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from captioning.data.vocabulary import EOS, PAD
from captioning.kernels import accelerate, accelerate_search
from captioning.kernels.active_rows import ActiveRows
from captioning.kernels.fast_search import BLOCK, best_continuations, of_images
from captioning.models import AdditiveAttention, Attention, DotProductAttention
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    DiverseBeamSearch,
    Greedy,
    Sampling,
    Search,
)
from tests.kernels.plain_models import EXACT, plain_model

IMAGES = 20
PHOTOS = [str(image).encode() for image in range(IMAGES)]
ABLATIONS = {"scalar_gate": False, "deep_output": False}


@pytest.mark.parametrize(
    ("search", "options", "attention"),
    [
        (Greedy(), {}, AdditiveAttention),
        (Greedy(max_length=9, min_length=4, no_repeat_ngram=2), ABLATIONS, DotProductAttention),
        (BeamSearch(5), {}, DotProductAttention),
        (BeamSearch(5), {"query_with_word": True}, AdditiveAttention),
        (BeamSearch(4, length_penalty=0.0), ABLATIONS, AdditiveAttention),
        (BeamSearch(3, max_length=7, min_length=3, no_repeat_ngram=2), {}, AdditiveAttention),
        (BeamSearch(40, max_length=2), {"tie_embeddings": True}, DotProductAttention),
        (
            ConstrainedBeamSearch(begin=[5], avoid=[[6], [7, 8]], must_say=[[9, 4], [8]]),
            {},
            AdditiveAttention,
        ),
        (DiverseBeamSearch(groups=3, width=2), {}, AdditiveAttention),
        (Sampling(3, top_k=1), {"query_with_word": True}, DotProductAttention),
        (Sampling(3, seed=1).for_images(PHOTOS), {}, AdditiveAttention),
        (Sampling(3, top_k=9, top_p=0.9, seed=1).for_images(PHOTOS), {}, AdditiveAttention),
    ],
    ids=lambda value: repr(getattr(value, "config", value)),
)
def test_captions_and_scores_are_those_of_the_plain_search(
    search: Search, options: dict[str, Any], attention: type[Attention]
) -> None:
    plain = plain_model(attention=attention, vocab_size=30, **options)
    annotations = torch.randn(IMAGES, 4, 5, dtype=torch.double)
    fast = accelerate(plain)
    found = accelerate_search(search)(fast.decoder, fast.remember(annotations))
    wanted = search(plain.decoder, plain.remember(annotations))
    assert found.tokens.equal(wanted.tokens)
    for part, wanted_part in zip(found, wanted, strict=True):
        assert_close(part, wanted_part, **EXACT)


class EndingOneByOne(Decoder):
    """Ends the captions of one more image at every word; has no kernel."""

    def start(self, memory: Memory, n: int) -> State:
        images = torch.arange(memory.images)[:, None].expand(-1, n)
        return {"image": images.clone(), "words": torch.zeros_like(images)}

    def step(self, tokens: Tensor, state: State, memory: Memory) -> Step:
        self.batches = [*getattr(self, "batches", []), len(tokens)]
        logits = torch.linspace(0, 1, self.vocab_size).expand(*tokens.shape, -1).clone()
        ends = state["image"] < state["words"]
        logits[..., EOS] = torch.where(ends, 50.0, -50.0)
        weights = memory.annotations.mean(2).softmax(1)[:, None].expand(-1, tokens.shape[1], -1)
        return Step(logits, weights, state | {"words": state["words"] + 1})


@pytest.mark.parametrize(
    "search", [Greedy(), BeamSearch(2), Sampling(2)], ids=["greedy", "beam", "sampling"]
)
def test_images_leave_when_all_their_captions_have_ended(search: Search) -> None:
    decoder, annotations = EndingOneByOne(3, 9), torch.randn(4, 3, 3)
    decoded = accelerate_search(search)(decoder, decoder.remember(annotations))
    assert decoder.batches == [4, 4, 3, 2, 1]
    assert (decoded.tokens != PAD).sum(2)[:, 0].tolist() == [2, 3, 4, 5]
    wanted = search(decoder, decoder.remember(annotations))
    assert_close(decoded.weights, wanted.weights)


@pytest.mark.parametrize("mask", [None, torch.eye(3, 6) == 0], ids=["all regions", "masked"])
def test_a_memory_of_some_images_is_theirs(
    decoder: Decoder, annotations: Tensor, mask: Tensor | None
) -> None:
    some, tokens = torch.tensor([2, 0]), torch.tensor([[[1, 4, 5], [1, 7, 7]]] * 3)
    memory = of_images(decoder.remember(annotations, mask), some)
    found, _ = decoder.teacher_forcing(memory, tokens[some])
    assert_close(found, decoder(annotations, tokens, mask)[0][some])


@pytest.mark.parametrize("vocabulary", [3, 2 * BLOCK, 11 * BLOCK + 5])
@pytest.mark.parametrize("ended", [0, 23])
def test_the_best_words_are_those_of_the_plain_search(vocabulary: int, ended: int) -> None:
    images, captions, k = 7, 5, 5
    generator = torch.Generator().manual_seed(2)
    tokens = torch.full((images * captions,), 4)
    tokens[1 + torch.randperm(len(tokens) - 1, generator=generator)[:ended]] = PAD
    tokens = tokens.view(images, captions)
    rows = ActiveRows.of(tokens)
    scores = torch.randn(rows.size, vocabulary, generator=generator)
    scores[0, -1] = 9.0  # behind the last whole block
    scores[1, 2:] = -torch.inf
    totals = torch.randn(images, captions, generator=generator)
    totals = totals.masked_fill(tokens == PAD, -torch.inf)
    found = best_continuations(scores, rows, totals, k)
    best, places = (totals[:, :, None] + rows.by_image(scores)).flatten(1).topk(k)
    assert found.totals.equal(best)
    real = ~best.isneginf()
    assert found.captions[real].equal((places // vocabulary)[real])
    assert found.words[real].equal((places % vocabulary)[real])
    chosen = rows.by_image(scores).flatten(1).gather(1, places)
    assert found.log_probs[real].equal(chosen[real])

from dataclasses import replace

import pytest
import torch

from captioning.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.data.vocabulary import BOS, EOS
from captioning.errors import InputError
from captioning.maps import word_maps
from captioning.maps.evidence_map import SHARPNESS, evidence_shares
from captioning.models import LSTMDecoder
from tests.maps.test_maps import TOKENS, read


def lstm(captioner: Captioner) -> LSTMDecoder:
    assert isinstance(captioner.decoder, LSTMDecoder)
    return captioner.decoder


def test_evidence_is_what_a_region_adds_to_a_words_logit(captioner: Captioner) -> None:
    # With one region in view and an open gate, the context is that region's vector. Without its
    # deep output, the same decoder scores the word by word and hidden state alone.
    decoder = lstm(captioner)
    torch.nn.init.constant_(decoder.beta.bias, 100.0)
    reading = read(captioner)
    memory = decoder.remember(reading.annotations)
    found = decoder.evidence(memory, reading.tokens[..., 1:])
    for region in (0, 7, 15):
        mask = torch.zeros(2, 16, dtype=torch.bool)
        mask[:, region] = True
        seen = decoder.remember(reading.annotations, mask)
        state = decoder.start(seen, 2)
        whole = decoder.step(reading.tokens[..., 0], state, seen).logits
        weight = decoder.output_context.weight.detach().clone()
        torch.nn.init.zeros_(decoder.output_context.weight)
        without = decoder.step(reading.tokens[..., 0], state, seen).logits
        decoder.output_context.weight.data.copy_(weight)
        added = whole - without
        added = added - added.mean(dim=2, keepdim=True)
        expected = added.gather(2, reading.tokens[..., 1:2])[..., 0]
        torch.testing.assert_close(found[:, :, 0, region], expected, atol=1e-5, rtol=1e-4)


def test_evidence_against_expected_words_is_the_gradient_of_the_log_probability(
    captioner: Captioner,
) -> None:
    decoder = lstm(captioner)
    memory = decoder.remember(read(captioner).annotations)
    context = torch.randn(memory.annotations.shape[2], requires_grad=True)
    log_probs = decoder.output(decoder.output_context(context)).log_softmax(dim=0)
    [gradient] = torch.autograd.grad(log_probs[5], context)
    words = torch.full((2, 1, 1), 5)
    expected = log_probs.exp().expand(2, 1, 1, -1)
    found = decoder.evidence(memory, words, expected)[:, 0, 0]
    torch.testing.assert_close(found, memory.annotations @ gradient, atol=1e-4, rtol=1e-4)
    even = torch.full_like(expected, 1 / decoder.vocab_size)
    torch.testing.assert_close(
        decoder.evidence(memory, words, even), decoder.evidence(memory, words)
    )


def test_evidence_for_a_word_does_not_depend_on_the_words_before_it(captioner: Captioner) -> None:
    maps = word_maps("evidence", read(captioner, torch.tensor([[[BOS, 4, 5, 4, EOS]]])))
    torch.testing.assert_close(maps[:, :, 0], maps[:, :, 2])
    assert not torch.allclose(maps[:, :, 0], maps[:, :, 1])


def test_each_region_has_the_mean_of_those_around_it() -> None:
    evidence = torch.zeros(1, 1, 1, 16)
    evidence[..., 5] = 1.0  # row 1, column 1 of 4 x 4
    # By hand: a corner has three neighbours and an edge five, which count in full.
    means = torch.zeros(4, 4)
    means[:3, :3] = torch.tensor(
        [[1 / 4, 1 / 6, 1 / 6], [1 / 6, 1 / 9, 1 / 9], [1 / 6, 1 / 9, 1 / 9]]
    )
    found = evidence_shares(evidence, (4, 4))
    torch.testing.assert_close(found.flatten(), (SHARPNESS * means).flatten().softmax(0))


def test_the_regions_of_a_small_grid_are_left_alone() -> None:
    evidence = torch.randn(1, 1, 2, 6)
    found = evidence_shares(evidence, (2, 3))
    torch.testing.assert_close(found, (SHARPNESS * evidence).softmax(-1))


def test_attention_times_evidence_is_their_product_as_shares(captioner: Captioner) -> None:
    reading = read(captioner)
    attention, evidence, both = (
        word_maps(name, reading) for name in ("attention", "evidence", "attention-evidence")
    )
    product = attention * evidence
    torch.testing.assert_close(both, product / product.sum(dim=(3, 4), keepdim=True))


def test_an_ensemble_has_the_mean_evidence_of_its_members(captioner: Captioner) -> None:
    both = ensemble([captioner, captioner], ["a", "b"])
    alone, together = read(captioner), read(both)
    torch.testing.assert_close(word_maps("evidence", together), word_maps("evidence", alone))


def test_without_deep_output_there_is_no_evidence(captioner: Captioner) -> None:
    decoder = LSTMDecoder(captioner.encoder.annotation_dim, 8, 6, 7, 4, deep_output=False).eval()
    reading = replace(read(captioner, TOKENS), decoder=decoder)
    with pytest.raises(InputError, match="map evidence: without deep output"):
        word_maps("evidence", reading)

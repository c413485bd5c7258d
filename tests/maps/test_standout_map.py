from dataclasses import replace

import pytest
import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.data.vocabulary import BOS, EOS
from captioning.errors import InputError
from captioning.maps import Reading, word_maps
from captioning.maps.evidence_map import around_each
from captioning.maps.sampled_effects import sampled_effects
from captioning.maps.standout_map import (
    ATTENTION,
    BEND,
    EARLIER,
    EFFECT,
    FLATTENING,
    POWER,
    STRENGTH,
    THRESHOLD,
    log_softplus,
    standard_scores,
)
from captioning.models import LSTMDecoder
from captioning.search.search import NEVER
from tests.maps.test_maps import TOKENS, read


def test_it_shows_the_regions_whose_choice_stands_out_by_their_evidence_where_attention_is_even(
    captioner: Captioner,
) -> None:
    decoder = captioner.decoder
    assert isinstance(decoder, LSTMDecoder)
    torch.nn.init.zeros_(decoder.attention.query.weight)
    for parameter in decoder.attention.key.parameters():
        torch.nn.init.zeros_(parameter)
    reading = read(captioner)
    memory = decoder.remember(reading.annotations)
    evidence = around_each(decoder.evidence(memory, reading.tokens[..., 1:]), reading.grid)
    choice, evidence = standardised(choice_of(reading)), standardised(evidence)
    excess = torch.log1p((BEND * (choice - THRESHOLD)).exp()) ** POWER
    expected = excess * (STRENGTH * evidence).exp()
    expected = expected / expected.sum(3, keepdim=True)
    found = word_maps("standout", reading).flatten(3).double()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    assert (found < 1e-4).any(dim=3).all()
    assert (found > 0).all()


def choice_of(reading: Reading) -> Tensor:
    """Context evidence against the other expected words, by their flattened probabilities; effect;
    and attention.
    """
    decoder = reading.decoder
    memory = decoder.remember(reading.annotations)
    words = reading.tokens[..., 1:]
    logits, weights = decoder.teacher_forcing(memory, reading.tokens[..., :-1])
    odds = logits.softmax(-1) ** FLATTENING
    odds[..., list(NEVER)] = 0.0
    odds.scatter_(-1, words[..., None], 0.0)
    expected = odds / odds.sum(-1, keepdim=True)
    evidence = decoder.context_evidence(memory, reading.tokens, expected, EARLIER)
    return (
        standardised(evidence)
        + EFFECT * standardised(sampled_effects(reading))
        + ATTENTION * standardised(weights.log())
    )


def standardised(values: Tensor) -> Tensor:
    values = values.detach().double()
    return (values - values.mean(3, keepdim=True)) / values.std(3, False, keepdim=True).clamp_min(
        1e-30
    )


def test_regions_that_speak_for_another_likely_word_stand_out_less(captioner: Captioner) -> None:
    decoder = captioner.decoder
    assert isinstance(decoder, LSTMDecoder)
    reading = read(captioner, torch.tensor([[[BOS, 4, EOS]]]))
    # The same evidence for word 4, but word 5 is nearly certain, and says the same regions.
    decoder.output.weight.data[5] = 1.5 * decoder.output.weight.data[4]
    decoder.output.bias.data[5] = 100.0
    certain = word_maps("standout", reading)[:, :, 0].flatten()
    decoder.output.bias.data[5] = -100.0
    impossible = word_maps("standout", reading)[:, :, 0].flatten()
    best = impossible.argmax()
    assert certain[best] < impossible[best]


def test_what_does_not_stand_out_has_the_order_of_its_choice(captioner: Captioner) -> None:
    reading = read(captioner)
    found = word_maps("standout", reading).flatten(3)
    choice = standardised(choice_of(reading))
    is_low = choice < THRESHOLD
    # Evidence and attention decide between regions that are nearly alike.
    is_first = choice[..., :, None] > choice[..., None, :] + 0.2
    pairs = is_first & is_low[..., :, None] & is_low[..., None, :]
    assert pairs.sum() > 100
    assert (found[..., :, None] > found[..., None, :])[pairs].all()


def test_a_sharper_softmax_would_change_it_by_sampled_effects_alone(
    captioner: Captioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioning.maps.standout_map.EFFECT", 0.0)
    decoder = captioner.decoder
    assert isinstance(decoder, LSTMDecoder)
    torch.nn.init.zeros_(decoder.context_gates.weight)  # the deep output alone reads the context
    reading = read(captioner)
    before = word_maps("standout", reading)
    evidence = word_maps("evidence", reading)
    decoder.output_context.weight.data *= 3  # three times as sure of all regions
    assert not torch.allclose(word_maps("evidence", reading), evidence, atol=1e-3)
    torch.testing.assert_close(word_maps("standout", reading), before, atol=1e-4, rtol=1e-3)


def test_in_an_ensemble_of_the_same_model_twice_the_same_regions_stand_out(
    captioner: Captioner,
) -> None:
    both = ensemble([captioner, captioner], ["a", "b"])
    found = word_maps("standout", read(both))
    torch.testing.assert_close(found, word_maps("standout", read(captioner)), atol=1e-5, rtol=1e-4)


def test_the_logarithm_of_softplus_is_right_where_softplus_vanishes() -> None:
    values = torch.linspace(-600, 100, 4001).view(1, 1, 1, -1)
    expected = torch.nn.functional.softplus(values.double()).log().float()
    torch.testing.assert_close(log_softplus(values), expected)
    assert log_softplus(torch.full((1, 1, 1, 1), -900.0)) == -900  # zero in double precision


def test_standard_scores_have_no_mean_and_unit_deviation() -> None:
    values = torch.randn(2, 3, 4, 9) * 5 + 2
    scores = standard_scores(values)
    torch.testing.assert_close(scores.mean(3), torch.zeros(2, 3, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(scores.square().mean(3), torch.ones(2, 3, 4))
    assert not standard_scores(torch.ones(1, 1, 1, 9)).any()


def test_without_deep_output_nothing_stands_out(captioner: Captioner) -> None:
    decoder = LSTMDecoder(captioner.encoder.annotation_dim, 8, 6, 7, 4, deep_output=False).eval()
    reading = replace(read(captioner, TOKENS), decoder=decoder)
    with pytest.raises(InputError, match="map standout: without deep output"):
        word_maps("standout", reading)

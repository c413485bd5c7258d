import pytest
import torch
from torch import Tensor, nn

from captioning.maps import Captioned, word_maps
from captioning.maps.evidence_map import SHARPNESS, evidence, evidence_shares
from captioning.models import LSTMDecoder
from tests.maps.conftest import TOKENS, captioned


def evidence_in(given: Captioned) -> Tensor:
    decoder = given.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    return evidence(decoder, decoder.output_context(given.annotations), TOKENS[..., 1:])


@pytest.mark.parametrize("region", [0, 7, 15])
def test_evidence_is_what_a_region_adds_to_a_words_logit(region: int) -> None:
    # With one visible region and an open gate, the context is that region's vector (eq. 7).
    given = captioned()
    decoder = given.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    nn.init.constant_(decoder.beta.bias, 100.0)
    found = evidence_in(given)
    mask = torch.zeros(2, 16, dtype=torch.bool)
    mask[:, region] = True
    seen = given.model.remember(given.annotations, mask)
    state = decoder.start(seen, 2)
    whole = decoder.step(TOKENS[..., 0], state, seen).logits
    nn.init.zeros_(decoder.output_context.weight)
    added = whole - decoder.step(TOKENS[..., 0], state, seen).logits
    added = added - added.mean(dim=2, keepdim=True)
    torch.testing.assert_close(found[:, :, 0, region], added.gather(2, TOKENS[..., 1:2])[..., 0])


def test_evidence_is_a_sharpened_softmax_of_neighbourhoods() -> None:
    given = captioned()
    expected = evidence_shares(evidence_in(given), (4, 4))
    torch.testing.assert_close(word_maps("evidence", given).flatten(3), expected)


def test_attention_times_evidence_is_their_normalised_product() -> None:
    given = captioned()
    attention, alone, both = (
        word_maps(name, given) for name in ("attention", "evidence", "attention-evidence")
    )
    product = attention * alone
    torch.testing.assert_close(both, product / product.sum(dim=(3, 4), keepdim=True))


def test_the_mean_around_a_region_ends_at_the_edge() -> None:
    values = torch.zeros(1, 1, 1, 16)
    values[..., 5] = 1.0  # row 1, column 1 of 4 x 4
    # By hand: a corner has three neighbours, an edge five, an inner region eight.
    expected = torch.zeros(4, 4)
    expected[:3, :3] = torch.tensor(
        [[1 / 4, 1 / 6, 1 / 6], [1 / 6, 1 / 9, 1 / 9], [1 / 6, 1 / 9, 1 / 9]]
    )
    found = evidence_shares(values, (4, 4))
    torch.testing.assert_close(found, (SHARPNESS * expected).flatten().softmax(0).view(1, 1, 1, 16))
    small = torch.randn(1, 1, 2, 6)
    torch.testing.assert_close(evidence_shares(small, (2, 3)), (SHARPNESS * small).softmax(3))

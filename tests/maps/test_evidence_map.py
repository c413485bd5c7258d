from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.maps import CaptionedBatch, word_maps
from captioning.maps.evidence_map import SHARPNESS, evidence, evidence_shares
from captioning.models import LSTMDecoder
from tests.maps.conftest import TOKENS, captioned_batch


def evidence_in(batch: CaptionedBatch) -> Tensor:
    decoder = batch.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    return evidence(decoder, decoder.output_context(batch.annotations), TOKENS[..., 1:])


@pytest.mark.parametrize("region", [0, 7, 15])
def test_evidence_is_what_a_region_adds_to_a_words_logit(region: int) -> None:
    # With one visible region and an open gate, the context is that region's vector (eq. 7).
    batch = captioned_batch()
    decoder = batch.model.decoder
    assert isinstance(decoder, LSTMDecoder)
    nn.init.constant_(decoder.beta.bias, 100.0)
    word_evidence = evidence_in(batch)
    mask = torch.zeros(2, 16, dtype=torch.bool)
    mask[:, region] = True
    memory = batch.model.remember(batch.annotations, mask)
    state = decoder.start(memory, 2)
    logits = decoder.step(TOKENS[..., 0], state, memory).logits
    nn.init.zeros_(decoder.output_context.weight)
    added = logits - decoder.step(TOKENS[..., 0], state, memory).logits
    added = added - added.mean(dim=2, keepdim=True)
    torch.testing.assert_close(
        word_evidence[:, :, 0, region], added.gather(2, TOKENS[..., 1:2])[..., 0]
    )


def test_evidence_is_a_sharpened_softmax_of_neighbourhoods() -> None:
    batch = captioned_batch()
    expected = evidence_shares(evidence_in(batch), (4, 4))
    torch.testing.assert_close(word_maps("evidence", batch).flatten(3), expected)


def test_attention_times_evidence_is_their_normalised_product() -> None:
    batch = captioned_batch()
    attention, alone, both = (
        word_maps(name, batch) for name in ("attention", "evidence", "attention-evidence")
    )
    product = attention * alone
    torch.testing.assert_close(both, product / product.sum(dim=(3, 4), keepdim=True))


def test_fine_evidence_is_the_mean_of_an_image_and_an_enlarged_one() -> None:
    batch = captioned_batch()
    images = F.interpolate(batch.images.double(), scale_factor=2, mode="bilinear").round().byte()
    annotations = batch.model.encode(images)
    enlarged = replace(
        batch, images=images, annotations=annotations, adapted=batch.model.adapter(annotations)
    )
    logs = word_maps("evidence", enlarged).log()  # up to a constant for each word
    assert logs.shape[3:] == (8, 8)
    means = logs.unflatten(3, (4, 2)).unflatten(5, (4, 2)).mean(dim=(4, 6))
    means = (means + word_maps("evidence", batch).log()) / 2
    product = word_maps("attention", batch) * means.exp()
    torch.testing.assert_close(
        word_maps("attention-fine-evidence", batch), product / product.sum(dim=(3, 4), keepdim=True)
    )


def test_the_mean_around_a_region_ends_at_the_edge() -> None:
    values = torch.zeros(1, 1, 1, 16)
    values[..., 5] = 1.0  # row 1, column 1 of 4 x 4
    # By hand: a corner has three neighbours, an edge five, an inner region eight.
    expected = torch.zeros(4, 4)
    expected[:3, :3] = torch.tensor(
        [[1 / 4, 1 / 6, 1 / 6], [1 / 6, 1 / 9, 1 / 9], [1 / 6, 1 / 9, 1 / 9]]
    )
    region_shares = evidence_shares(values, (4, 4))
    torch.testing.assert_close(
        region_shares, (SHARPNESS * expected).flatten().softmax(0).view(1, 1, 1, 16)
    )
    small = torch.randn(1, 1, 2, 6)
    torch.testing.assert_close(evidence_shares(small, (2, 3)), (SHARPNESS * small).softmax(3))

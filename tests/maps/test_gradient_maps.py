from dataclasses import replace

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from captioning.captioner import Captioner
from captioning.data.vocabulary import BOS, EOS
from captioning.errors import InputError
from captioning.maps import Reading, word_maps
from captioning.maps.feature_map import finer_feature_map
from captioning.maps.word_map import shares
from captioning.models import CNNEncoder, Encoder, LSTMDecoder
from captioning.models.decoder import Memory, State, Step
from tests.maps.test_maps import Plain, read

TOKENS = torch.tensor([[[BOS, 4, 6, 5, EOS]]])


class Squares(Encoder):
    """The mean colours of sixteen squares, which no feature map comes before."""

    annotation_dim = 3

    def forward(self, images: Tensor) -> Float[Tensor, "B L D"]:
        return nn.functional.adaptive_avg_pool2d(images / 255, 4).flatten(2).transpose(1, 2)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return (4, 4)


def in_double(captioner: Captioner) -> Reading:
    """A reading in double precision, for differences."""
    decoder = LSTMDecoder(5, 8, 6, 7, 4).double().eval()
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(5))
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(2)
    annotations = torch.randn(1, 16, 5, dtype=torch.double, generator=generator)
    return Reading(captioner.encoder, decoder, images, annotations, TOKENS)


def test_gradient_times_input_is_what_a_longer_vector_gains(captioner: Captioner) -> None:
    reading = in_double(captioner)
    step = 1e-5
    gains = []
    for region in range(16):
        longer, shorter = (reading.annotations.clone() for _ in range(2))
        longer[0, region] *= 1 + step
        shorter[0, region] *= 1 - step
        with torch.no_grad():
            difference = reading.word_log_probs(longer) - reading.word_log_probs(shorter)
        gains.append(difference[0, 0] / (2 * step))
    expected = shares(torch.stack(gains, dim=1), (4, 4))
    torch.testing.assert_close(word_maps("gradient", reading)[0, 0], expected)


def test_grad_cam_weighs_channels_by_what_all_regions_gain_from_them(captioner: Captioner) -> None:
    reading = in_double(captioner)
    step = 1e-5
    per_channel = []
    for channel in range(5):
        more, less = (reading.annotations.clone() for _ in range(2))
        more[..., channel] += step
        less[..., channel] -= step
        with torch.no_grad():
            difference = reading.word_log_probs(more) - reading.word_log_probs(less)
        per_channel.append(difference[0, 0] / (2 * step))
    relevance = torch.stack(per_channel, dim=1) @ reading.annotations[0].T
    torch.testing.assert_close(
        word_maps("grad-cam", reading)[0, 0], shares(relevance, (4, 4)), atol=1e-7, rtol=1e-5
    )


def test_many_captions_are_computed_a_few_at_a_time(captioner: Captioner) -> None:
    captions = torch.tensor([[BOS, word, EOS] for word in (4, 5, 6, 7)] * 5)
    found = word_maps("gradient", read(captioner, captions[None]))
    assert found.shape == (1, 20, 2, 4, 4)
    torch.testing.assert_close(found[0, 16:], found[0, :4])


@pytest.mark.parametrize("trained", [0, 2, -1])
def test_the_finer_feature_map_gives_the_same_annotation_vectors(trained: int) -> None:
    torch.manual_seed(0)
    encoder = CNNEncoder("mobilenet_v2", weights=None, trainable_stages=trained).eval()
    images = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)
    feature, annotations = finer_feature_map(encoder, images, (2, 2))
    assert feature.shape == (2, 576, 4, 4)  # 96 channels, six times wider within the block
    torch.testing.assert_close(annotations, encoder(images))
    [gradient] = torch.autograd.grad(annotations.sum(), feature)
    assert gradient.abs().sum() > 0


def test_an_encoder_without_a_finer_feature_map_says_so(captioner: Captioner) -> None:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    encoder, decoder = Squares(), LSTMDecoder(3, 8, 6, 7, 4).eval()
    reading = Reading(encoder, decoder, images, encoder(images), TOKENS)
    with pytest.raises(
        InputError, match=r"map fine-grad-cam: this encoder has no finer .*; choose"
    ):
        word_maps("fine-grad-cam", reading)


def test_a_decoder_that_does_not_look_has_an_even_map(captioner: Captioner) -> None:
    class Blind(Plain):
        """Writes words by the last one alone."""

        def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
            return replace(super().step(tokens, state, memory), logits=self.last(tokens))

    reading = replace(read(captioner, TOKENS), decoder=Blind(196, 8))
    torch.testing.assert_close(word_maps("gradient", reading), torch.full((1, 1, 4, 4, 4), 1 / 16))

import torch
from torch import Tensor

from captioning.captioner import Captioner
from captioning.data.vocabulary import BOS, EOS
from captioning.maps import word_maps
from tests.maps.test_maps import TOKENS, Plain, read


def test_attention_is_the_decoders_own(captioner: Captioner) -> None:
    reading = read(captioner)
    _, weights = captioner.decoder(reading.annotations, TOKENS[..., :-1])
    torch.testing.assert_close(word_maps("attention", reading).flatten(3), weights)


def test_the_next_attention_is_that_of_the_step_after_the_word(captioner: Captioner) -> None:
    reading = read(captioner)
    now, after = (word_maps(name, reading) for name in ("attention", "next-attention"))
    torch.testing.assert_close(after[:, :, :-1], now[:, :, 1:])


def test_attention_counts_by_the_length_of_what_it_weighs(captioner: Captioner) -> None:
    # By hand: even weights, and of four regions one three times as long as the others.
    own = Plain(5, 8)
    reading = read(captioner, torch.tensor([[[BOS, 4, EOS]]]))
    vectors: Tensor = torch.nn.functional.normalize(torch.randn(1, 16, 5), dim=2)
    vectors[0, 6] *= 3
    found = word_maps(
        "attention-norm",
        type(reading)(reading.encoder, own, reading.images, vectors, reading.tokens),
    )
    expected = torch.full((4, 4), 1 / 18)
    expected[1, 2] = 3 / 18
    torch.testing.assert_close(found[0, 0, 0], expected)

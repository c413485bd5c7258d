from dataclasses import replace

import pytest
import torch
from torch import nn

from captioning.captioner import Captioner
from captioning.data.vocabulary import BOS, EOS
from captioning.maps import word_maps
from captioning.maps.relevance_map import word_logits
from captioning.maps.word_map import shares
from captioning.models import LSTMDecoder
from tests.maps.test_gradient_maps import TOKENS, in_double
from tests.maps.test_maps import Plain, read


def test_through_a_linear_decoder_a_region_is_as_relevant_as_what_it_adds(
    captioner: Captioner,
) -> None:
    # By hand: the logit of a word is the mean over regions of their vectors times its row.
    reading = read(captioner, torch.tensor([[[BOS, 4, 6, EOS]]]))
    own = Plain(reading.annotations.shape[2], 8)
    added = reading.annotations[0] @ own.words.weight[[4, 6, EOS]].T  # (L, T)
    found = word_maps("relevance", replace(reading, decoder=own))
    torch.testing.assert_close(found[0, 0], shares(added.T, (4, 4)))


@pytest.mark.parametrize("query_with_word", [False, True])
@pytest.mark.parametrize("projection_dim", [None, 6])
def test_regions_share_the_whole_logit_where_nothing_else_adds_to_it(
    captioner: Captioner, query_with_word: bool, projection_dim: int | None
) -> None:
    decoder = LSTMDecoder(
        *(5, 8, 6, 7, 4), query_with_word=query_with_word, projection_dim=projection_dim
    )
    generator = torch.Generator().manual_seed(5)
    for name, parameter in decoder.named_parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
        if name.endswith("bias") or name == "embedding.weight":
            nn.init.zeros_(parameter)
    reading = replace(in_double(captioner), decoder=decoder.double().eval())
    leaf = reading.annotations.clone().requires_grad_()
    logits = word_logits(reading, leaf)
    plain, _ = reading.decoder(leaf, TOKENS[..., :-1])
    torch.testing.assert_close(logits, plain.gather(-1, TOKENS[..., 1:, None])[..., 0])
    for place in range(logits.shape[2]):
        [gradient] = torch.autograd.grad(logits[0, 0, place], leaf, retain_graph=True)
        torch.testing.assert_close((leaf * gradient).sum(), logits[0, 0, place])

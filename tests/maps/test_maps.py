"""What holds for every map of a word, with any decoder."""

from dataclasses import replace

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from captioning.captioner import Captioner
from captioning.captioner.ensemble import ensemble
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import BOS, EOS, PAD, UNK
from captioning.errors import InputError
from captioning.maps import MAPS, Reading, known_maps, word_maps
from captioning.models import Decoder
from captioning.models.decoder import Memory, State, Step

TOKENS = torch.tensor(
    [
        [[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD]],
        [[BOS, 6, 6, EOS, PAD], [BOS, 5, 4, 7, EOS]],
    ]
)


class Plain(Decoder):
    """A user's own decoder: words by the mean of what it may look at, and by the last word."""

    def __init__(self, annotation_dim: int, vocab_size: int) -> None:
        super().__init__(annotation_dim, vocab_size)
        self.words = torch.nn.Linear(annotation_dim, vocab_size)
        self.last = torch.nn.Embedding(vocab_size, vocab_size)

    def start(self, memory: Memory, n: int) -> State:
        return {}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        seen = torch.ones(memory.annotations.shape[:2]).to(memory.annotations)
        if memory.mask is not None:
            seen = seen * memory.mask
        weights = (seen / seen.sum(dim=1, keepdim=True))[:, None].expand(-1, tokens.shape[1], -1)
        logits = self.words(weights @ memory.annotations) + self.last(tokens)
        return Step(logits, weights, state)


def read(captioner: Captioner, tokens: Tensor = TOKENS) -> Reading:
    """A reading of captions of random images."""
    images = torch.randint(
        256, (len(tokens), 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(4)
    )
    with torch.no_grad():
        annotations = captioner.encode(images)
    return Reading(captioner.encoder, captioner.decoder, images, annotations, tokens)


@pytest.fixture(params=["lstm", "plain", "ensemble"])
def model(request: pytest.FixtureRequest, captioner: Captioner) -> Captioner:
    if request.param == "plain":
        own = Plain(captioner.encoder.annotation_dim, len(captioner.vocabulary))
        return Captioner(captioner.encoder, own, captioner.vocabulary, Preprocessing(32)).eval()
    return (
        ensemble([captioner, captioner], ["a", "b"]) if request.param == "ensemble" else captioner
    )


@pytest.mark.parametrize("name", MAPS)
def test_the_map_of_every_word_is_shares_on_a_grid_of_the_image(
    model: Captioner, name: str
) -> None:
    if MAPS[name].needs_evidence and isinstance(model.decoder, Plain):
        with pytest.raises(InputError, match=f"map {name}: this decoder scores no word by"):
            word_maps(name, read(model))
        return
    maps = word_maps(name, read(model))
    assert maps.shape[:3] == (2, 2, 4)
    assert maps.shape[3] == maps.shape[4] == (8 if name == "fine-grad-cam" else 4)
    assert not maps.requires_grad
    assert (maps >= 0).all()
    torch.testing.assert_close(maps.sum(dim=(3, 4)), torch.ones(2, 2, 4))


@pytest.mark.parametrize("name", MAPS)
def test_captions_of_a_batch_have_the_maps_that_they_have_alone(
    captioner: Captioner, name: str
) -> None:
    whole = read(captioner)
    together = word_maps(name, whole)
    for image, caption in ((0, 0), (0, 1), (1, 0), (1, 1)):
        alone = replace(
            whole,
            images=whole.images[image : image + 1],
            annotations=whole.annotations[image : image + 1],
            tokens=whole.tokens[image : image + 1, caption : caption + 1],
        )
        length = int((alone.tokens != PAD).sum()) - 2  # without BOS and EOS
        torch.testing.assert_close(
            word_maps(name, alone)[0, 0, :length],
            together[image, caption, :length],
            atol=1e-5,
            rtol=1e-3,
        )


@pytest.mark.parametrize(
    "name", ["gradient", "relevance", "grad-cam", "fine-grad-cam", "occlusion"]
)
def test_a_word_that_the_model_cannot_write_has_an_even_map(
    captioner: Captioner, name: str
) -> None:
    maps = word_maps(name, read(captioner, torch.tensor([[[BOS, UNK, 4, EOS]]])))
    assert maps[0, 0, 0].unique().numel() == 1
    assert maps[0, 0, 1].unique().numel() > 1


@pytest.mark.parametrize("name", sorted(set(MAPS) - {"attention", "next-attention"}))
def test_an_ensemble_of_several_encoders_has_attention_alone(
    captioner: Captioner, name: str
) -> None:
    finer = Captioner(
        captioner.encoder, captioner.decoder, captioner.vocabulary, Preprocessing(64)
    ).eval()
    both = ensemble([captioner, finer], ["coarse", "fine"])
    images = torch.zeros(1, 3, 64, 96, dtype=torch.uint8)
    reading = Reading(
        both.encoder, both.decoder, images, both.encode(images).detach(), TOKENS[:1, :1]
    )
    assert word_maps("attention", reading).shape == (1, 1, 4, 8, 8)
    with pytest.raises(InputError, match=f"map {name}: an ensemble of several encoders"):
        word_maps(name, reading)


def test_an_unknown_map_is_refused_with_the_names_of_all(captioner: Captioner) -> None:
    with pytest.raises(InputError, match="unknown map 'saliency'; choose from attention, "):
        word_maps("saliency", read(captioner))


def test_maps_are_named_once_and_attention_is_the_default() -> None:
    assert known_maps([]) == ("attention",)
    assert known_maps(["occlusion", "gradient", "occlusion"]) == ("occlusion", "gradient")

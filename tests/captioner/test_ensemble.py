import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from captioning.captioner import Captioner, load
from captioning.captioner.ensemble import EnsembleDecoder, JointEncoder, _spread, ensemble
from captioning.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from captioning.errors import InputError
from captioning.models import Adapter, LSTMDecoder, Model
from captioning.search import BeamSearch, Decoded, Greedy, Search
from tests.captioner.test_captioner import PHOTOS
from tests.conftest import LSTM, Vectors, checkpoint_of, decided, tiny_captioner
from tests.search.test_decoding import every_search

GENERATED = [EOS, 4, 5, 6, 7]
ALL = slice(None)


def member(seed: int) -> Model:
    """A tiny model with confident predictions, in double precision."""
    torch.manual_seed(seed)
    return Model(Vectors(), Adapter(5), decided(LSTM(5, 8))).eval()


def together(*members: Model) -> EnsembleDecoder:
    """The models as an ensemble, all of which look at all regions."""
    return EnsembleDecoder(members, [ALL] * len(members), [(2, 3)] * len(members))


def searched(search: Search, model: Model | EnsembleDecoder, annotations: Tensor) -> Decoded:
    torch.manual_seed(0)
    decoder = model.decoder if isinstance(model, Model) else model
    return search(decoder, model.remember(annotations))


def assert_same(first: Decoded, second: Decoded) -> None:
    assert torch.equal(first.tokens, second.tokens)
    for ours, theirs in zip(first[1:], second[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


def shares(logits: Tensor) -> Tensor:
    """Probabilities among the words that can be generated, zero for the others."""
    raised = (logits - logits.max()).exp()
    raised[..., [PAD, BOS, UNK]] = 0.0
    return raised / raised.sum(-1, keepdim=True)


@every_search
@pytest.mark.parametrize("count", [1, 2])
def test_an_ensemble_of_one_model_once_or_twice_is_that_model(
    search: Search, count: int, annotations: Tensor
) -> None:
    alone = searched(search, member(1), annotations)
    assert_same(searched(search, together(*[member(1)] * count), annotations), alone)


def test_a_wide_beam_finds_the_ensembles_most_probable_caption(annotations: Tensor) -> None:
    members = [member(1), member(2), member(3)]
    length = 3
    captions = torch.tensor(
        [[words for words in itertools.product(GENERATED, repeat=length) if words[0] != EOS]]
    ).expand(3, -1, -1)  # of those that go on after EOS, the same beginning is counted alike
    read = torch.cat([torch.full_like(captions[:, :, :1], BOS), captions[:, :, :-1]], dim=2)
    means = sum(shares(model(annotations, read)[0]) for model in members) / 3
    log_probs = means.gather(3, captions[..., None]).squeeze(3).log()
    ended = (captions == EOS).cumsum(2) - (captions == EOS).long() > 0
    totals, places = log_probs.masked_fill(ended, 0.0).sum(2).max(1)

    search = BeamSearch(100, length_penalty=0.0, max_length=length)
    found = searched(search, together(*members), annotations)
    torch.testing.assert_close(found.scores[:, 0], totals, check_dtype=False)
    best = captions.masked_fill(ended, PAD)[torch.arange(3), places]
    assert torch.equal(found.tokens[:, 0], best)


def test_weights_of_a_coarse_grid_are_spread_over_the_finest_one() -> None:
    a, b, c, d = weights = [0.1, 0.2, 0.3, 0.4]
    # A third of the grid's side is two thirds of a coarse cell; the middle has a third of each two.
    expected = [
        *(4 * a, 2 * (a + b), 4 * b),
        *(2 * (a + c), a + b + c + d, 2 * (b + d)),
        *(4 * c, 2 * (c + d), 4 * d),
    ]
    found = _spread(torch.tensor([[weights]]), (2, 2), (3, 3))
    torch.testing.assert_close(found, torch.tensor([[expected]]) / 9)


@pytest.fixture
def members(vocabulary: Vocabulary) -> list[Captioner]:
    """Three captioners with encoders of their own, and hidden states of different widths."""
    return [tiny_captioner(vocabulary, seed, hidden_dim=16 + seed) for seed in (1, 2, 3)]


def test_photos_are_encoded_once_for_equal_encoders(members: list[Captioner]) -> None:
    for other in members[1:]:
        other.model.encoder.load_state_dict(members[0].model.encoder.state_dict())
    both = ensemble(members, ["a", "b", "c"])
    assert both.model.encoder is members[0].model.encoder
    images = torch.stack([both.preprocessing(photo).pixels for photo in PHOTOS])
    assert torch.equal(both.model.encode(images), members[0].model.encode(images))


def by_hand(members: Sequence[Captioner], photo: Image.Image) -> tuple[Tensor, Tensor]:
    """Mean probabilities of the first word, and weights, of members with grids of one size."""
    probabilities, weights = [], []
    for captioner in members:
        model = captioner.model
        memory = model.remember(model.encode(captioner.preprocessing(photo).pixels[None]))
        step = model.decoder.step(torch.tensor([[BOS]]), model.decoder.start(memory, 1), memory)
        probabilities.append(shares(step.logits))
        weights.append(step.weights)
    return torch.stack(probabilities).mean(0), torch.stack(weights).mean(0)


@torch.no_grad()
def test_members_may_have_encoders_of_their_own(members: list[Captioner]) -> None:
    members[2].model.encoder.load_state_dict(members[0].model.encoder.state_dict())
    both = ensemble(members, ["a", "b", "c"])
    assert isinstance(both.model.encoder, JointEncoder)
    assert len(both.model.encoder.encoders) == 2
    for photo in PHOTOS:
        [caption] = both([photo], Greedy(max_length=1))
        probabilities, weights = by_hand(members, photo)
        best = probabilities[0, 0, 4:].max(0)
        assert caption.words == (both.vocabulary.words[best.indices],)
        assert caption.probabilities == pytest.approx([best.values.item()], rel=1e-5)
        torch.testing.assert_close(caption.map(), weights.view(1, 4, 4))
        assert caption.crop == members[0].preprocessing(photo).crop


def test_other_words_and_other_sizes_are_refused_by_name(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    turned = tiny_captioner(Vocabulary(vocabulary.words[::-1]))
    given = tiny_captioner(vocabulary), turned, tiny_captioner(vocabulary, side=48)
    paths = [checkpoint_of(each, tmp_path / f"{n}.ckpt") for n, each in enumerate(given)]
    with pytest.raises(InputError, match=r"1\.ckpt: knows other words than .*0\.ckpt;"):
        load(paths[:2])
    with pytest.raises(InputError, match=r"2\.ckpt: sees photos at another size"):
        load(paths[::2])
    assert isinstance(load(paths[:1]).model.decoder, LSTMDecoder)

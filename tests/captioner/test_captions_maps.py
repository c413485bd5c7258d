"""Maps of captions: computed when they are asked for."""

from pathlib import Path

import pytest
import torch

from captioning.captioner import Captioner
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import Record
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.maps import head_names
from captioning.models import Adapter, Model
from captioning.search import BeamSearch
from tests.fixtures import TRANSFORMER


@pytest.fixture
def photos(shapes_records: list[Record]) -> list[Path]:
    return [record.image for record in shapes_records[:3]]


def with_transformer(model: Model) -> Model:
    width = model.encoder.annotation_dim
    return Model(model.encoder, Adapter(width), TRANSFORMER(width, 8)).eval()


def test_a_map_on_demand_equals_that_of_the_batch(captioner: Captioner, photos: list[Path]) -> None:
    names = ("occlusion", "attention-evidence")
    alone, batched = captioner(photos), captioner(photos, maps=names)
    for one, other in zip(alone, batched, strict=True):
        assert set(one.maps) == {"attention"}
        assert set(other.maps) == {"attention", *names}
        assert (one.shown_maps, other.shown_maps) == (("attention-evidence",), names)
        assert (one.words, one.score) == (other.words, other.score)
        torch.testing.assert_close(one.map(), other.map("attention-evidence"))
        torch.testing.assert_close(one.map("occlusion"), other.map())
        assert one.array("occlusion") is one.maps["occlusion"]


def test_every_beam_has_the_maps_of_its_own_words(captioner: Captioner, photos: list[Path]) -> None:
    search = BeamSearch(width=3, max_length=5)
    for best in captioner(photos, search, maps=["gradient"], most=None):
        for caption in (best, *best.others):
            sums = caption.map().sum(dim=(1, 2))
            torch.testing.assert_close(sums, torch.ones(len(caption.words)))


def test_the_default_map_suits_the_decoder(captioner: Captioner, vocabulary: Vocabulary) -> None:
    assert captioner.default_map == "attention-evidence"
    model = with_transformer(captioner.model)
    assert Captioner(model, vocabulary, Preprocessing(32)).default_map == "attention"
    with pytest.raises(InputError, match="only an LSTM decoder with deep output has it"):
        Captioner(model, vocabulary, Preprocessing(32), map_name="evidence")


def test_all_heads_are_maps_and_unknown_maps_are_refused(
    captioner: Captioner, vocabulary: Vocabulary, photos: list[Path]
) -> None:
    with pytest.raises(InputError, match="the attention of this model has a single head"):
        captioner(photos, maps=["heads"])
    with pytest.raises(InputError, match="unknown map 'lime'"):
        captioner(photos)[0].map("lime")
    model = with_transformer(captioner.model)
    [caption, *_] = Captioner(model, vocabulary, Preprocessing(32))(photos, maps=["heads"])
    assert caption.shown_maps == ("attention", *head_names(model.decoder))
    torch.testing.assert_close(caption.map("layer 2 mean"), caption.map("attention"))

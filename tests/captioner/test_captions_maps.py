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
from captioning.models import Adapter, LSTMDecoder, Model, TransformerDecoder
from captioning.search import BeamSearch


@pytest.fixture
def photos(shapes_records: list[Record]) -> list[Path]:
    return [record.image for record in shapes_records[:3]]


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
    encoder = captioner.model.encoder
    width = encoder.annotation_dim
    shallow = LSTMDecoder(width, 8, 6, 7, 4, deep_output=False)
    for decoder in (shallow, TransformerDecoder(width, 8, 8, 1, 2, 8)):
        model = Model(encoder, Adapter(width), decoder)
        assert Captioner(model, vocabulary, Preprocessing(32)).default_map == "attention"
        with pytest.raises(InputError, match="only an LSTM decoder with deep output has it"):
            Captioner(model, vocabulary, Preprocessing(32), map_name="evidence")


def test_every_layer_and_head_is_a_map(
    captioner: Captioner, vocabulary: Vocabulary, photos: list[Path]
) -> None:
    torch.manual_seed(3)
    encoder = captioner.model.encoder
    decoder = TransformerDecoder(encoder.annotation_dim, 8, 8, layers=2, heads=2, inner_width=8)
    model = Model(encoder, Adapter(encoder.annotation_dim), decoder).eval()
    [caption, *_] = Captioner(model, vocabulary, Preprocessing(32))(photos, maps=["heads"])
    assert caption.shown_maps == ("attention", *head_names(decoder))
    torch.testing.assert_close(caption.map("layer 2 mean"), caption.map("attention"))
    heads = (caption.map("layer 2 head 1") + caption.map("layer 2 head 2")) / 2
    torch.testing.assert_close(heads, caption.map("attention"))


def test_maps_that_the_model_does_not_have_are_refused(
    captioner: Captioner, photos: list[Path]
) -> None:
    for name, message in (
        ("lime", "unknown map 'lime'"),
        ("heads", "the attention of this model has a single head"),
        ("layer 1 mean", "unknown map 'layer 1 mean'"),
    ):
        with pytest.raises(InputError, match=message):
            captioner(photos, maps=[name])
    [caption, *_] = captioner(photos)
    with pytest.raises(InputError, match="unknown map 'lime'"):
        caption.map("lime")

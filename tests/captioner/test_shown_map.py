"""The map that a model shows unless another one is asked for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from captioning.captioner import Captioner, load
from captioning.captioner.ensemble import ensemble
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from captioning.models import CNNEncoder, LSTMDecoder

PRODUCT = "attention-evidence"


def showing(captioner: Captioner, shown_map: str, decoder: Any = None) -> Captioner:
    """The same model, or with another decoder, that shows a map."""
    parts = captioner.encoder, decoder or captioner.decoder, captioner.vocabulary
    return Captioner(*parts, captioner.preprocessing, shown_map=shown_map).eval()


@pytest.fixture
def photo() -> Image.Image:
    return Image.effect_noise((40, 30), 60).convert("RGB")


def test_captions_have_it(captioner: Captioner, photo: Image.Image) -> None:
    [attended] = captioner.caption([photo], maps=["attention", PRODUCT])
    [caption] = showing(captioner, PRODUCT).caption([photo])
    assert captioner.caption([photo])[0].map_name == "attention"
    assert caption.map_name == PRODUCT
    torch.testing.assert_close(caption.weights, attended.further_maps[PRODUCT])


def test_another_map_may_be_asked_for(captioner: Captioner, photo: Image.Image) -> None:
    [caption] = showing(captioner, PRODUCT).caption([photo], maps=["attention", "evidence"])
    assert caption.map_name == "attention"
    assert list(caption.further_maps) == ["evidence"]


def test_a_checkpoint_keeps_it(captioner: Captioner) -> None:
    config = showing(captioner, PRODUCT).config
    assert Captioner.from_config(config).shown_map == PRODUCT
    del config["shown_map"]  # as checkpoints of earlier versions
    assert Captioner.from_config(config).shown_map == "attention"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("heat", "unknown map 'heat'; choose from attention"), (7, "a int is no name of a map")],
)
def test_a_checkpoint_that_shows_no_map_is_refused(
    captioner: Captioner, name: Any, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        Captioner.from_config(captioner.config | {"shown_map": name})


def test_a_decoder_without_evidence_cannot_show_it(captioner: Captioner) -> None:
    width = captioner.encoder.annotation_dim
    plain = LSTMDecoder(width, len(captioner.vocabulary), 6, 7, 4, deep_output=False)
    with pytest.raises(InputError, match="map evidence: this decoder scores no word by a region"):
        showing(captioner, "evidence", plain)


def test_an_ensemble_shows_what_all_its_members_show(captioner: Captioner) -> None:
    product = showing(captioner, PRODUCT)
    assert ensemble([product, product], ["a", "b"]).shown_map == PRODUCT
    assert ensemble([product, captioner], ["a", "b"]).shown_map == "attention"


def test_members_with_different_regions_show_attention(captioner: Captioner) -> None:
    other = CNNEncoder("small", weights=None, grid=2)
    decoder = LSTMDecoder(other.annotation_dim, len(captioner.vocabulary), 16, 16, 16)
    parts = other, decoder, captioner.vocabulary, Preprocessing(32)
    pooled = Captioner(*parts, shown_map=PRODUCT).eval()
    assert ensemble([showing(captioner, PRODUCT), pooled], ["a", "b"]).shown_map == "attention"


def test_training_writes_it(tiny_config: Path, tmp_path: Path) -> None:
    from captioning.cli import main

    run = tmp_path / "run"
    options = ["--trainer.default_root_dir", str(run), "--model.shown_map", PRODUCT]
    assert main(["train", "--config", str(tiny_config), *options]) == 0
    assert load(run / "best.ckpt").shown_map == PRODUCT

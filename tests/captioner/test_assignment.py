"""Loading without drawing random numbers first, of our classes and of others."""

import gc
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from captioning.captioner import Captioner, load
from captioning.captioner.assignment import assign, built_without_numbers
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import Vocabulary
from captioning.models import CNNEncoder, LSTMDecoder
from tests.conftest import save_checkpoint


class Measured(LSTMDecoder):
    """Computes with a parameter's numbers while it is built."""

    def __init__(self, annotation_dim: int, vocab_size: int, embedding_dim: int = 8) -> None:
        super().__init__(annotation_dim, vocab_size, embedding_dim, 8, 8)
        self.size = self.embedding.weight.norm().item()


class Scaled(LSTMDecoder):
    """Holds a tensor that its state dict does not."""

    def __init__(self, annotation_dim: int, vocab_size: int, embedding_dim: int = 8) -> None:
        super().__init__(annotation_dim, vocab_size, embedding_dim, 8, 8)
        self.scale = torch.tensor(3.0)


def saved(folder: Path, decoder: type[LSTMDecoder] = LSTMDecoder, **options: object) -> Path:
    torch.manual_seed(0)
    encoder = CNNEncoder("small", weights=None, trainable_stages=1)
    made = decoder(encoder.annotation_dim, 6, 8, **options)  # type: ignore[arg-type]
    captioner = Captioner(encoder, made, Vocabulary(["a", "b"]), Preprocessing(32))
    path = folder / "model.ckpt"
    tensors = {f"captioner.{name}": value for name, value in captioner.state_dict().items()}
    save_checkpoint({"captioner": captioner.config, "state_dict": tensors}, path)
    return path


def test_loading_draws_nothing_random(tmp_path: Path) -> None:
    path = saved(tmp_path)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    load(path)
    assert torch.get_rng_state().equal(before)


def test_only_what_is_trained_asks_for_gradients(tmp_path: Path) -> None:
    path = saved(tmp_path)
    asking = {name for name, p in load(path).named_parameters() if p.requires_grad}
    torch.manual_seed(0)
    made = CNNEncoder("small", weights=None, trainable_stages=1)
    trained = {f"encoder.{name}" for name, p in made.named_parameters() if p.requires_grad}
    assert {name for name in asking if name.startswith("encoder.")} == trained
    assert any(name.startswith("decoder.") for name in asking)


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    decoder = load(saved(tmp_path, hidden_dim=8, tie_embeddings=True)).decoder
    assert isinstance(decoder, LSTMDecoder)
    assert decoder.embedding.weight is decoder.output.weight


def test_the_file_may_go_once_it_is_loaded(tmp_path: Path) -> None:
    path = saved(tmp_path)
    captioner = load(path)
    before = {name: value.clone() for name, value in captioner.state_dict().items()}
    path.write_bytes(b"\0" * path.stat().st_size)
    gc.collect()
    torch.testing.assert_close(captioner.state_dict(), before, rtol=0, atol=0)


def test_numbers_of_another_precision_become_the_models() -> None:
    layer = built_without_numbers(lambda: nn.Linear(2, 2))
    assert layer is not None
    assert assign(layer, {"weight": torch.eye(2).double(), "bias": torch.zeros(2).half()})
    assert layer(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("kind", [Measured, Scaled])
def test_classes_that_need_numbers_while_they_are_built_are_loaded_too(
    tmp_path: Path, kind: type[LSTMDecoder]
) -> None:
    captioner = load(saved(tmp_path, kind))
    held = vars(captioner.decoder).get("scale", getattr(captioner.decoder, "size", None))
    assert isinstance(held, float) or (isinstance(held, Tensor) and held.item() == 3)
    assert not any(value.is_meta for value in captioner.state_dict().values())

"""Which decoders are computed by a kernel: exactly the plain classes, with nothing changed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from captioning.captioner import Captioner, load
from captioning.cli.program import main
from captioning.data.records import Record
from captioning.data.vocabulary import BOS, EOS
from captioning.kernels import accelerated
from captioning.models import AdditiveAttention, LSTMDecoder
from captioning.models.attention import Attended
from captioning.models.decoder import State
from captioning.training.configured_training import TrainCLI

TOKENS = torch.tensor([[[BOS, 4, 5, 6, EOS], [BOS, 7, 7, 5, EOS]]] * 3)


class Sharp(AdditiveAttention):
    """Looks at the best region alone."""

    def attend(
        self, query: Tensor, keys: Tensor, annotations: Tensor, mask: Tensor | None = None
    ) -> Attended:
        weights = super().attend(query, keys, annotations, mask).weights
        weights = nn.functional.one_hot(weights.argmax(2), weights.shape[2]).to(weights)
        return Attended(weights @ annotations, weights)


class Backwards(LSTMDecoder):
    def start(self, memory: object, n: int) -> State:
        return {name: -part for name, part in super().start(memory, n).items()}


def made(kind: type[LSTMDecoder] = LSTMDecoder, **options: object) -> LSTMDecoder:
    torch.manual_seed(0)
    return kind(5, 8, 6, 7, 4, **options).double().eval()


def test_the_plain_lstm_has_a_kernel_that_shares_its_parameters() -> None:
    decoder = made()
    fast = accelerated(decoder)
    assert fast is not decoder
    assert {id(p) for p in fast.parameters()} == {id(p) for p in decoder.parameters()}


@pytest.mark.parametrize("decoder", [made(Backwards), made(attention=Sharp)], ids=["own", "Sharp"])
def test_a_class_of_the_users_own_has_no_kernel(decoder: LSTMDecoder) -> None:
    assert accelerated(decoder) is decoder


def test_an_attention_that_overrides_attend_trains_the_model_that_is_searched(
    annotations: Tensor,
) -> None:
    decoder = accelerated(made(attention=Sharp))
    memory = decoder.remember(annotations)
    _, weights = decoder.cross_entropy(memory, TOKENS)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    step = decoder.step(TOKENS[:, :, 0], decoder.start(memory, 2), memory)
    assert step.weights.equal(weights[:, :, 0])


def test_a_querys_bias_counts_in_training_too(annotations: Tensor) -> None:
    decoder = made()
    before, _ = accelerated(decoder).cross_entropy(decoder.remember(annotations), TOKENS)
    decoder.attention.query = nn.Linear(7, 4, dtype=torch.double)
    with torch.no_grad():
        decoder.attention.query.bias += 3.0
    computing = accelerated(decoder)
    assert computing is decoder
    after, _ = computing.cross_entropy(decoder.remember(annotations), TOKENS)
    assert after != before


def test_a_layer_with_a_hook_is_computed_plainly(annotations: Tensor) -> None:
    decoder = made()
    seen: list[Tensor] = []
    hook = decoder.attention.register_forward_hook(lambda *args: seen.append(args[2].weights))
    assert accelerated(decoder) is decoder
    decoder(annotations, TOKENS)
    assert len(seen) == TOKENS.shape[2]
    hook.remove()
    assert accelerated(decoder) is not decoder


def test_a_layer_of_another_class_is_computed_plainly() -> None:
    class Doubled(nn.Linear):
        pass

    decoder = made()
    decoder.output = Doubled(6, 8)
    assert accelerated(decoder) is decoder


def test_one_environment_variable_switches_kernels_off(
    captioner: Captioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert captioner.fast_decoder is not captioner.decoder
    monkeypatch.setenv("CAPTIONING_KERNELS", "off")
    plain = Captioner.from_config(captioner.config)
    assert plain.fast_decoder is plain.decoder
    assert plain.fast_search(plain.search) is plain.search


def test_loading_switches_kernels_off_or_on(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not load(checkpoint, kernels=False).uses_kernels
    monkeypatch.setenv("CAPTIONING_KERNELS", "off")
    assert load(checkpoint, kernels=True).uses_kernels
    assert not load(checkpoint).uses_kernels


def test_every_command_takes_the_switch(
    checkpoint: Path, shapes_records: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for switch in ("on", "off"):
        photo = str(shapes_records[0].image)
        assert main(["caption", photo, "--model", str(checkpoint), "--kernels", switch]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


@pytest.mark.parametrize("switch", ["on", "off"])
def test_training_takes_the_switch(
    tiny_config: Path, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["captioning"])
    cli = TrainCLI(["--config", str(tiny_config), "--trainer.fast_dev_run=1", "--kernels", switch])
    captioner = cli.model.captioner
    assert (captioner.fast_decoder is captioner.decoder) == (switch == "off")


def test_captions_are_the_same_with_kernels_and_without(
    captioner: Captioner, shapes_records: list[Record]
) -> None:
    photo = shapes_records[0].image
    fast = captioner.caption([photo])[0]
    captioner.uses_kernels = False
    plain = captioner.caption([photo])[0]
    assert fast.words == plain.words
    torch.testing.assert_close(fast.weights, plain.weights)
    assert fast.score == pytest.approx(plain.score, rel=1e-3)

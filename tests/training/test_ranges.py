import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioning.errors import UsageError
from captioning.training.configured_training import TrainCLI
from captioning.training.quiet import quiet
from captioning.training.ranges import OPTIONS, _numbers, check_ranges

HOSTILE = [math.nan, math.inf, -math.inf, -2, -0.5, 1e20, 10**20]


class ParsedOnly(TrainCLI):
    """The configuration of a training of which nothing is built."""

    def before_instantiate_classes(self) -> None:
        pass

    def instantiate_classes(self) -> None:
        pass


def parsed(config: Path, *options: str) -> Any:
    with quiet():
        return ParsedOnly(["--config", str(config), *options])


@pytest.fixture(scope="module")
def whole(tiny_config: Path) -> Any:
    """A parsed training with an objective, a callback and a limit."""
    return parsed(
        tiny_config,
        "--trainer.callbacks+=captioning.training.averaging.ExponentialAverage",
        "--data.limit=3",
    )


def keys(config: dict[str, Any]) -> Iterator[str]:
    return (key for key, *_ in _numbers(config))


def replaced(config: Any, key: str, value: object) -> dict[str, Any]:
    """The configuration with another value at a key as messages name it."""
    config = config.clone().as_dict()
    place = config
    *parents, last = key.replace("[0]", ".0").split(".")
    for name in parents:
        place = place[int(name) if name.isdecimal() else name]
    place[last] = value
    return config


def test_the_numbers_of_all_classes_are_found(whole: Any) -> None:
    found = set(keys(whole.config.as_dict()))
    assert found >= {
        "data.size",
        "model.learning_rate",
        "model.encoder.init_args.trainable_stages",
        "model.decoder.init_args.hidden_dim",
        "model.objective.init_args.label_smoothing",
        "model.search.init_args.width",
        "trainer.callbacks[0].init_args.decay",
        "validation_table.images",
        "validation_page.images",
        "validation_grounding.images",
    }


def test_every_number_of_lightnings_options_has_a_range(whole: Any) -> None:
    numeric = {
        action.dest
        for action in whole.parser._actions
        if any(kind in str(getattr(action, "_typehint", action.type)) for kind in ("int", "float"))
        and not action.dest.startswith(("data.", "model.", "validation_"))
    }
    others = {"trainer.max_time", "trainer.precision", "trainer.logger", "trainer.profiler"}
    assert {key for key in numeric - others if "plugins" not in key and "callbacks" not in key} <= (
        OPTIONS.keys()
    )


@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_a_hostile_number_is_refused_with_its_key(whole: Any, value: float) -> None:
    found = [*keys(whole.config.as_dict()), *OPTIONS]
    harmless = {"early_stopping.min_delta", "early_stopping.stopping_threshold"}
    harmless |= {"early_stopping.divergence_threshold"} if abs(value) < 3 else set()
    for key in found:
        if key in harmless and abs(value) < 3:
            continue
        with pytest.raises(UsageError) as error:
            check_ranges(replaced(whole.config, key, value))
        assert str(error.value).startswith(f"{key}: give ")


@pytest.mark.parametrize("key", ["data.size", "data.batch_size", "model.search.init_args.width"])
def test_zero_is_refused_where_it_means_nothing(whole: Any, key: str) -> None:
    with pytest.raises(UsageError, match=r"give a whole number from [18] to .*, not 0"):
        check_ranges(replaced(whole.config, key, 0))


@pytest.mark.parametrize("devices", ["nan", "1e20", "0", "-3", "99999999999999999999", "cpu", ""])
def test_devices_are_how_many_or_which(whole: Any, devices: str) -> None:
    with pytest.raises(UsageError, match=r"trainer\.devices: give "):
        check_ranges(replaced(whole.config, "trainer.devices", devices))


@pytest.mark.parametrize("devices", ["auto", "2", "-1", "0,1", [0, 1], 1])
def test_devices_that_lightning_understands_are_taken(whole: Any, devices: object) -> None:
    check_ranges(replaced(whole.config, "trainer.devices", devices))


@pytest.mark.parametrize(
    "option",
    [
        "--model.search.width=1000000",
        "--data.workers=99999999",
        "--model.objective.label_smoothing=2",
        "--model.learning_rate=-1",
        "--model.encoder.init_args.trainable_stages=101",
        "--data.size=0",
        "--trainer.max_epochs=0",
        "--trainer.accumulate_grad_batches=0",
        "--early_stopping.patience=-1",
        "--save_every=-1",
        "--seed_everything=-1",
    ],
)
def test_an_option_out_of_its_range_names_itself(tiny_config: Path, option: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(tiny_config, option)
    name = option.removeprefix("--").split("=")[0].rpartition(".")[2]
    assert f"{name}: give " in str(error.value)


@pytest.mark.parametrize(("given", "kind"), [("1", int), ("1.0", float)])
def test_a_whole_number_of_batches_stays_one(tiny_config: Path, given: str, kind: type) -> None:
    """Lightning means one batch by 1 and all of them by 1.0."""
    cli = parsed(tiny_config, "--trainer.limit_val_batches", given)
    assert type(cli.config.trainer.limit_val_batches) is kind
    assert type(cli.settings()["trainer"]["limit_val_batches"]) is kind


def test_a_whole_number_of_batches_stays_one_in_a_file(tiny_config: Path, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"trainer": {"limit_val_batches": 1}}))
    cli = parsed(tiny_config, "--config", str(tmp_path / "one.yaml"))
    assert type(cli.config.trainer.limit_val_batches) is int

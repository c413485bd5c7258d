"""The configuration of a captioner: plain values from which its parts are built again."""

from dataclasses import asdict
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from captioning.captioner.calibration import Calibration
from captioning.configurable import build
from captioning.data.preprocessing import Preprocessing
from captioning.data.tokenizers import ENGLISH_JOINTS
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.models import Adapter, Decoder, Encoder, Model
from captioning.models.model import limited_parameters
from captioning.search import Search


class CaptionerParts(NamedTuple):
    """The parts of a captioner, by the names of its arguments."""

    model: Model
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    search: Search
    map_name: str
    calibration: Calibration | None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the captioner; entries with the default value are left out."""
        vocabulary = self.vocabulary
        offset = self.model.encoder.offsets.get(self.preprocessing.size)
        repeatable, joints = vocabulary.repeatable, vocabulary.joints
        immediate_repeats = vocabulary.immediate_repeats
        spellings = {word: text for word, text in vocabulary.spellings.items() if text != word}
        config = {
            "model": self.model.config,
            "vocabulary": list(vocabulary.words),
            "tokenizer": vocabulary.tokenizer,
            "preprocessing": self.preprocessing.config,
            "search": self.search.config,
            "default_map": self.map_name,
            "offset": None if offset is None else list(offset),
            "repeatable": None if repeatable is None else sorted(repeatable),
            "immediate_repeats": None if immediate_repeats is None else sorted(immediate_repeats),
            "spellings": spellings or None,
            "ranks": vocabulary.ranks or None,
            "joints": None if joints == ENGLISH_JOINTS else dict(joints),
            "calibration": self.calibration and asdict(self.calibration),
        }
        return {name: value for name, value in config.items() if value is not None}


def build_parts(config: Any, device: str) -> CaptionerParts:
    """Build the parts of a captioner, with random parameters on a device.

    Raises:
        InputError: a part is missing, or has the wrong type.
    """
    try:
        encoder, adapter, decoder = itemgetter("encoder", "adapter", "decoder")(config["model"])
        with torch.device(device), limited_parameters():
            model = Model(
                build(encoder, Encoder),  # type: ignore[type-abstract]
                build(adapter, Adapter),
                build(decoder, Decoder),  # type: ignore[type-abstract]
            )
        vocabulary = Vocabulary(
            config["vocabulary"],
            config.get("tokenizer", "ptb"),
            config.get("repeatable"),
            config.get("spellings") or {},
            config.get("ranks") or {},
            config.get("joints", ENGLISH_JOINTS),
            config.get("immediate_repeats"),
        )
        preprocessing = build(config["preprocessing"], Preprocessing)
        search = build(config["search"], Search)  # type: ignore[type-abstract]
        map_name = config["default_map"]
    except KeyError as error:
        raise InputError(f"the model's {error.args[0]} is missing") from None
    if "offset" in config:
        down, right = map(float, config["offset"])
        model.encoder.offsets[preprocessing.size] = down, right
    calibration = None
    if "calibration" in config:
        # Files of version 0.4 do not say the search; it was their own.
        search_config = config["calibration"].get("search") or config["search"]
        calibrated_search = build(search_config, Search)  # type: ignore[type-abstract]
        calibration = Calibration.from_config(
            config["calibration"] | {"search": calibrated_search.config}
        )
    return CaptionerParts(model, vocabulary, preprocessing, search, map_name, calibration)

"""The parts of a captioner, built from the plain values of a checkpoint that nobody has checked."""

from typing import Any

from captioning.configurable import build
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.maps import ATTENTION
from captioning.models.decoder import Decoder
from captioning.models.encoder import Encoder
from captioning.numbers import shown
from captioning.search.search import Search

NEEDED = ("encoder", "decoder", "vocabulary", "preprocessing", "search")


def built_parts(config: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the `Captioner` that `config` describes, with random parameters.

    Raises:
        InputError: a part is missing, has the wrong type, or does not fit the others.
    """
    for name in NEEDED:
        if name not in config:
            raise InputError(f"the model's {name} is missing")
    encoder = _part("encoder", Encoder, build(_without_weights(config["encoder"])))
    decoder = _part("decoder", Decoder, build(config["decoder"]))
    vocabulary = _vocabulary(config["vocabulary"])
    wanted = encoder.annotation_dim, len(vocabulary)
    given = decoder.annotation_dim, decoder.vocab_size
    if wanted != given:
        raise InputError(
            f"the decoder is for annotation vectors of width {given[0]} and {given[1]} words, "
            f"the model's are of width {wanted[0]} and {wanted[1]}"
        )
    return {
        "encoder": encoder,
        "decoder": decoder,
        "vocabulary": vocabulary,
        "preprocessing": _part("preprocessing", Preprocessing, build(config["preprocessing"])),
        "search": _part("search", Search, build(config["search"])),
        "shown_map": _part("name of a map", str, config.get("shown_map", ATTENTION)),
    }


def _without_weights(config: Any) -> Any:
    """An encoder's config without pretrained weights, which the checkpoint replaces anyway."""
    return (
        config | {"weights": None} if isinstance(config, dict) and "weights" in config else config
    )


def _part(name: str, kind: type, part: Any) -> Any:
    if not isinstance(part, kind):
        raise InputError(f"a {type(part).__name__} is no {name}")
    return part


def _vocabulary(words: Any) -> Vocabulary:
    """The vocabulary of an untrusted list."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f"a vocabulary is a list of words, not {shown(words)}")
    if len(set(words)) < len(words):
        raise InputError("a word of the vocabulary occurs twice")
    return Vocabulary(words)

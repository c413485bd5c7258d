"""Words of the user: captions to read, and words that captions must or must not have."""

from collections.abc import Sequence
from typing import Any

import torch

from captioning.captioner.inference_network import InferenceNetwork
from captioning.captioner.photo_stream import read_streamed_photo
from captioning.data.preprocessing import Photo, Preprocessing
from captioning.data.vocabulary import UNK, Vocabulary
from captioning.device import on_device
from captioning.errors import raise_errors
from captioning.search import ConstrainedBeamSearch, Search
from captioning.search.search import find_substitutes


@torch.no_grad()
def check_words(
    text: str,
    photo: Photo,
    *,
    vocabulary: Vocabulary,
    preprocessing: Preprocessing,
    network: InferenceNetwork,
) -> None:
    """Raise if the model does not know all words of a caption of a photo.

    Raises:
        PhotoError: the photo cannot be read.
        InputError: a word is unknown; the message has words that would fit the photo instead.
    """
    ids = vocabulary.encode(text)[1:]
    substitutes: list[tuple[str, ...]] = []
    if UNK in ids:
        [streamed_photo] = raise_errors([read_streamed_photo((0, photo), preprocessing)])
        image = on_device([streamed_photo.view.pixels], network.device)
        memory = network.model.remember(network.encode(image))
        words_by_place = find_substitutes(network.model.decoder, memory, ids, k=2)
        substitutes = [vocabulary.spelt(words) for words in words_by_place]
    vocabulary.known_words(text, substitutes)


def constrained_search(
    search: Search,
    vocabulary: Vocabulary,
    begin: str,
    avoid: Sequence[str],
    must_say: Sequence[str],
    width: int | None,
) -> ConstrainedBeamSearch:
    """Return a search with the settings of another one; see `Captioner.constrained`.

    Raises:
        InputError: a word to say is unknown, or no caption can be as asked.
    """

    def ids(text: str) -> list[int]:
        return vocabulary.ids(vocabulary.known_words(text))[1:-1]

    constrained: Any = search.replace(
        ConstrainedBeamSearch,
        begin=ids(begin) if begin else [],
        avoid=[ids(text) for text in avoid if UNK not in vocabulary.encode(text)],
        must_say=[ids(text) for text in must_say],
    )
    width = width or constrained.width * constrained.automaton.banks
    return constrained.replace(width=width)

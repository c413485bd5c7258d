"""A whole captioner of random parameters, in a file as the training writes it."""

from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.encoding import encoded, random_encoder
from benchmarks.endings import ending_decoder
from benchmarks.sizes import Size
from captioning.captioner import Captioner
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.search import BeamSearch


def write_checkpoint(
    path: Path, size: Size, photos: Sequence[Path], search: BeamSearch
) -> Captioner:
    """Write a captioner that ends its captions of these photos when people do; also returned.

    Args:
        path: of the checkpoint.
        size: of the model.
        photos: that it will caption.
        search: its search.
    """
    preprocessing = Preprocessing(size.pixels)
    images = torch.stack([preprocessing(photo).pixels for photo in photos])
    encoder = random_encoder(size, images)
    decoder = ending_decoder(size, encoded(encoder, images))
    vocabulary = Vocabulary([f"word{id}" for id in range(len(SPECIAL), size.vocab_size)])
    captioner = Captioner(encoder, decoder, vocabulary, preprocessing, search)
    state = {f"captioner.{name}": value for name, value in captioner.state_dict().items()}
    torch.save({"captioner": captioner.config, "state_dict": state}, path)
    return captioner

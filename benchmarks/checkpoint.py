"""A whole captioner of random parameters, in a file as the training writes it."""

from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.encoding import random_encoder
from benchmarks.endings import ending_decoder
from benchmarks.sizes import Size
from captioning.data.preprocessing import Preprocessing
from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.models import BeamSearch, Captioner


def write_checkpoint(path: Path, size: Size, photos: Sequence[Path], search: BeamSearch) -> None:
    """Write a captioner that ends its captions of these photos when people do.

    Args:
        path: of the checkpoint.
        size: of the model.
        photos: that it will caption.
        search: its search.
    """
    encoder, preprocessing = random_encoder(size), Preprocessing(size.pixels)
    images = torch.stack([preprocessing(photo).pixels for photo in photos])
    with torch.no_grad():
        decoder = ending_decoder(size, encoder(images))
    vocabulary = Vocabulary([f"word{id}" for id in range(len(SPECIAL), size.vocab_size)])
    captioner = Captioner(encoder, decoder, vocabulary, preprocessing, search)
    state = {f"captioner.{name}": value for name, value in captioner.state_dict().items()}
    torch.save({"captioner": captioner.config, "state_dict": state}, path)

"""How fast JPEG files become captions."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import captioning
from benchmarks.checkpoint import write_checkpoint
from benchmarks.encoding import image_operations
from benchmarks.endings import PROBED
from benchmarks.measure import OURS, TEXTBOOK, Contender, interleaved
from benchmarks.rows import Row, rate_rows
from benchmarks.searching import BEAMS
from benchmarks.setting import Setting
from benchmarks.sizes import Size
from benchmarks.textbook import TextbookDecoder
from benchmarks.textbook_photos import TextbookEncoder, read_photo
from benchmarks.textbook_search import Found, beam_search
from benchmarks.work import Work, search_work, word_counts
from captioning.captioner import Caption, Captioner
from captioning.errors import InputError
from captioning.inference.batches import captioned
from captioning.models import CNNEncoder, LSTMDecoder
from captioning.search import BeamSearch


def end_to_end_rows(setting: Setting) -> Iterator[Row]:
    """Photos per second at every size, with a beam search of width five in single precision."""
    for size in setting.networks:
        photos = setting.photos[: size.photos]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.ckpt"
            saved = write_checkpoint(path, size, photos[:PROBED], BeamSearch(BEAMS))
            captioner = captioning.load(path, setting.device)
        assert isinstance(saved.encoder, CNNEncoder)
        assert isinstance(captioner.decoder, LSTMDecoder)
        encoder = TextbookEncoder(saved.encoder).to(setting.device)
        decoder = TextbookDecoder.of(captioner.decoder)
        tasks: dict[Contender, Callable[[], object]] = {
            TEXTBOOK: partial(_one_by_one, encoder, decoder, photos, size.pixels),
            OURS[0]: partial(_captioned, captioner, photos),
        }
        yield from rate_rows(
            f"JPEG files to captions, beam {BEAMS}",
            f"{size.backbone} at {size.pixels}",
            "photos/s",
            interleaved(tasks, setting.rounds, setting.device),
            len(photos),
            setting.machine,
            dict.fromkeys(tasks, _work(size, saved.to(setting.device), photos)),
        )


@torch.inference_mode()
def _one_by_one(
    encoder: TextbookEncoder, decoder: TextbookDecoder, photos: Sequence[Path], side: int
) -> list[list[Found]]:
    """The textbook's way: each photo is read, encoded and searched before the next."""
    found = []
    for photo in photos:
        image = read_photo(photo, side).to(encoder.mean.device)
        [annotations] = encoder(image[None])
        found.append(beam_search(decoder, annotations, BEAMS))
    return found


def _captioned(captioner: Captioner, photos: Sequence[Path]) -> list[Caption]:
    """What `captioning caption` does after its start.

    Raises:
        InputError: a photo cannot be read.
    """
    captions = []
    for _, caption in captioned(captioner, photos, progress=False):
        if isinstance(caption, InputError):
            raise caption
        captions.append(caption)
    return captions


@torch.inference_mode()
def _work(size: Size, captioner: Captioner, photos: Sequence[Path]) -> Work:
    images = torch.stack([captioner.view(photo).pixels for photo in photos]).to(captioner.device)
    tokens = captioner.decode(captioner.encode(images)).tokens
    search = search_work(replace(size, photos=len(photos)), word_counts(tokens), "fp32")
    assert isinstance(captioner.encoder, CNNEncoder)
    encoding = len(photos) * image_operations(captioner.encoder, images[:1])
    return Work(encoding + search.operations, bytes=0)

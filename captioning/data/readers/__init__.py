"""Readers of data sets, one for each file format."""

from pathlib import Path

from captioning.data.readers.coco import Coco
from captioning.data.readers.flickr8k import Flickr8k
from captioning.data.readers.flickr30k_entities import Flickr30kEntities
from captioning.data.readers.joined import Joined
from captioning.data.readers.karpathy import Karpathy
from captioning.data.readers.reader import Contents, Problem, Reader
from captioning.data.readers.table import CaptionTable
from captioning.errors import InputError

READERS: list[type[Reader]] = [Coco, Flickr30kEntities, Flickr8k, Karpathy, CaptionTable]
"""The readers that `reader_for` chooses from."""

__all__ = [
    "READERS",
    "CaptionTable",
    "Coco",
    "Contents",
    "Flickr8k",
    "Flickr30kEntities",
    "Joined",
    "Karpathy",
    "Problem",
    "Reader",
    "reader_for",
]


def reader_for(root: str | Path, objects: bool = True) -> Reader:
    """The reader of the data set at `root`, chosen by its file names.

    It reads boxes and masks only if `objects`.

    Raises:
        InputError: the folder does not exist or is in an unknown format.
    """
    root = Path(root)
    if not root.exists():
        raise InputError(f"{root}: no such folder; check the path")
    for kind in READERS:
        if kind.recognises(root):
            reader = kind(root)
            if isinstance(reader, Coco | Flickr30kEntities):
                reader.objects = objects
            return reader
    raise InputError(
        f"{root}: unknown layout; expected annotations/captions_*.json (COCO), "
        "dataset_*.json (Karpathy), Flickr8k.token.txt (Flickr8k), Sentences and Annotations "
        "(Flickr30k Entities), or captions.csv or "
        "captions.jsonl with file_name and caption (your own photos); a reader of your own: "
        "--import its module"
    )

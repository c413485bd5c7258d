"""Readers of data sets, one for each kind of file format."""

import inspect
from itertools import chain
from pathlib import Path
from typing import Any

from captioning.data.descriptions import Source
from captioning.data.images import IMAGE_SUFFIXES, PACKED
from captioning.data.photo_files import TAR, holds_files
from captioning.data.readers import reader as reader_module
from captioning.data.readers.coco import Coco, Karpathy
from captioning.data.readers.data_set import DataSet, Problem
from captioning.data.readers.flickr import Flickr8k, Flickr30kEntities
from captioning.data.readers.hugging_face import HuggingFace
from captioning.data.readers.joined import Joined
from captioning.data.readers.reader import Reader
from captioning.data.readers.table import CaptionTable, Sidecar
from captioning.errors import InputError
from captioning.files import refuse_spreadsheet
from captioning.shelf import data_path

READERS: list[type[Reader]] = [
    *(Coco, Flickr30kEntities, Flickr8k, Karpathy, CaptionTable, Sidecar, HuggingFace)
]
"""The readers that `reader_for` chooses from."""

__all__ = ["READERS", "CaptionTable", "Coco", "DataSet", "Flickr8k", "Flickr30kEntities"]
__all__ += ["HuggingFace", "Joined", "Karpathy", "Problem", "Reader", "Sidecar", "reader_for"]

setattr(reader_module, Joined.__name__, Joined)  # where configurations of finetune --keep name it


def reader_for(
    root: str | Path,
    objects: bool | str = True,
    images: str | Path | None = None,
    caption_column: str | None = None,
    photo_column: str | None = None,
    val_fraction: float | None = None,
    captions_from: Source | None = None,
) -> Reader:
    """The reader of the data set at `root`, chosen by its file names, else by their content.

    Args:
        root: a folder, a file, or the address of a data set of the Hub.
        objects: whether to read boxes and masks, where there are some; the name of a split reads
            those of this split.
        images: folder of the photos; by default where the reader looks for them.
        caption_column: the column of the captions, if the data set is a table.
        photo_column: the column of the photos, if the data set is a table.
        val_fraction: share of the photos for validation, if the data set has no split val.
        captions_from: read the descriptions that photos carry (`Sidecar`), whatever files there
            are.
    """
    root = data_path(root)
    if root.suffix.lower() in IMAGE_SUFFIXES and root.is_file():
        raise InputError(f"{root}: a photo, not a data set; give the folder of photos and captions")
    if not root.exists():
        raise InputError(f"{root}: no such file or folder; check the path")
    recognising = (reader_class for reader_class in READERS if reader_class.recognises(root))
    resembling = (reader_class for reader_class in READERS if reader_class.resembles(root))
    reader_class = next(chain(recognising, resembling), None)
    if captions_from is not None:
        reader_class = Sidecar
    if reader_class in (None, HuggingFace) and (
        root.suffix.lower() == TAR or holds_files(root, f"*{TAR}")
    ):
        raise InputError(f"{root}: holds photos in tar files; {PACKED[TAR]}")
    if reader_class is None:
        for file in sorted(root.iterdir()) if root.is_dir() else [root]:
            refuse_spreadsheet(file)
        raise InputError(
            f"{root}: unknown layout; expected photos with a text file beside each (or captions "
            "in them: --captions-from xmp, iptc or exif), a table such "
            "as captions.csv or metadata.jsonl (a first line with file_name,caption), Parquet "
            "files, annotations/captions_*.json (COCO), dataset_*.json "
            "(Karpathy), Flickr8k.token.txt (Flickr8k), or Sentences and Annotations (Flickr30k "
            "Entities); a reader of your own: --import its module"
        )
    parameters = inspect.signature(reader_class).parameters
    columns = {"caption_column": caption_column, "photo_column": photo_column}
    if any(columns.values()) and "caption_column" not in parameters:
        raise InputError(
            f"{root}: read by {reader_class.__name__}, which has no columns; name none"
        )
    if images is not None and reader_class is HuggingFace:
        raise InputError(f"{root}: has its photos inside; omit the folder of the images")
    options: dict[str, Any] = {"images": images, "objects": objects, "val_fraction": val_fraction}
    options |= columns | {"captions_from": captions_from}
    return reader_class(root, **{name: options[name] for name in options if name in parameters})

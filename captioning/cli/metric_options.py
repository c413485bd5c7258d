"""The options of `evaluate` and `score` that choose metrics."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.cli.options import add_photo_limit
from captioning.errors import UsageError
from captioning.progress_bar import is_first_process

if TYPE_CHECKING:
    from captioning.metrics.scores import PhotoScorer, Scorer


RESULTS = (
    "COCO's results format (a list of objects with image_id and caption), a table of image and "
    "caption, a folder or lines of `captioning caption`, or a folder of `captioning evaluate`"
)
"""For help texts: where captions may be."""


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the options of metrics other than BLEU, ROUGE-L and CIDEr."""
    metrics = parser.add_argument_group(
        "metrics", "in addition to BLEU, ROUGE-L and CIDEr as in the COCO evaluation"
    )
    metrics.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        default=[],
        metavar="NAME",
        help="compute this metric of captioning.metrics.registry too; can be repeated",
    )
    for name, needs in (("METEOR", "the extra meteor"), ("SPICE", "the extra java, Java 8 to 14")):
        metrics.add_argument(
            f"--{name.lower()}",
            dest="metrics",
            action="append_const",
            const=name,
            help=f"compute {name} too; needs {needs}",
        )
    metrics.add_argument(
        "--frequencies",
        metavar="FILE",
        help="CIDEr's document frequencies, a file of `score --save-frequencies` "
        "(default: computed from the references of the scored images)",
    )
    metrics.add_argument(
        "--clip",
        action="store_true",
        help="compute CLIPScore and RefCLIPScore too, from the photos; needs the extra clip",
    )
    metrics.add_argument(
        "--clip-weights",
        metavar="DIR",
        help="CLIP's weights, a folder in open_clip's layout (default: OpenAI's ViT-B/32, "
        "downloaded at first use)",
    )


def add_references(parser: argparse.ArgumentParser) -> None:
    """Add the references of captions, and how they are read."""
    parser.add_argument(
        "references",
        metavar="REFERENCES",
        help="the reference captions: COCO's captions_*.json, Karpathy's dataset_*.json, "
        "Flickr8k.token.txt, a table such as captions.csv, or a data set's folder",
    )
    parser.add_argument(
        "--split", metavar="NAME", help="use the references of this split of the data set only"
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Add the option of what splits captions into words."""
    parser.add_argument(
        "--tokenizer",
        choices=("ptb", "characters", "japanese", "chinese", "thai"),
        default="ptb",
        help="what splits captions into words: the COCO evaluation's (default) or, for scripts "
        "without spaces, characters or the words of a language (extras ja, zh and th)",
    )


def add_photos(parser: argparse.ArgumentParser) -> None:
    """Add the options of photos for commands that need them only for CLIPScore."""
    parser.add_argument(
        "--photos",
        metavar="DIR",
        help="the folder of the photos, for --clip; the references contain their names",
    )
    add_photo_limit(parser)


def photos_of(
    options: argparse.Namespace, images: Iterable[int | str]
) -> "dict[int | str, Path] | None":
    """The paths of images by the options of `add_photos`; None without --clip.

    Raises:
        InputError: the references do not name an image's photo.
        UsageError: --clip is given without --photos, or --photos without --clip.
    """
    from captioning.data.results import named_photos

    if not options.clip:
        if options.photos is not None:
            raise UsageError("--photos is for --clip; give --clip too, or omit --photos")
        return None
    if options.photos is None:
        raise UsageError("--clip needs the photos; give their folder by --photos")
    return named_photos(options.references, options.photos, images)


def photo_scorers_of(
    options: argparse.Namespace, photos: "Mapping[Any, Path] | None"
) -> "tuple[PhotoScorer, ...]":
    """The scorers of the chosen metrics that need photos; none in processes but the first.

    Args:
        options: the options of `add_metrics`.
        photos: the path of each photo by image id.

    Raises:
        InputError: a photo, the extra, or the weights are missing.
        UsageError: --clip-weights is given without --clip.
    """
    if not options.clip:
        if options.clip_weights is not None:
            raise UsageError(
                "--clip-weights is for --clip; give --clip too, or omit --clip-weights"
            )
        return ()
    if not is_first_process():
        return ()
    from captioning.captioner.device import usable_device
    from captioning.data.results import check_photos
    from captioning.metrics.clip_score import Clip, ClipScore

    assert photos is not None
    check_photos(photos)
    device = usable_device(getattr(options, "device", None))
    clip = Clip(options.clip_weights, device, options.max_pixels)
    return (ClipScore(clip, photos),)


def scorers_of(options: argparse.Namespace) -> "tuple[Scorer, ...]":
    """The scorers of the chosen metrics that need no photos.

    Raises:
        InputError: something that a metric needs is missing, or the document frequencies cannot be
            read.
        UsageError: a metric is unknown.
    """
    from functools import partial

    from captioning.metrics.cider import DocumentFrequencies, cider_scores
    from captioning.metrics.registry import scorers

    found = scorers(options.metrics)
    if options.frequencies is not None:
        frequencies = DocumentFrequencies.load(options.frequencies)
        found["CIDEr"] = partial(cider_scores, frequencies=frequencies)
    return tuple(found.values())


def note_on_cider(options: argparse.Namespace, images: int) -> None:
    """Say that CIDEr of one image means nothing, on stderr, if the scores are of one."""
    if images == 1 and options.frequencies is None:
        print(
            "captioning: CIDEr of one image is always 0, since it weights words by how few of the "
            "images have them; score more images, or give --frequencies",
            file=sys.stderr,
        )

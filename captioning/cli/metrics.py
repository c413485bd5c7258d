"""The options of `evaluate`, `score` and `judge` that choose metrics."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.cli.options import add_photo_limit
from captioning.errors import UsageError
from captioning.progress_bar import is_first_process

if TYPE_CHECKING:
    from captioning.metrics.scores import PhotoScorer, Scorer


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Options of the scores beside BLEU, ROUGE-L and CIDEr."""
    metrics = parser.add_argument_group(
        "scores", "beside BLEU, ROUGE-L and CIDEr, as the COCO evaluation computes them"
    )
    metrics.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        default=[],
        metavar="NAME",
        help="a further metric, by its name in captioning.metrics.registry",
    )
    for name, needs in (("METEOR", "pycocoevalcap"), ("SPICE", "Java 8 to 14")):
        metrics.add_argument(
            f"--{name.lower()}",
            dest="metrics",
            action="append_const",
            const=name,
            help=f"{name} too, which needs {needs}",
        )
    metrics.add_argument(
        "--meteor-java",
        dest="metrics",
        action="append_const",
        const="METEOR-Java",
        help="METEOR by its authors' program too, to compare with; needs Java",
    )
    metrics.add_argument(
        "--frequencies",
        metavar="FILE",
        help="CIDEr's document frequencies, as `score --save-frequencies` wrote them "
        "(default: those of the scored images)",
    )

    metrics.add_argument(
        "--clip",
        action="store_true",
        help="CLIPScore and RefCLIPScore too, which look at the photos; needs the extra clip",
    )
    metrics.add_argument(
        "--clip-weights",
        metavar="DIR",
        help="CLIP's weights, a folder in open_clip's layout (default: OpenAI's ViT-B/32, which is "
        "downloaded the first time)",
    )


def add_photos(parser: argparse.ArgumentParser) -> None:
    """Where the photos are and how large they may be, for commands that need none otherwise."""
    parser.add_argument(
        "--photos",
        metavar="DIR",
        help="the folder of the photos, for --clip; the references have their names",
    )
    add_photo_limit(parser)


def photos_of(
    options: argparse.Namespace, images: Iterable[int | str]
) -> "dict[int | str, Path] | None":
    """The photos of images by the options of `add_photos`; none if no metric looks at them.

    Raises:
        InputError: the references name no photo of an image.
        UsageError: --clip lacks --photos, or the other way round.
    """
    from captioning.data.results import named_photos

    if not options.clip:
        if options.photos is not None:
            raise UsageError("--photos is for --clip; give --clip too, or leave it out")
        return None
    if options.photos is None:
        raise UsageError("--clip looks at the photos; give their folder by --photos")
    return named_photos(options.references, options.photos, images)


def photo_scorers_of(
    options: argparse.Namespace, photos: "Mapping[Any, Path] | None"
) -> "tuple[PhotoScorer, ...]":
    """The scorers of the chosen metrics that look at photos; of several processes one scores.

    Args:
        options: those of `add_metrics`.
        photos: by image id, where they lie.

    Raises:
        InputError: a photo, the extra, or the weights are missing.
        UsageError: --clip-weights lacks --clip.
    """
    if not options.clip:
        if options.clip_weights is not None:
            raise UsageError("--clip-weights is for --clip; give --clip too, or leave it out")
        return ()
    if not is_first_process():
        return ()
    from captioning.captioner.device import usable_device
    from captioning.data.results import check_photos
    from captioning.metrics.clip import Clip
    from captioning.metrics.clip_score import ClipScore

    assert photos is not None
    check_photos(photos)
    device = usable_device(getattr(options, "device", None))
    clip = Clip(options.clip_weights, device, options.max_pixels)
    return (ClipScore(clip, photos),)


def scorers_of(options: argparse.Namespace) -> "tuple[Scorer, ...]":
    """The scorers of the chosen metrics; imports the user's modules first.

    Raises:
        InputError: Java or a program that a metric needs is missing, or the document frequencies
            cannot be read.
        UsageError: a metric is unknown.
    """
    from functools import partial

    from captioning.metrics.cider import DocumentFrequencies, cider_scores
    from captioning.metrics.registry import scorers
    from captioning.user_modules import import_modules

    import_modules(options.modules)
    found = scorers(options.metrics)
    if options.frequencies is not None:
        frequencies = DocumentFrequencies.load(options.frequencies)
        found["CIDEr"] = partial(cider_scores, frequencies=frequencies)
    return tuple(found.values())

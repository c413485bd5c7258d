"""`captioning caption`: captions for photos, folders of photos and lists of photos."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.caption_outputs import NOT_SURE, Outputs, add_outputs, check_outputs
from captioning.cli.model_options import (
    add_model,
    add_processes,
    add_search,
    model_and_search,
    models_of,
    processes_of,
)
from captioning.cli.options import add_number, add_photo_limit
from captioning.data.images import read_image
from captioning.data.photo_shards import photo_size
from captioning.data.photos import find_photos
from captioning.errors import InputError, UsageError
from captioning.numbers import CaptionsPerImage, ShardSize, Share
from captioning.progress_bar import say
from captioning.shelf import DEFAULT
from captioning.terminal import printable

if TYPE_CHECKING:
    from captioning.captioner import Caption, Captioner
    from captioning.inference.ray_cluster import RayCluster
    from captioning.search import Search

SHARD_SIZE = 1000

MOST_PHOTOS = 1_000_000
"""The most photos without --out, where memory holds all their paths."""

RUNNERS_UP = 3
"""How many alternatives a page shows for each word."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "photos",
        nargs="*",
        metavar="PHOTO",
        help="photos, folders of photos, or - for a list on standard input",
    )
    parser.add_argument("--list", metavar="FILE", help="a file of further photos, one path a line")
    add_model(parser, DEFAULT)
    add_photo_limit(parser)
    add_search(parser)
    add_number(
        parser,
        "--captions",
        CaptionsPerImage,
        "write the best N captions of each photo, each in a line of its own; a beam search follows "
        "at least as many",
    )
    parser.add_argument(
        "--diverse",
        action="store_true",
        help="captions that differ: a beam search for each, away from the words of those before it",
    )
    parser.add_argument(
        "--json", "--jsonl", action="store_true", help="print one line of JSON per caption"
    )
    parser.add_argument(
        "--confidence",
        action="store_true",
        help="print before each photo the chance that its caption is good; JSON and pages always "
        "have it",
    )
    add_number(
        parser, "--min-confidence", Share, f"print {NOT_SURE!r} for captions below P", None, "P"
    )
    add_outputs(parser)
    _add_text(parser)
    bulk = parser.add_argument_group("bulk captioning", "for more photos than a screen can show")
    bulk.add_argument(
        "--out",
        metavar="DIR",
        help="write JSON lines to files in this folder; existing files are kept",
    )
    add_number(bulk, "--shard-size", ShardSize, f"photos per file (default: {SHARD_SIZE})")
    bulk.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="caption on the machines of a Ray cluster: auto for the one that this machine belongs "
        "to, HOST:PORT, or local for one of this machine alone",
    )
    add_processes(parser, machines=False)


def run(options: argparse.Namespace, most_photos: int = MOST_PHOTOS) -> int:
    """Caption the photos; returns 1 if one cannot be read.

    Args:
        options: as parsed.
        most_photos: the most photos whose captions are printed.
    """
    if not options.photos and options.list is None:
        raise UsageError("no photos; give photos, folders or --list FILE")
    check_outputs(options)
    _check_search(options)
    if options.out is not None:
        return _write_shards(options)
    if options.shard_size or options.devices > 1 or options.ray is not None:
        raise UsageError("--shard-size, --devices and --ray are for bulk captioning; give --out")
    return _print_captions(options, most_photos)


def _print_captions(options: argparse.Namespace, most_photos: int) -> int:
    """Print a line per photo, and write its files."""
    photos = list(islice(find_photos(options.photos, options.list), most_photos + 1))
    if len(photos) > most_photos:
        raise UsageError(f"more than {most_photos:,} photos; give --out, for bulk captioning")
    outputs = Outputs(options, photos)
    if not any(photo_size(photo) for photo in outputs.photos):
        return _say_missing(outputs.photos)
    # Torch is imported when everything about the paths has been checked.
    from captioning.inference.batches import candidates, json_line

    captioner, search = model_and_search(options)
    search = _chosen_search(options, captioner, search)
    if captioner.calibration is None and (options.confidence or options.min_confidence):
        raise UsageError(
            "this model is not calibrated, so it has no confidence; see captioning calibrate --help"
        )
    failed, done = False, 0
    # `say` keeps lines and the progress bar apart where both go to one terminal.
    others = RUNNERS_UP if options.html or options.text is not None else 0
    maps = (options.maps or [captioner.default_map]) if outputs.has_pictures else ()
    most = None if options.html else options.captions or 1  # pages show all
    captions = (
        candidates(
            *(captioner, outputs.photos, search, options.batch_size),
            runners_up=others,
            maps=maps,
            most=most,
        )
        if options.text is None
        else _readings(captioner, outputs.photos, options.text, others, maps)
    )
    try:
        for photo, found in captions:
            if isinstance(found, InputError):
                say(f"captioning: {found}")
                failed = True
                continue
            outputs.write(photo, found[: options.captions])
            for caption in found[: options.captions or 1]:
                if options.json:
                    shown = json_line(photo, caption, outputs.text(caption))
                else:
                    shown = _line(options, photo, caption, outputs.sure_text(caption))
                say(shown, file=sys.stdout)
            done += 1
    except KeyboardInterrupt:
        remedy = "; go on by --skip-existing" if outputs.texts and not options.overwrite else ""
        number = f"{done:,} of {len(outputs.photos):,} photos"
        raise KeyboardInterrupt(f"interrupted after {number}{remedy}") from None
    outputs.finish()
    return 1 if failed else 0


def _say_missing(photos: Sequence[Path]) -> int:
    """Report photos none of which can be read, before a model is loaded; returns 1 if any."""
    for photo in photos:
        try:
            read_image(photo)
        except InputError as error:
            say(f"captioning: {error}")
    return 1 if photos else 0


def _add_text(parser: argparse.ArgumentParser) -> None:
    """Add the options about words that the user gives."""
    words = parser.add_argument_group("your words")
    words.add_argument(
        "--text",
        metavar="CAPTION",
        help="read this caption instead of writing one: how probable each word is, and with --json "
        "or --html what the model would have said instead and where it looks",
    )
    words.add_argument("--begin", metavar="TEXT", help="begin each caption with these words")
    words.add_argument(
        "--avoid",
        action="append",
        metavar="TEXT",
        help="never say this word or phrase; only whole words match, so dog allows dogs (may be "
        "given again)",
    )
    words.add_argument(
        "--must-say",
        action="append",
        metavar="TEXT",
        help="say this word or phrase in each caption (may be given again)",
    )


def _check_search(options: argparse.Namespace) -> None:
    """Check that the options of the search go together.

    Raises:
        UsageError: they do not.
    """
    words = options.begin or options.avoid or options.must_say
    if options.text is not None and (words or options.captions):
        raise UsageError(
            "--text reads a caption instead of writing one; leave out --captions, --begin, --avoid "
            "and --must-say"
        )
    if words and (options.greedy or options.sample or options.diverse):
        raise UsageError(
            "--begin, --avoid and --must-say are for beam search; leave out --greedy, --sample and "
            "--diverse"
        )
    if options.diverse and (options.greedy or options.sample or not options.captions):
        raise UsageError(
            "--diverse is for several captions by beam search; give --captions N, and leave out "
            "--greedy and --sample"
        )
    if options.captions and options.greedy:
        raise UsageError("--greedy finds one caption; leave out either it or --captions")


def _chosen_search(
    options: argparse.Namespace, captioner: "Captioner", search: "Search"
) -> "Search":
    """The search for as many captions, and for such words, as the options ask for."""
    from captioning.search import BeamSearch, DiverseBeamSearch, Sampling

    if options.begin or options.avoid or options.must_say:
        avoid, must_say = options.avoid or (), options.must_say or ()
        search = captioner.constrained(
            options.begin or "", avoid, must_say, search, width=options.beam
        )
    if not options.captions:
        return search
    if options.diverse:
        return search.replace(DiverseBeamSearch, groups=options.captions)
    if isinstance(search, Sampling):
        return search.replace(captions=options.captions)
    if not isinstance(search, BeamSearch):
        search = search.replace(BeamSearch, width=1)
    return search.replace(width=max(options.captions, search.config["width"]))


def _readings(
    captioner: "Captioner", photos: Sequence[Path], text: str, runners_up: int, maps: Sequence[str]
) -> Iterator[tuple[Path, "list[Caption] | InputError"]]:
    """Each photo with the model's reading of a caption of it, or why it cannot be read."""
    captioner.vocabulary.known_words(text)  # unknown words are told before any photo
    for photo in photos:
        try:
            yield photo, [captioner.read(photo, text, runners_up, maps)]
        except InputError as error:
            yield photo, error


def _line(options: argparse.Namespace, photo: Path, caption: "Caption", text: str | None) -> str:
    """The photo and its caption, if it is sure enough, behind its confidence if asked for.

    Of a caption that is read, each word comes with its probability.
    """
    if options.text is not None:
        words = zip(caption.words, caption.probabilities, strict=True)
        return printable(photo, " ".join(f"{word} {p:.2f}" for word, p in words))
    sure = [f"{caption.confidence:.2f}"] if options.confidence else []
    return printable(*sure, photo, NOT_SURE if text is None else text)


def _write_shards(options: argparse.Namespace) -> int:
    """Write files of JSON lines, resuming where an earlier call ended."""
    from captioning.files import made_folder
    from captioning.inference.bulk import PhotoStream, caption_into_shards, settings
    from captioning.inference.shards import Shards

    if options.text is not None:
        raise UsageError("--text is for printed captions; leave out either it or --out")
    cluster = _cluster(options)
    processes = processes_of(options)
    photos = PhotoStream(options.photos, options.list)
    captioner, search = model_and_search(options, processes, on_cpu=cluster is not None)
    search = _chosen_search(options, captioner, search)
    folder = made_folder(options.out)
    size = options.shard_size or SHARD_SIZE
    models = models_of(options)
    made_with = settings(models, options.bf16, search, options.seed, size, photos)
    shards = Shards(folder, size, made_with)
    try:
        found = caption_into_shards(
            *(captioner, search, photos, shards, options.batch_size, options.seed),
            processes=processes,
            cluster=cluster,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    if found is None:
        return 0  # the first process reports the results of all
    print(printable(folder))
    return 1 if found.unreadable else 0


def _cluster(options: argparse.Namespace) -> "RayCluster | None":
    """The cluster that --ray names, if any.

    Raises:
        UsageError: Ray is not installed, or other options do not go with it.
    """
    if options.ray is None:
        return None
    if find_spec("ray") is None:
        raise UsageError("--ray needs the extra ray; run pip install 'captioning[ray]'")
    if options.devices > 1:
        raise UsageError("--ray shares the work of all machines; leave out --devices")
    if options.device not in (None, "cpu", "cuda"):
        raise UsageError(
            f"--device {options.device}: with --ray, give cpu or cuda, or leave it out"
        )
    from captioning.inference.ray_cluster import RayCluster

    return RayCluster(options.ray, options.device)

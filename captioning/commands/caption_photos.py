"""`captioning caption`: captions for photos, folders of photos and lists of photos."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from captioning.commands.caption_outputs import (
    PictureOptions,
    Pictures,
    Table,
    TextFiles,
    TextOptions,
)
from captioning.commands.options import MaxMegapixels, ModelOptions, SearchOptions
from captioning.errors import InputError, PhotoError
from captioning.terminal import printable

if TYPE_CHECKING:
    from captioning.captioner import Caption, Captioner
    from captioning.search import Search

NOT_SURE = "not sure"
"""Printed in place of captions below --min-confidence."""

RUNNERS_UP = 3
"""How many alternatives a page shows for each word."""


@Parameter(name="*", group="What captions say")
@dataclass(frozen=True)
class WishOptions:
    """How many captions a photo gets, and words that they must or must not have."""

    captions: int | None = None
    """Write the best N captions of each photo, each in a line of its own; a beam search follows at
    least as many."""
    diverse: bool = False
    """Captions that differ: a beam search for each, penalised for words of earlier ones."""
    begin: str = ""
    """Begin each caption with these words."""
    avoid: tuple[str, ...] = ()
    """Never say this word or phrase; only whole words match, so dog allows dogs; repeatable."""
    must_say: tuple[str, ...] = ()
    """Say this word or phrase in each caption; repeatable."""

    def of(self, captioner: "Captioner", options: SearchOptions) -> "Search":
        """The search for such captions.

        Raises:
            InputError: the options do not go together.
        """
        from captioning.search import BeamSearch, DiverseBeamSearch, Sampling

        is_beam = not (options.greedy or options.sample)
        search = options.of(captioner)
        if self.begin or self.avoid or self.must_say:
            if self.diverse or not is_beam:
                raise InputError(
                    "--begin, --avoid and --must-say are for beam search; leave out --greedy, "
                    "--sample and --diverse"
                )
            search = captioner.constrained(
                self.begin, self.avoid, self.must_say, search, width=options.beam
            )
        if self.diverse and not (self.captions and is_beam):
            raise InputError(
                "--diverse is for several captions by beam search; give --captions N, and leave "
                "out --greedy and --sample"
            )
        if not self.captions:
            return search
        if options.greedy:
            raise InputError("--greedy finds one caption; leave out either it or --captions")
        if self.diverse:
            return search.replace(DiverseBeamSearch, groups=self.captions)
        if isinstance(search, Sampling):
            return search.replace(captions=self.captions)
        if not isinstance(search, BeamSearch):
            search = search.replace(BeamSearch, width=1)
        return search.replace(width=max(self.captions, search.config["width"]))


@Parameter(name="*", group=Group("Bulk captioning", help="More photos than a screen can show."))
@dataclass(frozen=True)
class BulkOptions:
    """Files of JSON lines, by this machine or a cluster."""

    out: Path | None = None
    """Write JSON lines to files in this folder; photos that are captioned there are skipped."""
    shard_size: int = 1000
    """Photos per file."""
    ray: str | None = None
    """Caption on the machines of a Ray cluster: auto for the one that this machine belongs to,
    HOST:PORT, or local for all GPUs of this machine; needs the extra ray."""


def caption(
    *photos: str,
    stdin: Annotated[bool, Parameter(name="-")] = False,
    listed: Annotated[Path | None, Parameter(name="--list")] = None,
    text: str | None = None,
    json: Annotated[bool, Parameter(alias="--jsonl")] = False,
    confidence: bool = False,
    min_confidence: float = 0.0,
    using: ModelOptions = ModelOptions(),
    max_megapixels: MaxMegapixels = 100.0,
    search: SearchOptions = SearchOptions(),
    wishes: WishOptions = WishOptions(),
    texts: TextOptions = TextOptions(),
    pictures: PictureOptions = PictureOptions(),
    bulk: BulkOptions = BulkOptions(),
) -> int:
    """Caption photos and folders of photos.

    A line has the photo and its caption. The exit code is 1 if a photo cannot be read; the others
    are captioned.

    Args:
        photos: Photos, folders of photos, patterns or shards.
        stdin: Read a list of photos from standard input, one path a line.
        listed: A file of further photos, one path a line.
        text: Read this caption instead of writing one: how probable each word is, and with --json
            or --html what the model would have said instead and where it looks.
        json: Print one line of JSON per caption.
        confidence: Print the chance that a caption is good before its photo; JSON and pages always
            have it.
        min_confidence: Print 'not sure' for captions below P.
    """
    from captioning.data.photos import find_photos
    from captioning.inference.shards import json_line
    from captioning.progress_bar import ProgressBar, say

    paths = [*photos, *(["-"] if stdin else [])]
    if not paths and listed is None:
        raise InputError("no photos; give photos, folders or --list FILE")
    if text is not None and wishes != WishOptions():
        raise InputError(
            "--text reads a caption instead of writing one; leave out --captions, --begin, --avoid "
            "and --must-say"
        )
    if bulk.out is not None:
        given = (text, confidence, min_confidence, wishes.captions, texts, pictures)
        if given != (None, False, 0.0, None, TextOptions(), PictureOptions()):
            raise InputError(
                "--out writes JSON lines with one caption per photo; leave out either it, or "
                "--captions, --text, --confidence and the options of texts and pictures"
            )
        return _write_shards(paths, listed, using, max_megapixels, search, wishes, bulk)
    if bulk != BulkOptions():
        raise InputError("--shard-size and --ray are for bulk captioning; give --out")
    found = list(find_photos(paths, listed))
    text_files = TextFiles(texts, found)
    outputs = (text_files, Table(texts.csv), Pictures(pictures, found, max_megapixels))
    found = [photo for photo in found if not text_files.skips(photo)]
    captioner = using.load(max_megapixels)
    if captioner.calibration is None and (confidence or min_confidence):
        raise InputError(
            "this model is not calibrated, so it has no confidence; see captioning calibrate --help"
        )
    maps = (pictures.maps or [captioner.default_map]) if pictures.folders else ()
    runners_up = RUNNERS_UP if pictures.html or text is not None else 0
    if text is None:
        most = None if pictures.html else wishes.captions or 1  # pages show all
        chosen = wishes.of(captioner, search)
        results = captioner.stream(found, chosen, maps, runners_up, most, using.batch_size)
    else:
        results = _readings(captioner, found, text, runners_up, maps)
    done = 0
    try:
        with ProgressBar("captioning", "photos", len(found), shown=len(found) > 1) as bar:
            for photo, best in zip(found, results, strict=True):
                bar.update()
                if isinstance(best, PhotoError):
                    say(f"captioning: {best}")
                    continue
                captions = [best, *best.others]
                asked = captions[: wishes.captions or 1]
                written = [texts.written(each, min_confidence) for each in asked]
                for output in outputs:
                    output.write(photo, captions, written)
                for each, line in zip(asked, written, strict=True):
                    if json:
                        shown = json_line(photo, each, texts.written(each))
                    elif text is not None:
                        scored = zip(each.words, each.probabilities, strict=True)
                        shown = printable(photo, " ".join(f"{word} {p:.2f}" for word, p in scored))
                    else:
                        sure = [f"{each.confidence:.2f}"] if confidence else []
                        shown = printable(*sure, photo, line or NOT_SURE)
                    say(shown, file=sys.stdout)
                done += 1
    except KeyboardInterrupt:
        remedy = "; go on by --skip-existing" if texts.are_written and not texts.overwrite else ""
        line = f"interrupted after {done:,} of {len(found):,} photos{remedy}"
        raise KeyboardInterrupt(line) from None
    for output in outputs:
        output.finish()
    return int(done < len(found))


def _readings(
    captioner: "Captioner", photos: Sequence[Path], text: str, runners_up: int, maps: Sequence[str]
) -> "Iterator[Caption | PhotoError]":
    """The model's reading of a caption of each photo, or why the photo cannot be read."""
    captioner.vocabulary.known_words(text)  # unknown words are told before any photo
    for photo in photos:
        try:
            yield captioner.read(photo, text, runners_up, maps)
        except PhotoError as error:
            yield error


def _write_shards(
    paths: Sequence[str],
    listed: Path | None,
    using: ModelOptions,
    max_megapixels: float,
    search: SearchOptions,
    wishes: WishOptions,
    bulk: BulkOptions,
) -> int:
    """Write files of JSON lines, resuming where an earlier call ended."""
    from captioning.files import made_folder
    from captioning.inference.bulk import PhotoList, caption_into_shards, settings
    from captioning.inference.ray_cluster import RayCluster
    from captioning.inference.shards import Shards

    assert bulk.out is not None
    if bulk.ray is not None and find_spec("ray") is None:
        raise InputError("--ray needs the extra ray; run pip install 'captioning[ray]'")
    cluster = None if bulk.ray is None else RayCluster(bulk.ray, using.device)
    photos = PhotoList(paths, listed)
    captioner = using.load(max_megapixels, device=None if cluster is None else "cpu")
    chosen = wishes.of(captioner, search)
    made_with = settings(using.paths, using.bf16, chosen, search.seed, bulk.shard_size, photos)
    shards = Shards(made_folder(bulk.out), bulk.shard_size, made_with)
    try:
        unreadable = caption_into_shards(
            captioner, chosen, photos, shards, using.batch_size, cluster
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    print(printable(bulk.out))
    return int(unreadable > 0)

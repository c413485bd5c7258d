"""`captioning caption`: captions for photos, folders of photos and lists of photos."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt

from captioning.commands.options import (
    MAY_BEGIN_WITH_DASH,
    Maps,
    MaxMegapixels,
    ModelOptions,
    SearchOptions,
    Share,
)
from captioning.errors import InputError, PhotoError, printable

if TYPE_CHECKING:
    from captioning.captioner import Caption, Captioner
    from captioning.commands.caption_outputs import CaptionText, Lines, Output
    from captioning.search import Search

STDOUT = Path("-")
RUNNERS_UP = 3  # the alternatives that a page shows for each word
NOT_CALIBRATED = (
    "the model was calibrated on captions by its own search; leave out the options that change it, "
    "or calibrate another file by them: captioning calibrate --beam 3, say"
)


@Parameter(name="*", group="What captions say")
@dataclass(frozen=True)
class CaptionOptions:
    """How many captions a photo gets, and words that they must or must not have."""

    captions: PositiveInt | None = None
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


@Parameter(name="*", group="Texts")
@dataclass(frozen=True)
class TextOptions:
    """The captions as text."""

    sentence: bool = False
    """Write each caption with a capital and a full stop."""
    prefix: Annotated[str, MAY_BEGIN_WITH_DASH] = ""
    """Write this text before each caption."""
    suffix: Annotated[str, MAY_BEGIN_WITH_DASH] = ""
    """Write this text after each caption."""
    txt: bool = False
    """Write a file NAME.txt beside each photo NAME.jpg."""
    txt_dir: Path | None = None
    """Write these files to this folder instead, which mirrors the folders of the photos."""
    skip_existing: bool = False
    """Leave out photos whose text file exists."""
    csv: Annotated[Path | None, MAY_BEGIN_WITH_DASH] = None
    """Write a table: file_name (relative to it), caption, confidence; - prints it instead of
    lines."""


@Parameter(name="*", group=Group("Pictures", help="Where the model looked for every word."))
@dataclass(frozen=True)
class PictureOptions:
    """Pictures and pages of where the model looked."""

    overlay: Path | None = None
    """Write a picture per photo to this folder."""
    gif: Path | None = None
    """Write an animation per photo to this folder, one frame per word."""
    html: Path | None = None
    """Write a page per photo to this folder, to see word by word where the model looked, in any
    browser, and index.html with all of them."""
    maps: Maps = ()

    @property
    def folders(self) -> dict[str, Path]:
        """The folders of pictures, animations and pages, by the suffix of their files."""
        folders = {".png": self.overlay, ".gif": self.gif, ".html": self.html}
        return {suffix: folder for suffix, folder in folders.items() if folder is not None}


@Parameter(name="*", group=Group("Bulk captioning", help="More photos than a screen can show."))
@dataclass(frozen=True)
class BulkOptions:
    """Files of JSON lines, by this machine or a cluster."""

    out: Path | None = None
    """Write JSON lines to files in this folder; photos that are captioned there are skipped."""
    shard_size: PositiveInt = 1000
    """Photos per file."""
    ray: str | None = None
    """Caption on the machines of a Ray cluster: auto for the one that this machine belongs to,
    HOST:PORT, or local for all GPUs of this machine; needs the extra ray."""


def caption(
    *photos: str,
    stdin: Annotated[bool, Parameter(name="-")] = False,
    listed: Annotated[Path | None, Parameter(name="--list")] = None,
    exclude: tuple[str, ...] = (),
    text: str | None = None,
    json: Annotated[bool, Parameter(alias="--jsonl")] = False,
    confidence: bool = False,
    min_confidence: Share = 0.0,
    overwrite: bool = False,
    model_options: ModelOptions = ModelOptions(),
    max_megapixels: MaxMegapixels = 100.0,
    search: SearchOptions = SearchOptions(),
    caption_options: CaptionOptions = CaptionOptions(),
    texts: TextOptions = TextOptions(),
    pictures: PictureOptions = PictureOptions(),
    bulk: BulkOptions = BulkOptions(),
) -> int:
    """Caption photos and folders of photos.

    A line has the photo and its caption. The exit code is 1 if a photo cannot be read; the others
    are captioned.

    Args:
        photos: Photos, folders of photos or patterns.
        stdin: Read a list of photos from standard input, one path a line.
        listed: A file of further photos, one path a line.
        exclude: Search folders without files and folders of this name, or pattern of names such
            as 'thumb*'; repeatable.
        text: Read this caption instead of writing one: how probable each word is, and with --json
            or --html what the model would have said instead and where it looks.
        json: Print one line of JSON per caption.
        confidence: Print the chance that a caption is good before its photo; JSON and pages always
            have it.
        min_confidence: Print 'not sure' for captions below P.
        overwrite: Replace files that exist, instead of refusing to.
    """
    given = [*photos, *(["-"] if stdin else [])]
    if not given and listed is None:
        raise InputError("no photos; give photos, folders or --list FILE")
    if text is not None and (caption_options != CaptionOptions() or confidence or min_confidence):
        raise InputError(
            "--text reads a caption; leave out --confidence, --min-confidence and the options of "
            "what captions say"
        )
    if bulk.out is not None:
        others = (
            text,
            confidence,
            min_confidence,
            overwrite,
            caption_options.captions,
            texts,
            pictures,
        )
        if others != (None, False, 0.0, False, None, TextOptions(), PictureOptions()):
            raise InputError(
                "--out adds JSON lines with one caption per photo; leave out --captions, --text, "
                "--confidence, --overwrite and the options of texts and pictures"
            )
        return _write_shards(
            given, listed, exclude, model_options, max_megapixels, search, caption_options, bulk
        )
    if bulk != BulkOptions():
        raise InputError("--shard-size and --ray are for bulk captioning; give --out")
    if str(texts.csv).startswith("-") and texts.csv != STDOUT:  # an option, not its value
        raise InputError(f"--csv {texts.csv}: give --csv the name of a file, or -")
    if json and texts.csv == STDOUT:
        raise InputError("--json and --csv - both print; give one of them, or a file to --csv")

    from captioning.commands.caption_outputs import CaptionedPhoto
    from captioning.data.images import find_photos
    from captioning.progress_bar import ProgressBar, say

    all_paths = list(find_photos(given, listed, exclude))
    paths, files = _files(all_paths, given, texts, pictures, overwrite)
    captioner = model_options.load(max_megapixels)
    if captioner.calibration is None and (confidence or min_confidence):
        raise InputError(
            "this model is not calibrated, so it has no confidence; see captioning calibrate --help"
        )
    maps = (pictures.maps or [captioner.default_map]) if pictures.folders else ()
    results: Iterator[Caption | PhotoError]
    if text is not None:
        results = _readings(captioner, paths, text, RUNNERS_UP, maps)
    else:
        changed_search = _search(captioner, search, caption_options)
        if captioner.calibration is not None and not captioner.has_confidence(changed_search):
            line = f"captions have no confidence: {NOT_CALIBRATED}"
            if confidence or min_confidence:
                raise InputError(line)
            if json or texts.csv or pictures.html:
                say(f"captioning: {line}")
        most = None if pictures.html else caption_options.captions or 1  # pages show all
        runners_up = RUNNERS_UP if pictures.html else 0
        results = captioner.stream(
            paths, changed_search, maps, runners_up, most, model_options.batch_size
        )
    outputs = [*files, _lines(json, texts, text, confidence, is_alone=not files)]
    done = 0
    with ProgressBar("captioning", "photos", len(paths), shown=len(paths) > 1) as bar:
        for photo, caption in zip(paths, results, strict=True):
            bar.update()
            if isinstance(caption, PhotoError):
                say(f"captioning: {caption}")
                continue
            captions = [caption, *caption.others][: caption_options.captions]
            captioned = CaptionedPhoto(
                photo,
                captions,
                _texts(captions[: caption_options.captions or 1], texts, min_confidence),
                int(max_megapixels * 1e6),
            )
            for output in outputs:
                output.add(captioned)
            done += 1
    for output in outputs:
        output.finish()
    return int(done < len(paths))


def _files(
    paths: list[Path],
    given: Sequence[str],
    texts: TextOptions,
    pictures: PictureOptions,
    overwrite: bool,
) -> "tuple[list[Path], list[Output]]":
    """The photos to caption, and what writes files of them.

    Raises:
        InputError: a file exists, and is neither to be kept nor overwritten.
    """
    from captioning.commands import caption_outputs as outputs
    from captioning.commands.gallery import INDEX
    from captioning.data.images import output_names

    files: list[Output] = []
    if texts.csv not in (None, STDOUT):
        files.append(outputs.Table(texts.csv))
    all_paths = paths
    if texts.txt or texts.txt_dir:
        names = output_names(paths, given, texts.txt_dir, ".txt")
        existing = {photo for photo, path in names.items() if os.path.lexists(path)}
        if texts.skip_existing and not overwrite:
            paths = [photo for photo in paths if photo not in existing]
        elif existing and not overwrite:
            path = next(path for photo, path in names.items() if photo in existing)
            raise InputError(f"{path}: exists; give --skip-existing to keep it, or --overwrite")
        files.append(outputs.TextFiles(names, existing))
    for suffix, folder in pictures.folders.items():
        taken = [INDEX] if suffix == ".html" else []
        names = output_names(all_paths, given, folder, suffix, taken)  # also of skipped ones
        names = {photo: names[photo] for photo in paths}
        is_page = suffix == ".html"
        files.append(outputs.Pages(names, folder) if is_page else outputs.Pictures(names))
    if not overwrite:
        outputs.check_new(files)
    return paths, files


def _lines(
    json: bool, texts: TextOptions, text: str | None, confidence: bool, is_alone: bool
) -> "Lines":
    """What is printed of each caption, by the options."""
    from captioning.commands import caption_outputs as outputs

    if json:
        return outputs.Lines(outputs.line_of_json, is_alone)
    if texts.csv == STDOUT:
        lines = outputs.Lines(outputs.line_of_table, is_alone)
        lines.show(outputs.csv_line(outputs.COLUMNS))
        return lines
    if text is not None:
        return outputs.Lines(outputs.line_of_words, is_alone)
    line = outputs.line_with_confidence if confidence else outputs.plain_line
    return outputs.Lines(line, is_alone)


def _texts(
    captions: "Sequence[Caption]", options: TextOptions, min_confidence: float
) -> "list[CaptionText]":
    """The captions as text; one that was cut off has no confidence, so it is not sure."""
    from captioning.commands.caption_outputs import CaptionText

    texts = []
    for caption in captions:
        words = caption.sentence if options.sentence else caption.text
        is_sure = not min_confidence or (caption.confidence or 0.0) >= min_confidence
        texts.append(CaptionText(caption, f"{options.prefix}{words}{options.suffix}", is_sure))
    return texts


def _search(
    captioner: "Captioner", options: SearchOptions, caption_options: CaptionOptions
) -> "Search":
    from captioning.search import BeamSearch, DiverseBeamSearch, Sampling

    is_beam = not (options.greedy or options.sample)
    search, count = options.of(captioner), caption_options.captions
    words = caption_options.begin, caption_options.avoid, caption_options.must_say
    if any(words):
        if caption_options.diverse or not is_beam:
            raise InputError(
                "--begin, --avoid and --must-say are for beam search; leave out --greedy, "
                "--sample and --diverse"
            )
        search = captioner.constrained(*words, search, width=options.beam)
    if caption_options.diverse and not (count and is_beam):
        raise InputError("--diverse is for several captions by beam search; give --captions N")
    if not count:
        return search
    if options.greedy:
        raise InputError("--greedy finds one caption; leave out --captions")
    if caption_options.diverse:
        return search.replace(DiverseBeamSearch, groups=count)
    if isinstance(search, Sampling):
        return search.replace(captions=count)
    if isinstance(search, BeamSearch):
        return search.replace(width=max(count, search.config["width"]))
    return search.replace(BeamSearch, width=count)


def _readings(
    captioner: "Captioner", photos: Sequence[Path], text: str, runners_up: int, maps: Sequence[str]
) -> "Iterator[Caption | PhotoError]":
    """The model's reading of a caption of each photo, or why the photo cannot be read."""
    for photo in photos:
        try:
            yield captioner.read(photo, text, runners_up, maps)
        except PhotoError as error:
            yield error


def _write_shards(
    paths: Sequence[str],
    listed: Path | None,
    exclude: Sequence[str],
    model_options: ModelOptions,
    max_megapixels: float,
    search: SearchOptions,
    caption_options: CaptionOptions,
    bulk: BulkOptions,
) -> int:
    from captioning.data.images import find_photos
    from captioning.files import made_folder
    from captioning.inference.bulk import Shards, caption_into_shards, settings

    assert bulk.out is not None
    if listed is not None and listed.exists() and not listed.is_file():
        raise InputError(f"{listed}: cannot be read more than once; write the list to a file")
    here = model_options if bulk.ray is None else replace(model_options, device="cpu")
    captioner = here.load(max_megapixels)
    chosen = _search(captioner, search, caption_options)
    given = (
        model_options.path,
        model_options.bf16,
        chosen,
        search.seed,
        bulk.shard_size,
        paths,
        listed,
    )
    shards = Shards(made_folder(bulk.out), bulk.shard_size, settings(*given))
    photos = partial(find_photos, paths, listed, exclude)
    try:
        unreadable = caption_into_shards(
            captioner,
            chosen,
            photos,
            shards,
            model_options.batch_size,
            bulk.ray,
            model_options.device,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    print(printable(bulk.out))
    return int(unreadable > 0)

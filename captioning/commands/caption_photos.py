"""`captioning caption`: captions for photos, folders of photos and lists of photos."""

import csv
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt

from captioning.commands import discard_output
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
    from captioning.search import Search

STDOUT = Path("-")
NOT_SURE = "not sure"  # printed in place of captions below --min-confidence
RUNNERS_UP = 3  # the alternatives that a page shows for each word
NOT_CALIBRATED = (
    "the model was calibrated on captions by its own search; leave out the options that change it, "
    "or calibrate another file by them: captioning calibrate --beam 3, say"
)


@Parameter(name="*", group="What captions say")
@dataclass(frozen=True)
class WishOptions:
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
    text: str | None = None,
    json: Annotated[bool, Parameter(alias="--jsonl")] = False,
    confidence: bool = False,
    min_confidence: Share = 0.0,
    overwrite: bool = False,
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
        photos: Photos, folders of photos or patterns.
        stdin: Read a list of photos from standard input, one path a line.
        listed: A file of further photos, one path a line.
        text: Read this caption instead of writing one: how probable each word is, and with --json
            or --html what the model would have said instead and where it looks.
        json: Print one line of JSON per caption.
        confidence: Print the chance that a caption is good before its photo; JSON and pages always
            have it.
        min_confidence: Print 'not sure' for captions below P.
        overwrite: Replace files that exist, instead of refusing to.
    """
    paths = [*photos, *(["-"] if stdin else [])]
    if not paths and listed is None:
        raise InputError("no photos; give photos, folders or --list FILE")
    if text is not None and (wishes != WishOptions() or confidence or min_confidence):
        raise InputError(
            "--text reads a caption; leave out --confidence, --min-confidence and the options of "
            "what captions say"
        )
    if bulk.out is not None:
        given = (text, confidence, min_confidence, overwrite, wishes.captions, texts, pictures)
        if given != (None, False, 0.0, False, None, TextOptions(), PictureOptions()):
            raise InputError(
                "--out adds JSON lines with one caption per photo; leave out --captions, --text, "
                "--confidence, --overwrite and the options of texts and pictures"
            )
        return _write_shards(paths, listed, using, max_megapixels, search, wishes, bulk)
    if bulk != BulkOptions():
        raise InputError("--shard-size and --ray are for bulk captioning; give --out")
    if str(texts.csv).startswith("-") and texts.csv != STDOUT:  # an option, not its value
        raise InputError(f"--csv {texts.csv}: give --csv the name of a file, or -")
    if json and texts.csv == STDOUT:
        raise InputError("--json and --csv - both print; give one of them, or a file to --csv")

    from captioning.captioner.caption import rounded
    from captioning.commands.gallery import INDEX, Gallery
    from captioning.data.images import find_photos, output_names, read_image
    from captioning.files import written_whole
    from captioning.inference.bulk import json_line
    from captioning.progress_bar import ProgressBar, say

    found = list(find_photos(paths, listed))
    folders = {".png": pictures.overlay, ".gif": pictures.gif, ".html": pictures.html}
    drawn = {
        suffix: output_names(found, paths, folder, suffix, [INDEX] if suffix == ".html" else [])
        for suffix, folder in folders.items()
        if folder is not None
    }
    text_files = {}
    if texts.txt or texts.txt_dir:
        text_files = output_names(found, paths, texts.txt_dir, ".txt")
    existing = {photo: path for photo, path in text_files.items() if os.path.lexists(path)}
    if texts.skip_existing and not overwrite:
        found = [photo for photo in found if photo not in existing]
    elif existing and not overwrite:
        [path, *_] = existing.values()
        raise InputError(f"{path}: exists; give --skip-existing to keep it, or --overwrite")
    table = None if texts.csv == STDOUT else texts.csv
    table_folder = None if table is None else os.path.realpath(table.parent)
    outputs = [names[photo] for names in drawn.values() for photo in found]
    if pictures.html is not None and len(found) > 1:
        outputs.append(pictures.html / INDEX)
    if table is not None:
        outputs.append(table)
    for path in outputs:
        if os.path.lexists(path) and not overwrite:
            raise InputError(f"{path}: exists; give another name, or --overwrite to replace it")
    captioner = using.load(max_megapixels)
    if captioner.calibration is None and (confidence or min_confidence):
        raise InputError(
            "this model is not calibrated, so it has no confidence; see captioning calibrate --help"
        )
    maps = (pictures.maps or [captioner.default_map]) if drawn else ()
    runners_up = RUNNERS_UP if pictures.html or text is not None else 0
    if text is None:
        most = None if pictures.html else wishes.captions or 1  # pages show all
        chosen = _search(captioner, search, wishes)
        if captioner.calibration is not None and not captioner.has_confidence(chosen):
            line = f"captions have no confidence: {NOT_CALIBRATED}"
            if confidence or min_confidence:
                raise InputError(line)
            if json or texts.csv or pictures.html:
                say(f"captioning: {line}")
        results = captioner.stream(found, chosen, maps, runners_up, most, using.batch_size)
    else:
        results = _readings(captioner, found, text, runners_up, maps)
    rows: list[tuple[object, ...]] = [("file_name", "caption", "confidence")]
    gallery = None if pictures.html is None else Gallery(pictures.html)
    done = 0

    def show(line: str) -> None:
        try:
            say(line, file=sys.stdout)
        except BrokenPipeError:
            if not (table or text_files or drawn):
                raise
            discard_output()  # files are written all the same

    if texts.csv == STDOUT:
        show(_csv_line(*rows))
    with ProgressBar("captioning", "photos", len(found), shown=len(found) > 1) as bar:
        for photo, best in zip(found, results, strict=True):
            bar.update()
            if isinstance(best, PhotoError):
                say(f"captioning: {best}")
                continue
            captions = [best, *best.others][: wishes.captions]
            lines = []
            for each in captions[: wishes.captions or 1]:
                said = each.sentence if texts.sentence else each.text
                said = f"{texts.prefix}{said}{texts.suffix}"
                # A caption that was cut off has no confidence.
                is_sure = not min_confidence or (each.confidence or 0.0) >= min_confidence
                lines.append((each, said, said if is_sure else ""))
            content = "".join(f"{written}\n" for _, _, written in lines if written)
            if photo in text_files and content:
                with written_whole(text_files[photo]) as temporary:
                    temporary.write_text(content, "utf-8", "backslashreplace")
            elif photo in existing:  # an earlier run's caption, which may be wrong
                text_files[photo].unlink(missing_ok=True)
            if drawn:
                image = read_image(photo, int(max_megapixels * 1e6))
                for suffix, names in drawn.items():
                    if gallery is not None and suffix == ".html":
                        gallery.add(photo, image, captions, names[photo])
                    else:
                        best.save(names[photo], image)
            for each, said, written in lines:
                sure = None if each.confidence is None else rounded(each.confidence)
                name = photo
                if table_folder is not None and not photo.is_absolute():
                    name = Path(os.path.relpath(photo, table_folder))  # where readers look
                rows.append((spreadsheet_text(str(name)), spreadsheet_text(written), sure))
                if json:
                    show(json_line(photo, each, said))
                elif texts.csv == STDOUT:
                    show(_csv_line(rows[-1]))
                elif text is not None:
                    scored = zip(each.words, each.probabilities, strict=True)
                    show(printable(photo, " ".join(f"{word} {p:.2f}" for word, p in scored)))
                else:
                    number = "none" if each.confidence is None else f"{each.confidence:.2f}"
                    chance = [number] if confidence else []
                    show(printable(*chance, photo, written or NOT_SURE))
            done += 1
    if table is not None:
        with (
            written_whole(table) as path,
            path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
        ):
            csv.writer(file).writerows(rows)
    if gallery is not None:
        gallery.finish()
    return int(done < len(found))


def spreadsheet_text(text: str) -> str:
    """A cell that spreadsheets show as text: a space comes before what would begin a formula.

    Readers of CSV files, such as ours, skip it (``skipinitialspace``).
    """
    return f" {text}" if text.startswith(("=", "+", "-", "@")) else text


def _csv_line(row: Sequence[object]) -> str:
    """A row of a table as a line to print."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return printable(line.getvalue())


def _search(captioner: "Captioner", options: SearchOptions, wishes: WishOptions) -> "Search":
    from captioning.search import BeamSearch, DiverseBeamSearch, Sampling

    is_beam = not (options.greedy or options.sample)
    search, count = options.of(captioner), wishes.captions
    words = wishes.begin, wishes.avoid, wishes.must_say
    if any(words):
        if wishes.diverse or not is_beam:
            raise InputError(
                "--begin, --avoid and --must-say are for beam search; leave out --greedy, "
                "--sample and --diverse"
            )
        search = captioner.constrained(*words, search, width=options.beam)
    if wishes.diverse and not (count and is_beam):
        raise InputError("--diverse is for several captions by beam search; give --captions N")
    if not count:
        return search
    if options.greedy:
        raise InputError("--greedy finds one caption; leave out --captions")
    if wishes.diverse:
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
    using: ModelOptions,
    max_megapixels: float,
    search: SearchOptions,
    wishes: WishOptions,
    bulk: BulkOptions,
) -> int:
    from captioning.data.images import find_photos
    from captioning.files import made_folder
    from captioning.inference.bulk import Shards, caption_into_shards, settings

    assert bulk.out is not None
    if listed is not None and listed.exists() and not listed.is_file():
        raise InputError(f"{listed}: cannot be read more than once; write the list to a file")
    here = using if bulk.ray is None else replace(using, device="cpu")
    captioner = here.load(max_megapixels)
    chosen = _search(captioner, search, wishes)
    given = using.path, using.bf16, chosen, search.seed, bulk.shard_size, paths, listed
    shards = Shards(made_folder(bulk.out), bulk.shard_size, settings(*given))
    photos = partial(find_photos, paths, listed)
    try:
        unreadable = caption_into_shards(
            captioner, chosen, photos, shards, using.batch_size, bulk.ray, using.device
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    print(printable(bulk.out))
    return int(unreadable > 0)

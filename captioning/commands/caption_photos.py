"""`captioning caption`: captions for photos, folders of photos and lists of photos."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from captioning.commands.caption_options import (
    STDOUT,
    BulkOptions,
    CaptionOptions,
    LineOptions,
    PictureOptions,
    TextOptions,
)
from captioning.commands.options import MaxMegapixels, ModelOptions, SearchOptions
from captioning.errors import InputError, PhotoError, printable
from captioning.progress_bar import ProgressBar, say

if TYPE_CHECKING:
    from captioning.captioner import Caption, Captioner
    from captioning.commands.caption_outputs import Output
    from captioning.commands.filled_copies import FilledCopy
    from captioning.search import Search

RUNNERS_UP = 3
"""The alternatives to each word on a page."""


@dataclass(frozen=True)
class PhotoSources:
    """Photos, folders and patterns, a list of further photos, and names to leave out of folders."""

    paths: Sequence[str]
    listed: Path | None
    exclude: Sequence[str]

    def photos(self) -> Iterator[Path]:
        from captioning.data.images import find_photos

        return find_photos(self.paths, self.listed, self.exclude)


def caption(
    *photos: str,
    stdin: Annotated[bool, Parameter(name="-")] = False,
    listed: Annotated[Path | None, Parameter(name="--list")] = None,
    exclude: tuple[str, ...] = (),
    text: str | None = None,
    line_options: LineOptions = LineOptions(),
    overwrite: bool = False,
    model_options: ModelOptions = ModelOptions(),
    max_megapixels: MaxMegapixels = 100.0,
    search_options: SearchOptions = SearchOptions(),
    caption_options: CaptionOptions = CaptionOptions(),
    text_options: TextOptions = TextOptions(),
    picture_options: PictureOptions = PictureOptions(),
    bulk_options: BulkOptions = BulkOptions(),
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
        overwrite: Replace files that exist, instead of refusing to.
    """
    sources = PhotoSources([*photos, *(["-"] if stdin else [])], listed, exclude)
    check_sources(sources, text_options)
    check_options(
        text, line_options, overwrite, caption_options, text_options, picture_options, bulk_options
    )
    if bulk_options.out is not None:
        return caption_in_bulk(
            sources, model_options, max_megapixels, search_options, caption_options, bulk_options
        )

    from captioning.commands.caption_outputs import file_outputs, line_output

    all_photos, mirrored_paths, copies = photos_to_caption(sources, text_options)
    paths, outputs = file_outputs(
        all_photos,
        mirrored_paths,
        text_options,
        picture_options,
        model_options.model,
        overwrite,
        copies,
    )
    captioner = model_options.load(max_megapixels)
    if text is None:
        results = searched_captions(
            captioner,
            paths,
            line_options=line_options,
            search_options=search_options,
            caption_options=caption_options,
            text_options=text_options,
            picture_options=picture_options,
            batch_size=model_options.batch_size,
        )
    else:
        map_names = picture_options.map_names(captioner.default_map)
        results = read_captions(captioner, paths, text, map_names)
    outputs.append(line_output(line_options, text_options, text is not None, not outputs))
    count = caption_options.captions
    failures = write_captions(
        paths, results, outputs, count, text_options, line_options, max_megapixels
    )
    return int(failures > 0)


def photos_to_caption(
    sources: PhotoSources, text_options: TextOptions
) -> tuple[list[Path], list[str], list["FilledCopy"]]:
    """Return the photos, the paths whose folders outputs mirror, and the copy to fill, if any."""
    if not text_options.fills_copy:
        return list(sources.photos()), [*sources.paths], []
    from captioning.commands.filled_copies import filled_copy

    copy = filled_copy(text_options)
    return copy.photos, [str(photo) for photo in copy.photos], [copy]


def check_sources(sources: PhotoSources, text_options: TextOptions) -> None:
    """Raise InputError if there are no photos, or photos beside those of a file to fill."""
    has_photos = bool(sources.paths) or sources.listed is not None
    if has_photos and text_options.fills_copy:
        raise InputError("--alt and --fill caption the photos of their file; leave out others")
    if not has_photos and not text_options.fills_copy:
        raise InputError("no photos; give photos, folders or --list FILE")


def check_options(
    text: str | None,
    line_options: LineOptions,
    overwrite: bool,
    caption_options: CaptionOptions,
    text_options: TextOptions,
    picture_options: PictureOptions,
    bulk_options: BulkOptions,
) -> None:
    """Raise InputError if options contradict each other."""
    asks_confidence = line_options.confidence or line_options.min_confidence > 0
    reads_text = text is not None
    if reads_text and (caption_options != CaptionOptions() or asks_confidence or text_options.xmp):
        raise InputError(
            "--text reads a caption; leave out --xmp, --confidence, --min-confidence and the "
            "options of what captions say"
        )
    if bulk_options.out is not None:
        has_files = text_options != TextOptions() or picture_options != PictureOptions()
        has_captions = caption_options.captions is not None
        if reads_text or asks_confidence or overwrite or has_captions or has_files:
            raise InputError(
                "--out adds JSON lines with one caption per photo; leave out --captions, --text, "
                "--confidence, --overwrite and the options of texts and pictures"
            )
    elif bulk_options != BulkOptions():
        raise InputError("--shard-size and --ray are for bulk captioning; give --out")
    csv = text_options.csv
    if str(csv).startswith("-") and csv != STDOUT:  # an option, not its value
        raise InputError(f"--csv {csv}: give --csv the name of a file, or -")
    if line_options.json and csv == STDOUT:
        raise InputError("--json and --csv - both print; give one of them, or a file to --csv")


def check_confidence(
    captioner: "Captioner", search: "Search", line_options: LineOptions, writes_confidence: bool
) -> None:
    """Refuse options that need confidences which captions by this search do not have.

    Where confidences would only be written along, a line says that they are missing.

    Raises:
        InputError: the options need confidences.
    """
    if captioner.has_confidence(search):
        return
    is_needed = line_options.confidence or line_options.min_confidence > 0
    if captioner.calibration is None:
        if is_needed:
            raise InputError(
                "this model is not calibrated, so it has no confidence; see captioning calibrate "
                "--help"
            )
        return
    line = (
        "captions have no confidence: the model was calibrated on captions by its own search; "
        "leave out the options that change it, or calibrate another file by them: captioning "
        "calibrate --beam 3, say"
    )
    if is_needed:
        raise InputError(line)
    if writes_confidence:
        say(f"captioning: {line}")


def caption_search(
    captioner: "Captioner", search_options: SearchOptions, caption_options: CaptionOptions
) -> "Search":
    """Return the search for as many captions as asked for, with the words that they need.

    Raises:
        InputError: the options are of different searches, or a word is unknown.
    """
    from captioning.search import BeamSearch, DiverseBeamSearch, Sampling

    is_beam = not (search_options.greedy or search_options.sample)
    search, count = search_options.search(captioner), caption_options.captions
    words = caption_options.begin, caption_options.avoid, caption_options.must_say
    if any(words):
        if caption_options.diverse or not is_beam:
            raise InputError(
                "--begin, --avoid and --must-say are for beam search; leave out --greedy, "
                "--sample and --diverse"
            )
        search = captioner.constrained(*words, search, width=search_options.beam)
    if caption_options.diverse and not (count and is_beam):
        raise InputError("--diverse is for several captions by beam search; give --captions N")
    if not count:
        return search
    if search_options.greedy:
        raise InputError("--greedy finds one caption; leave out --captions")
    if caption_options.diverse:
        return search.replace(DiverseBeamSearch, groups=count)
    if isinstance(search, Sampling):
        return search.replace(captions=count)
    if isinstance(search, BeamSearch):
        return search.replace(width=max(count, search.config["width"]))
    return search.replace(BeamSearch, width=count)


def searched_captions(
    captioner: "Captioner",
    photos: Sequence[Path],
    *,
    line_options: LineOptions,
    search_options: SearchOptions,
    caption_options: CaptionOptions,
    text_options: TextOptions,
    picture_options: PictureOptions,
    batch_size: int,
) -> "Iterator[Caption | PhotoError]":
    """Return an iterator of the captions of photos, by the search that the options ask for."""
    search = caption_search(captioner, search_options, caption_options)
    has_page = picture_options.html is not None
    has_texts = text_options.csv is not None or text_options.xmp
    check_confidence(captioner, search, line_options, has_page or line_options.json or has_texts)
    return captioner.stream(
        photos,
        search,
        picture_options.map_names(captioner.default_map),
        runners_up=RUNNERS_UP if has_page else 0,
        most=None if has_page else caption_options.captions or 1,  # a page has all captions
        batch_size=batch_size,
        photo_side=picture_options.photo_side,
    )


def read_captions(
    captioner: "Captioner", photos: Sequence[Path], text: str, map_names: Sequence[str]
) -> "Iterator[Caption | PhotoError]":
    """Yield the model's reading of a caption of each photo, or why the photo cannot be read."""
    for photo in photos:
        try:
            yield captioner.read(photo, text, RUNNERS_UP, map_names)
        except PhotoError as error:
            yield error


def write_captions(
    paths: Sequence[Path],
    results: "Iterator[Caption | PhotoError]",
    outputs: "Sequence[Output]",
    count: int | None,
    text_options: TextOptions,
    line_options: LineOptions,
    max_megapixels: float,
) -> int:
    """Write the captions of photos to all outputs, and return how many photos failed.

    Args:
        paths: the photos.
        results: the best caption of each photo, or why it cannot be read.
        outputs: what to write.
        count: captions per photo; None for one text, and all captions on a page.
        text_options: how a caption becomes text.
        line_options: the least confidence of a caption that is sure.
        max_megapixels: of a photo.
    """
    from captioning.commands.caption_outputs import CaptionedPhoto, caption_text

    unreadable = 0
    with ProgressBar("captioning", "photos", len(paths), visible=len(paths) > 1) as bar:
        for path, result in zip(paths, results, strict=True):
            bar.update()
            if isinstance(result, PhotoError):
                say(f"captioning: {result}")
                unreadable += 1
                continue
            captions = [result, *result.others]
            # Without --captions, texts are of the best caption and pages have all.
            page_captions = captions if count is None else captions[:count]
            text_captions = captions[:1] if count is None else captions[:count]
            texts = [
                caption_text(caption, text_options, line_options.min_confidence)
                for caption in text_captions
            ]
            photo = CaptionedPhoto(path, page_captions, texts, int(max_megapixels * 1e6))
            for output in outputs:
                output.add(photo)
    for output in outputs:
        output.finish()
    return unreadable + sum(output.failures for output in outputs)


def caption_in_bulk(
    sources: PhotoSources,
    model_options: ModelOptions,
    max_megapixels: float,
    search_options: SearchOptions,
    caption_options: CaptionOptions,
    bulk_options: BulkOptions,
) -> int:
    """Caption photos into the shards of a folder; return the exit code."""
    from captioning.files import made_folder
    from captioning.inference.bulk import Shards, caption_into_shards, manifest_settings

    assert bulk_options.out is not None
    listed = sources.listed
    if listed is not None and listed.exists() and not listed.is_file():
        raise InputError(f"{listed}: cannot be read more than once; write the list to a file")
    is_local = bulk_options.ray is None  # otherwise the cluster's machines compute
    captioner = (model_options if is_local else replace(model_options, device="cpu")).load(
        max_megapixels
    )
    search = caption_search(captioner, search_options, caption_options)
    settings = manifest_settings(
        model_options.path,
        model_options.bf16,
        search,
        search_options.seed,
        bulk_options.shard_size,
        sources.paths,
        listed,
    )
    try:
        unreadable = caption_into_shards(
            captioner,
            search,
            sources.photos,
            Shards(made_folder(bulk_options.out), bulk_options.shard_size, settings),
            model_options.batch_size,
            bulk_options.ray,
            model_options.device,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    print(printable(bulk_options.out))
    return int(unreadable > 0)

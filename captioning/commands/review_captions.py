"""`captioning review`: a second opinion on captions of photos."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from captioning.commands.caption_photos import RUNNERS_UP
from captioning.commands.options import (
    CaptionColumn,
    CaptionsFrom,
    Images,
    MaxMegapixels,
    ModelOptions,
    PhotoColumn,
    Share,
)
from captioning.errors import InputError, printable, printable_json
from captioning.progress_bar import say, stage

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.captioner.review import Review
    from captioning.data.records import Record
    from captioning.evaluation.reviewed_captions import ReviewedCaption

REVIEW_COLUMNS = ("file_name", "caption", "right", "belongs", "doubtful", "instead", "not judged")
"""The columns of a table of reviews."""

MAX_PAGE_CAPTIONS = 200
"""Captions of a page, unless --at-most says how many."""

PHOTO_SIDE = 640
"""Pixels of the longer side of a photo in a page."""


def review(
    captions: Path,
    /,
    *,
    of: Annotated[Path | None, Parameter(name="--photos")] = None,
    images: Images = None,
    caption_column: CaptionColumn = None,
    photo_column: PhotoColumn = None,
    captions_from: CaptionsFrom = None,
    doubt: Share = 0.5,
    wrong: Share = 0.5,
    at_most: PositiveInt | None = None,
    json: bool = False,
    csv: Path | None = None,
    html: Path | None = None,
    max_megapixels: MaxMegapixels = 100.0,
    model_options: ModelOptions = ModelOptions(),
) -> list[Any]:
    """Find captions, and words of them, that photos do not bear out.

    A line has the chance that a caption is right, its photo, the caption with [doubtful] words, and
    the words that cannot be judged because the model does not know them. The most doubtful captions
    come first.

    Args:
        captions: Captioned photos in any layout of `captioning check`, or a results file of
            `captioning score`.
        of: The data set with the photos of a results file; by default the file names them.
        doubt: Words with a smaller chance are doubtful.
        wrong: The share of the captions that you expect to be wrong, on which all chances depend.
        at_most: Show only the N most doubtful captions.
        json: Print one line of JSON per caption.
        csv: Write a table, too.
        html: Write a page to this file, to accept, correct or drop each caption in a browser and
            save what was decided.

    Returns:
        A `ReviewedCaption` of each caption shown, with photo, text and review.
    """
    from captioning.commands.caption_outputs import write_table
    from captioning.evaluation.reviewed_captions import review_captions

    records = _records(captions, of, images, caption_column, photo_column, captions_from)
    captioner = model_options.load(max_megapixels)
    reviewed = review_captions(captioner, records, doubt, wrong, model_options.batch_size)
    count = len(reviewed)
    reviewed = reviewed[:at_most]
    if csv is not None:
        write_table([REVIEW_COLUMNS, *map(_table_row, reviewed)], csv)
    if html is not None:
        shown = reviewed if at_most else reviewed[:MAX_PAGE_CAPTIONS]
        _write_page(captioner, shown, html, captions.resolve().name, count)
    line = review_json if json else review_line
    for caption in reviewed:
        print(line(caption))
    return reviewed


def _records(
    captions: Path,
    data_set: Path | None,
    images: Path | None,
    caption_column: str | None,
    photo_column: str | None,
    captions_from: CaptionsFrom,
) -> "list[Record]":
    """Read the photos and captions to review.

    Raises:
        InputError: there are none.
    """
    from captioning.data.readers import reader_for
    from captioning.data.references import image_finder, read_results

    source = data_set or captions
    reader = reader_for(
        source,
        images=images,
        caption_column=caption_column,
        photo_column=photo_column,
        captions_from=captions_from,
    )
    with stage("reading the captions"):
        content = reader.read()
    content.say_problems(*content.splits)
    records = [record for records in content.splits.values() for record in records]
    if data_set is None:
        return records
    by_id = {record.image_id: record for record in records}
    find = image_finder(by_id, {image_id: str(by_id[image_id].image) for image_id in by_id})
    results: list[Record] = []
    for image, text in read_results(captions, caption_column).items():
        image_id = find(image)
        if image_id is None:
            raise InputError(f"{captions}: no photo of image {image!r} in {data_set}")
        results.append(replace(by_id[image_id], captions=(text,)))
    return results


def marked_text(review: "Review") -> str:
    """Return the words of a caption, with the doubtful ones in brackets."""
    words = list(review.words)
    for place in review.doubtful:
        words[place] = f"[{words[place]}]"
    return " ".join(words)


def review_line(caption: "ReviewedCaption") -> str:
    """Format a caption with its chance of being right, its photo and its doubtful words."""
    review = caption.review
    cells = [f"{review.right:.2f}", caption.photo, marked_text(review)]
    if review.unknown:
        cells.append(f"not judged: {', '.join(review.unknown)}")
    return printable(*cells)


def review_json(caption: "ReviewedCaption") -> str:
    """Format a caption and its review as a line of JSON."""
    names = {"image": str(caption.photo), "caption": caption.text}
    return printable_json(names | caption.review.as_json())


def _table_row(caption: "ReviewedCaption") -> tuple[object, ...]:
    """Return the cells of a caption under `REVIEW_COLUMNS`."""
    from captioning.captioner.calibration import rounded
    from captioning.commands.caption_outputs import spreadsheet_text

    review = caption.review
    return (
        spreadsheet_text(str(caption.photo)),
        spreadsheet_text(caption.text),
        rounded(review.right),
        rounded(review.belongs),
        " ".join(review.words[place] for place in review.doubtful),
        " ".join(map("/".join, review.alternatives)),
        " ".join(review.unknown),
    )


def _write_page(
    captioner: "Captioner", captions: "Sequence[ReviewedCaption]", path: Path, name: str, count: int
) -> None:
    """Write a page of captions, with the model's maps of their words.

    Args:
        captioner: the model.
        captions: those of the page.
        path: of the page.
        name: of the file or folder of captions.
        count: number of captions that were reviewed.
    """
    from captioning.data.images import DecodedPhoto
    from captioning.errors import raise_errors
    from captioning.viewing import viewer
    from captioning.viewing.html_document import save_html
    from captioning.viewing.review_page import CaptionToReview, review_html

    read_captions = captioner.stream(
        [caption.photo for caption in captions],
        maps=[captioner.default_map],
        runners_up=RUNNERS_UP,
        texts=[caption.text for caption in captions],
        photo_side=PHOTO_SIDE,
    )
    shown = []
    for reviewed, caption in zip(captions, raise_errors(read_captions), strict=True):
        view = caption.reviewed(reviewed.review).view()
        assert isinstance(caption.photo, DecodedPhoto)
        data = viewer.data(caption.photo, [view], long_side=PHOTO_SIDE)
        shown.append(CaptionToReview(str(reviewed.photo), reviewed.text, data))
    summary = f"{count:,} captions, the most doubtful first."
    if len(shown) < count:
        summary = f"The {len(shown):,} most doubtful of {count:,} captions."
    save_html(review_html(f"Review of {name}", summary, shown), path)
    say(printable(path), file=sys.stderr)

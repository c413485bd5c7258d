"""One page of captions under review, whose reader accepts, corrects or drops each."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from captioning.viewing import viewer
from captioning.viewing.html_document import html_document

STYLES = (viewer.STYLE, "viewing/review_page.css")
SCRIPTS = (viewer.SCRIPT, "viewing/review_page.js")


class CaptionToReview(NamedTuple):
    """A caption of the page.

    Attributes:
        photo: the photo's name, as the page's table names it.
        text: the caption.
        view: the result of `viewer.data`, whose caption has a review.
    """

    photo: str
    text: str
    view: Mapping[str, Any]


def review_html(title: str, summary: str, captions: Sequence[CaptionToReview]) -> str:
    """Return the page as one document."""
    return html_document(
        "viewing/review_page.html", title, STYLES, SCRIPTS, summary=summary, captions=captions
    )

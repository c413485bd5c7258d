"""The page of a review, in a browser: decisions are kept, and saved as a table."""

import csv
from pathlib import Path
from typing import Any

import pytest

from captioning.commands import main
from captioning.data.readers import reader_for
from tests.commands.test_review import captions  # noqa: F401
from tests.conftest import opened_page

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_decisions_survive_a_reload_and_are_saved_as_a_table(
    browser: Any,
    captions: Path,  # noqa: F811
    tmp_path: Path,
    scheme: str,
    width: int,
) -> None:
    page_file = tmp_path / "review.html"
    given = ["review", str(captions), "--model", "shapes", "--device", "cpu", "--at-most", "3"]
    assert main([*given, "--html", str(page_file)]) == 0
    viewport = {"width": width, "height": 800}
    address = page_file.as_uri()
    with opened_page(browser, address, viewport=viewport, color_scheme=scheme) as page:
        first, second, third = page.locator(".example").all()
        assert first.locator(".doubtful").count() > 0
        first.get_by_text("Accept").click()
        second.get_by_text("Correct").click()
        second.get_by_label("Corrected caption").fill("a new caption")
        third.get_by_text("Drop").click()
        page.reload()
        assert page.locator(".tools output").inner_text() == "3 of 3 decided"
        with page.expect_download() as download:
            page.get_by_role("button", name="Save decisions").click()
        rows = list(csv.DictReader(Path(download.value.path()).read_text("utf-8-sig").splitlines()))
        assert [row["decision"] for row in rows] == ["accept", "correct", "drop"]
        decided = captions.with_name("decisions.csv")  # as a browser that saves it there
        download.value.save_as(decided)
        assert main(["check", str(decided)]) == 0
        splits = reader_for(decided).read().splits.values()
        kept = {text for records in splits for record in records for text in record.captions}
        before = rows[0]["before"]
        assert kept == {before, "a new caption"}
        assert [row["caption"] for row in rows] == [before, "a new caption", ""]
        page.get_by_label("Hide what is decided").check()
        assert not page.locator(".example").first.is_visible()


def test_what_is_decided_hides_only_after_its_correction(
    browser: Any,
    captions: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    page_file = tmp_path / "review.html"
    given = ["review", str(captions), "--model", "shapes", "--device", "cpu", "--at-most", "3"]
    assert main([*given, "--html", str(page_file)]) == 0
    with opened_page(browser, page_file.as_uri()) as page:
        first, second, third = page.locator(".example").all()
        page.get_by_label("Hide what is decided").check()
        first.get_by_text("Correct").click()
        first.get_by_label("Corrected caption").fill("a new caption")
        second.get_by_text("Accept").click()
        assert not first.is_visible()
        assert not second.is_visible()
        third.get_by_text("Correct").click()
        third.get_by_label("Corrected caption").press("Enter")
        assert not third.is_visible()
        page.get_by_label("Hide what is decided").uncheck()
        assert first.get_by_label("Corrected caption").input_value() == "a new caption"

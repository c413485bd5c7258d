"""`captioning caption --alt` and `--fill`: captions in copies of pages and tables."""

import codecs
import csv
import re
from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.commands import main
from captioning.data.readers import CaptionTable
from tests.conftest import draw_photos

Capture = pytest.CaptureFixture[str]

PAGE = """<!DOCTYPE html>\r
<title>caf\xe9 <img src=a.jpg></title><!-- <img src="a.jpg"> --><script>"<img src='a.jpg'>"</script>
<svg><title/></svg><IMG{| } SRC="a.jpg"
  class=x><img src='more/b%20c.jpg?v=2#top' data-alt="" {ALT=''|} title="alt=''">
<img {alt|} src=a.jpg /><img{| } srcset=" a.jpg, more/b%20c.jpg 2x">
<img src="caf\xc3\xa9.jpg" {alt=" "|}><img src=a.jpg alt="People's own.">
"""
"""A page in Latin-1, in which {before|space} is where an alt text comes."""

LEFT_OUT = """<img src="https://a.example/a.jpg"><img src="//a.example/a.jpg" alt="">
<img src="data:image/png;base64,AAAA"><img src="/a.jpg"><img srcset="gone.jpg 2x"><img>
<img src="a.jpg" alt="" role="presentation"><img src="a.jpg" aria-hidden="true">
<img src="a.jpg" aria-label="a label">
<img src="{long_name}">
""".format(long_name="x" * 5000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw_photos(tmp_path, "a.jpg", "more/b c.jpg", "caf\xe9.jpg")
    return tmp_path


def test_a_page_gets_alt_texts_and_stays_byte_for_byte_else(
    folder: Path, checkpoint: Path, model: list[str], capsys: Capture
) -> None:
    page, place = folder / "page.html", re.compile(r"\{(.*?)\|( ?)\}")
    page.write_bytes((place.sub(r"\1", PAGE) + LEFT_OUT).encode("latin-1"))
    assert main(["caption", "--alt", str(page), *model, "--suffix", ' "\xe9" & <b>']) == 0
    captioner, alts = load(checkpoint), []
    for name in ("a.jpg", "more/b c.jpg", "a.jpg", "a.jpg", "caf\xe9.jpg"):
        alts.append(f'alt="{captioner(folder / name).text} &quot;&#233;&quot; &amp; &lt;b&gt;"')
    expected = place.sub(lambda match: match[2] + alts.pop(0), PAGE) + LEFT_OUT
    assert (folder / "page.captioned.html").read_bytes() == expected.encode("latin-1")
    lines = capsys.readouterr().err.splitlines()
    reasons = [line.partition("left out: ")[2] for line in lines[:-2]]
    assert reasons == [
        *("https://a.example/a.jpg: no relative path; addresses are not fetched",),
        *("//a.example/a.jpg: no relative path; addresses are not fetched",),
        *("data:image/png;base64,AAAA: no relative path; addresses are not fetched",),
        *("/a.jpg: no relative path; addresses are not fetched", "gone.jpg: no such file"),
        *("<img>: no such file", "a.jpg: marked as decorative", "a.jpg: marked as decorative"),
        *("a.jpg: described by aria-label", f"{'x' * 100}: no such file"),
    ]
    meaning = "an empty alt, which says that a picture is decorative; check these"
    assert lines[-2].endswith(f"page.captioned.html: 3 of the filled had {meaning}")
    assert lines[-1].endswith("page.captioned.html: 5 filled, 0 not sure, 10 left out")


def test_a_base_address_makes_pictures_those_of_another_place(
    folder: Path, capsys: Capture
) -> None:
    page = folder / "page.html"
    page.write_text('<base href="https://a.example/"><img src="a.jpg">')
    assert main(["caption", "--alt", str(page)]) == 1
    [reason, error] = capsys.readouterr().err.splitlines()
    assert "a.jpg: no relative path; addresses are not fetched" in reason
    assert "page.html: no photo without a caption in it" in error


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
    ids=["utf-8", "utf-8 with a mark", "little endian", "big endian"],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_table_is_filled_and_stays_byte_for_byte_else(
    folder: Path,
    checkpoint: Path,
    model: list[str],
    mark: bytes,
    encoding: str,
    line_end: str,
    capsys: Capture,
) -> None:
    lines = [
        '"Nr"; photo ;Text',
        '1; a.jpg;"own; words"',
        " =1+1;a.jpg;mine",
        ' "a ""note""; of',
        'two lines";more/b c.jpg; ',
        "",
        ";;",
        "3;gone.jpg;",
        "4; ;",
        "4;too;many;values",
        '5"; "caf\xe9.jpg"; ""',
    ]
    table = folder / "table.csv"
    table.write_bytes(mark + line_end.join(lines).encode(encoding))
    command = ["caption", "--fill", str(table), *model, "--prefix", "x;\u200f"]
    assert main(command) == 1  # one photo is missing
    captioner = load(checkpoint)
    texts = [f"x;\u200f{captioner(folder / name).text}" for name in ("more/b c.jpg", "caf\xe9.jpg")]
    lines[4] = f'two lines";more/b c.jpg;"{texts[0]}"'
    lines[10] = f'5"; "caf\xe9.jpg";"{texts[1]}"'
    copy = folder / "table.captioned.csv"
    assert copy.read_bytes() == mark + line_end.join(lines).encode(encoding)
    errors = capsys.readouterr().err
    assert "table.csv: left out: line 9: no name in the column photo" in errors
    assert "table.csv: left out: line 10: another number of values" in errors
    assert "gone.jpg: no such file" in errors
    assert errors.endswith("table.captioned.csv: 2 filled, 0 not sure, 3 left out\n")
    assert main(command) == 1
    assert "table.captioned.csv: exists" in capsys.readouterr().err


@pytest.mark.parametrize("separator", ["\t", "|", ","])
def test_tables_of_every_separator_are_read_again(
    folder: Path, model: list[str], separator: str
) -> None:
    table = folder / "table.csv"
    rows = ["image", "caption"], ["a.jpg", ""], ["more/b c.jpg", 'a "big" dog']
    table.write_text("".join(f"{separator.join(row)}\n" for row in rows))
    assert main(["caption", "--fill", str(table), *model]) == 0
    records = CaptionTable(folder / "table.captioned.csv", val_fraction=0.0).read().records("train")
    assert [record.image.name for record in records] == ["a.jpg", "b c.jpg"]
    assert records[1].captions == ('a "big" dog',)


def test_of_two_columns_of_one_name_the_first_is_filled_if_both_are_empty(
    folder: Path, model: list[str]
) -> None:
    table = folder / "table.csv"
    table.write_text("image,caption,caption\na.jpg,,a dog\nmore/b c.jpg,,\n")
    assert main(["caption", "--fill", str(table), *model]) == 0
    with (folder / "table.captioned.csv").open(newline="") as file:
        _, first, second = csv.reader(file)
    assert first == ["a.jpg", "", "a dog"]
    assert second[1]
    assert not second[2]


def test_captions_that_the_model_is_not_sure_of_stay_empty(
    folder: Path, calibrated: list[str], capsys: Capture
) -> None:
    sources = {"--alt": "page.html", "--fill": "table.tsv"}
    (folder / "page.html").write_text('<img src="a.jpg" alt="">')
    (folder / "table.tsv").write_text("image\tcaption\na.jpg\t\n")
    for option, name in sources.items():
        command = ["caption", option, str(folder / name), *calibrated, "--min-confidence", "0.3"]
        assert main(command) == 0
        copy = (folder / name).with_stem(f"{Path(name).stem}.captioned")
        assert copy.read_bytes() == (folder / name).read_bytes()
        assert "0 filled, 1 not sure, 0 left out" in capsys.readouterr().err

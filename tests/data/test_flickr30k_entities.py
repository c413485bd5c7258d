"""The reader of Flickr30k Entities, on small files in its format."""

import re
from pathlib import Path

import pytest

from captioning.data.readers import Flickr30kEntities, reader_for
from captioning.data.records import ImageObject, Phrase
from captioning.data.tokens import tokenize
from tests.conftest import draw_photos
from tests.data.conftest import write

SENTENCES = """\
[/EN#1/people Two young guys] with [/EN#3/bodyparts/other shaggy , wild hair] \
look at [/EN#5/scene the yard] .
[/EN#1/people The guys] don't see [/EN#0/notvisual what] is there .
"""
BOXES = """<annotation>
  <filename>36979.jpg</filename>
  <size><width>60</width><height>40</height><depth>3</depth></size>
  <object><name>1</name><bndbox><xmin>1</xmin><ymin>11</ymin><xmax>20</xmax><ymax>40</ymax></bndbox></object>
  <object><name>1</name><name>3</name>
    <bndbox><xmin>31</xmin><ymin>5</ymin><xmax>50</xmax><ymax>10</ymax></bndbox></object>
  <object><name>5</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>"""


@pytest.fixture
def entities(tmp_path: Path) -> Path:
    """One image of the validation split."""
    write(tmp_path / "val.txt", "36979\n36979\n")
    write(tmp_path / "Sentences/36979.txt", SENTENCES)
    write(tmp_path / "Annotations/36979.xml", BOXES)
    draw_photos(tmp_path, "flickr30k-images/36979.jpg")
    return tmp_path


def test_phrases_are_places_of_words_and_have_their_boxes(entities: Path) -> None:
    reader = reader_for(entities)
    assert isinstance(reader, Flickr30kEntities)
    data_set = reader.read()
    assert list(data_set.splits) == ["val"]
    [record] = data_set.records("val")
    assert record.image_id == "36979"
    assert record.captions == (
        "Two young guys with shaggy , wild hair look at the yard .",
        "The guys don't see what is there .",
    )
    assert record.phrases == (
        (Phrase("1", 0, 3), Phrase("3", 4, 7), Phrase("5", 9, 11)),
        (Phrase("1", 0, 2), Phrase("0", 5, 6)),
    )
    assert tokenize(record.captions[0])[4:7] == ["shaggy", "wild", "hair"]
    assert record.objects == (
        ImageObject("1", (0.0, 10.0, 20.0, 30.0)),
        ImageObject("1", (30.0, 4.0, 20.0, 6.0)),
        ImageObject("3", (30.0, 4.0, 20.0, 6.0)),
    )
    [plain] = reader_for(entities, objects=False).read().records("val")
    assert plain.objects == ()


@pytest.mark.parametrize(
    ("file", "content", "error"),
    [
        ("Sentences/36979.txt", "[/EN#1/people A man", "no sentence with phrases such as"),
        ("Annotations/36979.xml", "<annotation>", "no element found"),
        ("Annotations/36979.xml", BOXES.replace(">20<", ">0<"), r"the edges \[1, 11, 0, 40\]"),
    ],
)
def test_a_photo_whose_files_are_malformed_is_left_out(
    entities: Path, file: str, content: str, error: str
) -> None:
    whole = {"Sentences/2.txt": SENTENCES, "Annotations/2.xml": BOXES, "val.txt": "36979\n2\n"}
    for name, text in (whole | {file: content}).items():
        write(entities / name, text)
    data_set = reader_for(entities).read()
    assert [record.image_id for record in data_set.records("val")] == ["2"]
    [problem] = data_set.problems
    assert problem.split == "val"
    assert re.search(f"36979.*{error}", problem.name)

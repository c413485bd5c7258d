from pathlib import Path

import pytest

from captioning.data.judgements import read_judgements
from captioning.errors import InputError

TOKENS = """a.jpg#0\tA dog runs .
a.jpg#1\tA brown dog .
b.jpg#0\tA cat .
b.jpg#1\tA cat sits .
c.jpg.1#0\tA bird .
"""
EXPERT = """a.jpg\tb.jpg#1\t1\t1\t2
a.jpg\ta.jpg#0\t4\t4\t4
c.jpg\ta.jpg#1\t1\t1\t1
"""
CROWD = """a.jpg\tb.jpg#1\t0.333333333333333\t1\t2
a.jpg\ta.jpg#0\t1\t3\t0
b.jpg\ta.jpg#1\t0\t0\t4
"""
TABLE = """image,caption,rating
a.jpg,A dog .,3
a.jpg,"A cat, sitting",1.5
a.jpg,A dog .,4
b.jpg,A cat .,5
"""


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "Flickr8k.token.txt").write_text(TOKENS)
    return tmp_path / "Flickr8k.token.txt"


def written(folder: Path, text: str) -> Path:
    (folder / "ratings").write_text(text)
    return folder / "ratings"


def test_captions_of_the_image_itself_are_left_out_of_the_experts(tokens: Path) -> None:
    found = read_judgements(written(tokens.parent, EXPERT), tokens)
    assert found.kind == "Flickr8k-Expert"
    assert [(pair.image, pair.caption, pair.ratings) for pair in found.pairs] == [
        ("a.jpg", "A cat sits .", (1, 1, 2)),
        ("c.jpg", "A brown dog .", (1, 1, 1)),
    ]
    assert found.references == {"a.jpg": ("A dog runs .", "A brown dog ."), "c.jpg": ("A bird .",)}
    assert (found.left_out, found.not_references) == (1, 0)


def test_captions_that_the_crowd_rated_are_no_references_of_their_image(tokens: Path) -> None:
    found = read_judgements(written(tokens.parent, CROWD), tokens)
    assert found.kind == "Flickr8k-CF"
    assert [pair.ratings for pair in found.pairs] == [(0.333333333333333,), (1,), (0,)]
    assert found.references["a.jpg"] == ("A brown dog .",)
    assert (found.left_out, found.not_references) == (0, 1)


def test_rows_of_the_same_caption_are_ratings_of_one_pair(tokens: Path) -> None:
    found = read_judgements(written(tokens.parent, TABLE), tokens)
    assert found.kind == "CSV"
    assert [pair.ratings for pair in found.pairs] == [(3, 4), (1.5,), (5,)]
    assert found.references["b.jpg"] == ("A cat sits .",)


def test_the_folder_of_the_captions_may_be_given(tokens: Path) -> None:
    ratings = written(tokens.parent, EXPERT)
    assert read_judgements(ratings, tokens.parent) == read_judgements(ratings, tokens)


def test_ids_of_coco_are_the_images_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text(
        '{"annotations": [{"image_id": 7, "caption": "a dog"}, {"image_id": 8, "caption": "x"}]}'
    )
    ratings = written(tmp_path, "image,caption,rating\n7,a cat,1\n8,a dog,2\n")
    found = read_judgements(ratings, tmp_path / "captions.json")
    assert found.references == {"7": ("a dog",), "8": ("x",)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no column 'image'; its first line must be image,caption,rating"),
        ("image,caption,rating\n", "ratings: no ratings; add ratings"),
        ("image,caption,rating\na.jpg,x,good\n", "line 2: the rating is 'good'; give a number"),
        ("image,caption,rating\na.jpg,x,nan\n", "line 2: the rating is 'nan'; give a number"),
        ("image,caption,rating\na.jpg,x,1\na.jpg,y,1\n", "all ratings are equal"),
        ("image,caption,rating\nz.jpg,x,1\n", "image 'z.jpg' has no caption in"),
        ("image,caption,rating\nc,A bird .,1\n", "all captions of image 'c' are rated themselves"),
        ("a.jpg\tb.jpg#1\t1\t2\n", r"line 1 is 'a.jpg\tb.jpg#1\t1\t2'; expected image"),
        ("a.jpg\tb.jpg#1\t1\t2\t5\n", "line 1 has the ratings '1, 2, 5'; expected image"),
        ("a.jpg\tb.jpg#1\t0.5\t1\t2\n", "line 1 has the ratings '0.5, 1, 2'; expected image"),
        ("a.jpg\tb.jpg#1\t0\t0\t0\n", "line 1 has the ratings '0, 0, 0'; expected image"),
        (EXPERT + CROWD, "line 4 has the ratings '0.333333333333333, 1, 2'; expected image"),
        ("a.jpg\tb.jpg#9\t1\t1\t2\n", "line 1: no caption 'b.jpg#9' in"),
        ("a.jpg\ta.jpg#0\t1\t1\t2\n", "ratings: no ratings; add ratings of captions that are not"),
        ("a.jpg\tb.jpg#0\t1\t1\t2\n" * 33_334, "ratings: more than 100,000 ratings"),
    ],
)
def test_bad_ratings_are_one_line(tokens: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as error:
        read_judgements(written(tokens.parent, text), tokens)
    assert expected in str(error.value)
    assert len(str(error.value)) < 500


def test_flickr8k_s_ratings_need_its_captions(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text(
        '{"annotations": [{"image_id": "a.jpg", "caption": "a dog"}]}'
    )
    with pytest.raises(InputError, match=r"give Flickr8k\.token\.txt as the references"):
        read_judgements(written(tmp_path, EXPERT), tmp_path / "captions.json")

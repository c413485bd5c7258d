import json
from pathlib import Path

import pytest

from captioning.data.readers import Coco
from captioning.errors import InputError
from captioning.evaluation.grounding import Lexicon, categories


def mentions_in(sentence: str, lexicon: Lexicon | None = None) -> list[tuple[str, str]]:
    mentions = (lexicon or Lexicon.coco()).mentions(sentence.split())
    return [(mention.name, mention.category) for mention in mentions]


def test_the_words_are_of_cocos_own_80_categories(shared_data: Path) -> None:
    file = shared_data / "coco-mini/annotations/instances_val2017.json"
    categories = {entry["name"] for entry in json.loads(file.read_text())["categories"]}
    assert Lexicon.coco().categories == categories


def test_every_category_is_named_by_its_own_name_except_orange() -> None:
    coco = Lexicon.coco()
    unnamed = [name for name in coco.categories if mentions_in(name, coco) != [(name, name)]]
    assert unnamed == ["orange"]


def test_categories_that_are_not_cocos_go_by_their_own_names(shapes_data: Path) -> None:
    lexicon = Lexicon.of(categories(Coco(shapes_data).read().records("train")))
    mentions = mentions_in("two crosses above a small orange star and a dog", lexicon)
    assert mentions == [("crosses", "cross"), ("star", "star")]


def test_a_file_of_words_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text('{"categories": {"tool": ["hammer", "pair of pliers"]}}')
    mentions = mentions_in("hammers and a pair of pliers", Lexicon.load(path))
    assert mentions == [("hammers", "tool"), ("pair of pliers", "tool")]


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"categories": {"tool": "hammer"}}', '{"categories": {"tool": [1]}}']
)
def test_a_malformed_file_of_words_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text(content)
    with pytest.raises(InputError, match="words"):
        Lexicon.load(path)

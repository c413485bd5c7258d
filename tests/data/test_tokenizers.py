import math
import pickle
from pathlib import Path
from typing import get_args

import pytest

from captioning.data.data_module import CaptionData
from captioning.data.readers import Coco
from captioning.data.tokens import TokenizerName, tokenize, tokenizer
from captioning.data.vocabulary import BOS, EOS, SPECIAL, Vocabulary
from captioning.evaluation.report import Report

NAMES = get_args(TokenizerName)
CAPTIONS = (
    "A man's dog doesn't run, on the \"beach\".",
    "Two x-ray (machines) [or {3}] at 10:30 for $5 😀 :-) #sunset (555) 123-4567 `quoted'",
    "<unk> <pad> <b>bold</b> &amp; http://a.b/c ... ?! --",
    "Café naïve — it’s 日本",  # noqa: RUF001
    "",
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ptb", "a man 's dog does n't run on the x-ray beach"),
        ("treebank", "a man 's dog does n't run on the x-ray beach"),
        ("wordpunct", "a man s dog doesn t run on the x ray beach"),
        ("tweet", "a man's dog doesn't run on the x-ray beach"),
    ],
)
def test_each_tokenizer_cuts_in_its_own_way(name: TokenizerName, words: str) -> None:
    caption = 'A man’s dog doesn\'t run, on the (x-ray) "BEACH"!'  # noqa: RUF001
    kept = [word for word in tokenizer(name)(caption) if word not in ("-lrb-", "-rrb-")]
    assert kept == words.split()


def test_the_first_tokenizer_is_that_of_the_scores() -> None:
    assert tokenizer("ptb") is tokenize


@pytest.mark.parametrize("name", NAMES)
def test_words_are_in_lower_case_and_come_back_from_a_line_of_text(name: TokenizerName) -> None:
    for caption in CAPTIONS:
        words = tokenizer(name)(caption)
        assert " ".join(words).split() == words
        assert [word.lower() for word in words] == words


@pytest.mark.parametrize("name", NAMES)
def test_a_vocabulary_knows_all_words_of_its_tokenizer_and_no_special_ones(
    name: TokenizerName,
) -> None:
    vocabulary = Vocabulary.build(CAPTIONS, name=name)
    assert not set(SPECIAL) & set(vocabulary.words)
    ids = vocabulary.encode(CAPTIONS[0])
    assert (ids[0], ids[-1]) == (BOS, EOS)
    assert list(vocabulary.decode(ids)) == tokenizer(name)(CAPTIONS[0])


def test_a_worker_gets_the_tokenizer_along_with_the_vocabulary() -> None:
    vocabulary = Vocabulary.build(CAPTIONS, name="tweet")
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy.encode("doesn't") == vocabulary.encode("doesn't") == vocabulary.ids(["doesn't"])


def test_the_data_of_a_training_name_the_tokenizer(shapes_data: Path) -> None:
    for name in NAMES:
        data = CaptionData(Coco(shapes_data), min_count=1, tokenizer=name)
        assert data.vocabulary.tokenizer == name
        assert "circle" in data.vocabulary.words or "square" in data.vocabulary.words


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("テーブルの上に、猫が3匹。", "テ ー ブ ル の 上 に 猫 が 3 匹"),
        ("一只黑狗 iPhone手机・T恤", "一 只 黑 狗 iphone 手 机 t 恤"),
        ("หมาวิ่งบนน้ำ", "ห ม า วิ่ ง บ น น้ ำ"),
        ("a dog's हिन्दी café", "a dog s हिन्दी café"),
    ],
)
def test_characters_are_words_of_scripts_without_spaces_alone(caption: str, words: str) -> None:
    assert tokenizer("characters")(caption) == words.split()


def test_a_caption_of_characters_is_written_without_spaces() -> None:
    for caption in ("テーブルの上に猫が3匹いる", "iphone手机和t恤", "หมาวิ่งบนน้ำ", "two dogs"):
        vocabulary = Vocabulary.build([caption], name="characters")
        assert vocabulary.text(vocabulary.encode(caption)) == caption


def test_scores_of_characters_compare_characters() -> None:
    captions, references = {0: "黑狗在跑"}, {0: ["一只黑狗在跑"]}
    scores = Report.of(captions, references, tokenizer="characters").corpus
    assert scores["BLEU-4"] == pytest.approx(math.exp(1 - 6 / 4))  # the brevity penalty alone
    assert Report.of(captions, references).corpus["BLEU-1"] < 1e-6

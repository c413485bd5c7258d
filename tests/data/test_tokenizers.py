import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer
from captioning.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from captioning.errors import InputError
from captioning.evaluation.report import Report


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


# A tokenizer, a caption, its words, and the caption that they give again.
CAPTIONS = """
    ptb | A man's dog isn't up. | a man 's dog is n't up | a man's dog isn't up
    characters | テーブルの上に、猫が3匹。 | テ ー ブ ル の 上 に 猫 が 3 匹 | テーブルの上に猫が3匹
    characters | 一只黑狗 iPhone手机・T恤 | 一 只 黑 狗 iphone 手 机 t 恤 | 一只黑狗iphone手机t恤
    characters | หมาวิ่งบนน้ำ | ห ม า วิ่ ง บ น น้ ำ | หมาวิ่งบนน้ำ
    characters | a dog's हिन्दी café | a dog s हिन्दी café | a dog s हिन्दी café
    japanese | 机の上、iPhone caseが3台。 | 机 の 上 iphone case が 3 台 | 机の上iphone caseが3台
    chinese | 小女孩看3.5米、iPhone case。 | 小女孩 看 3.5 米 iphone case | 小女孩看3.5米iphone case
    thai | หมา 3 ตัวดู iPhone case ช้า ๆ | หมา 3 ตัว ดู iphone case ช้า ๆ | หมา 3 ตัวดู iphone case ช้าๆ
""".strip().split("\n")


@pytest.mark.parametrize("line", CAPTIONS, ids=lambda line: line.split()[0])
def test_captions_are_split_and_come_back(line: str) -> None:
    name: Any
    name, caption, words, back = line.strip().split(" | ")
    vocabulary = Vocabulary.build([caption], name=name)
    assert tokenizer(name)(caption) == words.split()
    assert vocabulary.text(vocabulary.encode(caption)) == back


WORDS = st.lists(
    st.sampled_from("nell sull erba acqua м яч сім می خواهد o brien".split()),  # noqa: SIM905
    min_size=1,
    max_size=8,
)
SEAMS = st.dictionaries(st.integers(0, 120), st.sampled_from("'-\u200c"), max_size=40)


@given(st.lists(WORDS, min_size=1, max_size=6), SEAMS)
def test_words_of_any_language_come_back_as_people_join_them(
    lists: list[list[str]], seams: dict[int, str]
) -> None:
    """Each pair of words is always joined by the same characters."""
    captions = [
        words[0]
        + "".join(f"{seams.get(sum(map(ord, a + b)) % 120, ' ')}{b}" for a, b in pairwise(words))
        for words in lists
    ]
    vocabulary = Vocabulary.build(captions, name="wordpunct")
    assert [vocabulary.text(vocabulary.encode(caption)) for caption in captions] == captions


def test_a_word_that_is_always_joined_is_joined_to_new_ones() -> None:
    captions = ["un cane sull'erba", "sull'acqua un'onda", "un gatto dell'onda"]
    vocabulary = Vocabulary.build(captions)
    assert vocabulary.text(vocabulary.ids("un gatto sull onda".split())) == "un gatto sull'onda"  # noqa: SIM905
    # That onda follows an apostrophe is due to sull and to un.
    assert vocabulary.text(vocabulary.ids(["gatto", "onda"])) == "gatto onda"
    dutch = Vocabulary.build(["een hond loopt 's avonds", "een kat slaapt 's nachts"])
    assert dutch.text(dutch.encode("een hond slaapt 's avonds")) == "een hond slaapt 's avonds"
    english = Vocabulary.build(["a man 's dog is n't up"])  # as in Flickr8k
    assert english.text(english.encode("the man's dog isn't up")) == "<unk> man's dog isn't up"


@pytest.mark.parametrize("name", ["characters", "chinese"])
def test_scores_compare_what_the_tokenizer_splits(name: TokenizerName) -> None:
    captions, references = {0: "黑狗在跑步机上"}, {0: ["一只黑狗在跑步机上"]}
    scores = Report.of(captions, references, tokenizer=name).corpus
    ours, theirs = (len(tokenizer(name)(text)) for text in (captions[0], references[0][0]))
    assert scores["BLEU-4"] == pytest.approx(math.exp(1 - theirs / ours))  # the brevity penalty
    assert Report.of(captions, references).corpus["BLEU-1"] < 1e-6


def test_a_caption_comes_back_with_unk_for_an_unknown_word() -> None:
    vocabulary = Vocabulary.build(["A red dog runs."])
    ids = vocabulary.encode("A red cat runs.")
    assert (ids[0], ids[3], ids[-1]) == (BOS, UNK, EOS)
    assert vocabulary.decode(ids) == ("a", "red", "<unk>", "runs")


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("vine", "did you mean vines?"),
        ("bleu", "did you mean blue?"),
        ("astronaut", "use other words"),
        ("brook", "use other words"),
    ],
)
def test_words_that_are_merely_spelt_alike_are_not_suggested(word: str, remedy: str) -> None:
    vocabulary = Vocabulary(["blue", "book", "strong", "vines", "waterfront"])
    with pytest.raises(InputError, match=rf"'{word}'; {remedy}".replace("?", r"\?")):
        vocabulary.known_words(f"blue {word}")
    with pytest.raises(InputError, match=r"did you mean blue, river or stream\?"):
        vocabulary.known_words("bleu brook", [["green"], ["river", "stream"]])


def test_known_words_come_first_and_stay() -> None:
    captions = ["a dog", "a dog", "a cat"]
    found = Vocabulary.build(captions, min_count=2, first_words=("horse", "a"))
    assert found.words == ("horse", "a", "dog")
    assert found.frequency_ranks == [0, 0, 0, 0, 1, 2, 2]  # dog is the second most frequent word
    assert Vocabulary.build(captions).ranks == {}


def test_brackets_are_no_words_to_write() -> None:
    vocabulary = Vocabulary.build(["a dog (brown) runs", "a {cat} [sits]"])
    assert set(vocabulary.words) == {"a", "dog", "brown", "runs", "cat", "sits"}
    assert vocabulary.decode(vocabulary.encode("a (dog)")) == ("a", "<unk>", "dog", "<unk>")


def test_words_are_spelt_as_people_write_them_inside_sentences() -> None:
    captions = [
        "Ein Hund springt. Hunde bellen: Der Hund",
        "der Hund von O’Neil sieht TV (in Graz)",  # noqa: RUF001
        "ein hund im TV, das Auto und der Hund; Doch in graz?",
    ]
    vocabulary = Vocabulary.build(captions)
    ids = [index for caption in captions for index in vocabulary.encode(caption)[1:-1]]
    assert " ".join(vocabulary.spelt(ids)) == (
        "ein Hund springt hunde bellen der Hund der Hund von O'Neil sieht TV <unk> in graz <unk> "
        "ein Hund im TV das Auto und der Hund Doch in graz"
    )
    assert vocabulary.text(ids).islower()  # what is scored
    with pytest.raises(InputError, match="'Katze' is not a spelling of 'hund'"):
        Vocabulary(["hund"], spellings={"hund": "Katze"})


def test_words_that_people_repeat_may_be_repeated() -> None:
    captions = ["a tennis ball on a tennis court", "a tennis ball and a tennis net", "a dog, a dog"]
    vocabulary = Vocabulary.build([*captions, *["a man on a man"] * 2, *["man"] * 50, "men on men"])
    assert vocabulary.repeatable == {"a", "tennis"}  # dog once, man 2 in 56
    kept = {vocabulary.words[index - 4] for index in vocabulary.unrepeatable_ids if index != PAD}
    assert kept == set(vocabulary.words) - {"a", "tennis"}
    assert not any(Vocabulary(vocabulary.words).unrepeatable_ids)


def test_words_that_people_say_twice_in_a_row_may_follow_themselves() -> None:
    vocabulary = Vocabulary.build(["a very very old house in a street", "a man, a man"])
    assert vocabulary.immediate_repeats == {"very"}
    words = {vocabulary.words[index - 4] for index in vocabulary.nonadjacent_ids if index != PAD}
    assert words == set(vocabulary.words) - {"very"}
    assert not any(Vocabulary(vocabulary.words).nonadjacent_ids)

"""The tokenizer of the COCO caption evaluation, Stanford's in Java, gives the same tokens."""

import json
import random
import shutil
from pathlib import Path

import pytest

from captioning.data.tokens import tokens

pytestmark = pytest.mark.integration  # starts Java

# What the rules are about, and what captions hold beside words.
WORDS = """
    a the man A dog cannot gonna Mr. mrs. Dr. St. Ave. U.S. u.s. p.m. etc. vs. No. no. Jan. B. x.
    1st 22 10:30 9am 3.5 1,000 1/2 $5 US$5 5% #1 #dog @home AT&T R&B rock'n'roll o'clock y'all 'em
    T-shirt x-ray 12-year-old catch-22 don't Can't it's I'd dogs' 80's '80s and/or w/ w/o foo.jpg
    http://a.com/b me@foo.com C++ <b> & &amp; / * ** = + ~ ^ | \\ % @ # jack-o'-lantern
    café naïve 日本 рус ½ £5 €5 © ™ 5° ☀ ★ ❤️ 😀 👍🏽 éà ×
""".split()  # noqa: RUF001, SIM905
MARKS = """. .. ... , ; : ! ? !! ?! ' " - -- --- ----- ( ) [ ] { } :) :( – — …""".split()  # noqa: RUF001, SIM905
BEFORE = ["", "", "", "", '"', "'", "(", "[", "-", "--", "#", "$", "*", "“"]
AFTER = ["", "", "", "", ".", ",", "!", "?", "...", "..", ";", ":", '"', "'", ")", "]", "'s", "--"]

# Each caption with Stanford's tokens and ours; tokens.py explains the differences.
DIFFERENCES = [
    ("a \u2019sup", ["a", "'s", "up"], ["a", "sup"]),
    ("A\u2019man", ["a\u2019man"], ["a'man"]),
    ("a \u201c\u2018dog", ["a", "```", "dog"], ["a", "dog"]),
    ("<unk>", ["<unk>"], ["<", "unk", ">"]),
    ("(555) 123-4567", ["-lrb-555-rrb-\xa0123-4567"], ["-lrb-", "555", "-rrb-", "123-4567"]),
    ("555 123 4567", ["555\xa0123\xa04567"], ["555", "123", "4567"]),
    ("\ua7ae \u2f00", [], ["\u026a"]),
    ("c'est don'T", ["c'est", "do", "n't"], ["c", "est", "don", "t"]),
]


def stanford(captions: list[str]) -> list[list[str]]:
    """The tokens of every caption, of a single run of the COCO evaluation's tokenizer.

    A dash parts the captions, since that tokenizer looks beyond a caption's end.
    """
    if shutil.which("java") is None:
        pytest.skip("the COCO evaluation's tokenizer needs Java")
    tokenizer = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer").PTBTokenizer()
    parted = [text for caption in captions for text in (caption, "-")]
    found = tokenizer.tokenize({n: [{"caption": text}] for n, text in enumerate(parted)})
    return [list(filter(None, found[n][0].split(" "))) for n in range(0, len(parted), 2)]


def differing(captions: list[str]) -> list[tuple[str, list[str], list[str]]]:
    """The captions of which Stanford's tokens and ours are not the same, with both."""
    pairs = zip(captions, stanford(captions), map(tokens, captions), strict=True)
    return [(caption, theirs, ours) for caption, theirs, ours in pairs if theirs != ours]


def made_up_captions(count: int) -> list[str]:
    """Empty, of one word, very long, and as nobody would write them, of odd words and marks."""
    rng = random.Random(0)
    captions = ["", " ", "dog", "a dog " * 2000]
    while len(captions) < count:
        words = rng.choices(WORDS + MARKS, k=rng.randint(1, 12))
        captions.append(
            " ".join(rng.choice(BEFORE) + word + rng.choice(AFTER) for word in words)
            if rng.random() < 0.5
            else " ".join(words)
        )
    return captions


def test_all_captions_of_flickr8k_and_coco_have_the_same_tokens(shared_data: Path) -> None:
    lines = (shared_data / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8").split("\n")
    captions = [line.split("\t")[1] for line in lines if line]
    for path in sorted((shared_data / "coco-mini/annotations").glob("captions_*.json")):
        annotations = json.loads(path.read_text(encoding="utf-8"))["annotations"]
        captions += [annotation["caption"] for annotation in annotations]
    assert differing(captions) == []


def test_made_up_captions_have_the_same_tokens() -> None:
    assert differing(made_up_captions(5000)) == []


def test_the_differences_are_the_documented_ones() -> None:
    assert differing([caption for caption, _, _ in DIFFERENCES]) == DIFFERENCES

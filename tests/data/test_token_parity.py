"""The tokenizer of the COCO caption evaluation, Stanford's in Java, gives the same tokens."""

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from unicodedata import category, name

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

BETWEEN = [*(" " * 12), *".,!?:;-'\"()/&_।、。۔،؟‐«„・", "1", "२", "٣", "a", "Bc"]  # noqa: RUF001
MONGOLIAN = "\u1885\u1886"  # accents to Python and letters to Java

# Line breaks, no-break spaces, which are spaces within tokens, soft hyphens, and typographic
# quotes, of which two are a word.
NO_CAPTION = MONGOLIAN + "\x85\u2028\u2029\xa0\xad\x91\x92\x93\x94\xab\xbb‘’‛“”‹›"  # noqa: RUF001

# Each caption with Stanford's tokens and ours; tokens.py explains the differences.
DIFFERENCES = [
    ("a \u2019sup", ["a", "'s", "up"], ["a", "sup"]),
    ("A\u2019man", ["a\u2019man"], ["a'man"]),
    ("a \u201c\u2018dog", ["a", "```", "dog"], ["a", "dog"]),
    ("<unk>", ["<unk>"], ["<", "unk", ">"]),
    ("(555) 123-4567", ["-lrb-555-rrb-\xa0123-4567"], ["-lrb-", "555", "-rrb-", "123-4567"]),
    ("555 123 4567", ["555\xa0123\xa04567"], ["555", "123", "4567"]),
    ("don'T", ["do", "n't"], ["don", "t"]),
    ("1\u1885", ["1\u1885"], ["1", "\u1885"]),
]

# A caption of each of 33 languages, with capitals, marks and numbers where they have them.
LANGUAGES = """
    Un chien noir court sur la plage ; c'est l'été, et qu'il fait « chaud » aujourd'hui !
    Ein großer Hund läuft über die Straße – „schnell“, 3,5 km/h.
    ¿Dónde está el perro? ¡En el jardín, señor Núñez!
    Il cane corre sull'erba; un'altra persona è all'aperto.
    O cão está na água d'água com 2 crianças.
    De baby's spelen in zo'n grote tuin, 's avonds.
    En pojke åker skridskor på isen, 20 °C kallt.
    Poika hyppää järveen, äiti katselee.
    Egy kutya fut a mezőn, a fiú pedig nézi őt.
    Pies biegnie po łące, a chłopiec się śmieje.
    Žlutý kůň skáče přes příkop.
    Kırmızı bir İstanbul'un sokağında köpek koşuyor.
    Bola o'yin o'ynayapti, qo'y yonida.
    Một con chó đang chạy trên bãi biển.
    Anak-anak bermain bola di lapangan.
    Рыжая собака бежит по пляжу, а мальчик — ёж.
    П'ять дітей грають у м'яч біля об'єкта.
    Куче тича по плажа, 5-годишно момче гледа.
    Ένας ΣΚΎΛΟΣ τρέχει στην παραλία· γιατί;
    Շունը վազում է ծովափին։ Ո՞ւր։
    ძაღლი გარბის სანაპიროზე.
    כלב רץ על החוף; ה"ילד" צוחק, ז׳בוטינסקי.
    كلبٌ يجري على الشاطئ، هل ترى الولد؟ ١٢٫٥
    سگی روی ساحل می‌دود؛ ۲ پسر.
    ایک کتا ساحل پر دوڑ رہا ہے۔
    एक काला कुत्ता समुद्र-तट पर दौड़ रहा है। २ लड़के
    একটি কুকুর সৈকতে দৌড়াচ্ছে। ৩টি
    ஒரு நாய் கடற்கரையில் ஓடுகிறது.
    એક કૂતરો દરિયાકિનારે દોડે છે.
    หมาวิ่งบนชายหาด เด็กชาย 2 คน
    テーブルの上に、猫がいる。「かわいい」ネコ・イヌ
    一只黑狗在沙滩上奔跑，男孩（5岁）在笑。ㄇㄠ ㄍㄡˇ
    검은 개가 해변에서 달리고 있다. 5살 소년
""".strip().split("\n")  # noqa: RUF001


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


def made_up_captions(count: int = 5000) -> list[str]:
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


def assigned(categories: str) -> list[str]:
    """The characters of the Basic Multilingual Plane, beyond ASCII, of these categories."""
    every = (chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x10000)))
    return [c for c in every if category(c)[0] in categories and category(c) != "Cn"]


def made_up_scripts(count: int = 3000) -> list[str]:
    """Words of any letters, accents and digits of one script, with marks and Latin letters."""
    rng = random.Random(0)
    scripts = defaultdict(list)
    for c in assigned("LMN"):
        if c not in MONGOLIAN:
            scripts[name(c).split()[0]].append(c)
    captions = []
    for _ in range(count):
        letters = rng.choice(list(scripts.values()))
        words = ("".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(6))
        captions.append("".join(word + rng.choice(BETWEEN) for word in words))
    return captions


def every_character() -> list[str]:
    return [f"a{c}b 1{c}2 {c} {c}{c}" for c in assigned("CLMNPSZ") if c not in NO_CAPTION]


def test_all_captions_of_flickr8k_and_coco_have_the_same_tokens(shared_data: Path) -> None:
    lines = (shared_data / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8").split("\n")
    captions = [line.split("\t")[1] for line in lines if line]
    for path in sorted((shared_data / "coco-mini/annotations").glob("captions_*.json")):
        annotations = json.loads(path.read_text(encoding="utf-8"))["annotations"]
        captions += [annotation["caption"] for annotation in annotations]
    assert differing(captions) == []


@pytest.mark.parametrize(
    "captions", [made_up_captions, made_up_scripts, every_character, lambda: LANGUAGES]
)
def test_made_up_captions_have_the_same_tokens(captions: Callable[[], list[str]]) -> None:
    """Every character is what it is in Java, too."""
    assert differing(captions()) == []


def test_the_differences_are_the_documented_ones() -> None:
    assert differing([caption for caption, _, _ in DIFFERENCES]) == DIFFERENCES

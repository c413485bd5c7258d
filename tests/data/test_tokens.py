"""What each rule of the tokenizer does, as the Stanford tokenizer was seen to do it."""

import pytest

from captioning.data.tokens import is_english, tokenize, tokens

PUNCTUATED = [
    *("a dog .", "a dog.", "a, dog!", "a dog?", "a: dog;", "a - dog"),
    *("a -- dog", "a dog...", "a dog..", "a dog . . .", "-a dog-", "'a dog'"),
    *('"a dog"', "``a'' dog", "\u201ca\u201d dog", "\u2018a\u2019 dog", "a\u2014dog\u2026"),
]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man's T-shirt doesn't fit", "a man 's t-shirt does n't fit"),
        # punctuation is dropped, also where nothing else is left
        *((caption, "a dog") for caption in PUNCTUATED),
        *((caption, "") for caption in ("", "  ", ".", "...", "“”", "\U0001f600")),
        # brackets are words
        ("(a) [b] {c}", "-lrb- a -rrb- -lsb- b -rsb- -lcb- c -rcb-"),
        ("dog(s)", "dog -lrb- s -rrb-"),
        ("-lrb- a -RRB-", "-lrb- a -rrb-"),
        # invisible characters split words
        ("\ta  dog\nruns\u00a0fast ", "a dog runs fast"),
        ("a\rdog\u2028runs", "a dog runs"),
        ("a\U0001f600dog\u200bruns", "a dog runs"),
        ("a\u00addog", "adog"),
        # contractions are two words
        ("cannot Gonna gotta lemme", "can not gon na got ta lem me"),
        ("cannot-do cannots", "cannot-do cannots"),
        ("'tis 'Twas", "'t is 't was"),
        ("it's I'm they've he'd we'll", "it 's i 'm they 've he 'd we 'll"),
        ("can't won't shouldn't've", "ca n't wo n't should n't 've"),
        ("CAN'T SHE'S A'LL", "ca n't she 's a 'll"),
        ("dogs' mother-in-law's", "dogs mother-in-law 's"),
        ("the dog\u2019s ball", "the dog 's ball"),
        # an apostrophe within a word stays where english has one
        ("o'clock ma'am d'Arc O'Neil hawai'i", "o'clock ma'am d'arc o'neil hawai'i"),
        ("rock'n'roll rock 'n' roll", "rock 'n' roll rock 'n' roll"),
        ("y'all 'em 'til the '80s '55", "y' all 'em 'til the '80s '55"),
        ("'slide 6'2 a'b jack-o'-lantern", "slide 6 2 a b jack-o lantern"),
        # a full stop stays with abbreviations and within words
        ("runs. The dog", "runs the dog"),
        ("runs.The dog", "runs.the dog"),
        ("tea.. tea...cup", "tea tea cup"),
        ("Mr. and mrs. St.", "mr. and mrs. st."),
        ("in Mass. by mass.", "in mass. by mass"),
        ("no. 5 and fig.3", "no. 5 and fig. 3"),
        ("oh no. he", "oh no he"),
        ("D.C. U.S.-based r.v. Ph.D. J.R.R. a.k.a.", "d.c. u.s.-based r.v. ph.d. j.r.r. a.k.a."),
        ("J. Smith", "j. smith"),
        ("vitamin C. The dog", "vitamin c the dog"),
        ("dog.jpg dog!cat", "dog.jpg dog!cat"),
        # hyphens slashes and signs
        ("black-and-white x-ray -like", "black-and-white x-ray like"),
        ("a--b c-", "a b c"),
        ("and/or w/o a/b/c/d dog / cat", "and/or w/o a/b/c / d dog / cat"),
        ("AT&T at&t R&B rock&roll", "at&t at & t r&b rock & roll"),
        ("a=b a+b a*b a|b C++ C#", "a = b a + b a * b a | b c++ c#"),
        ("#5 #foo & @home 5 @ 6", "# 5 #foo & @home 5 @ 6"),
        # numbers and money
        ("3.5 .5 5. 1,000 -5 5+5", "3.5 .5 5 1,000 -5 5 +5"),
        ("1/2 1-1/2 1 1/2 1\u00bd 10/12/2009", "1/2 1-1/2 1 1/2 1 1/2 10/12/2009"),
        ("10:30am 9am 5th 1980s 3D 3.5-inch", "10:30 am 9am 5th 1980s 3d 3.5-inch"),
        ("5% $5.50 US$5 \u00a35 5\u20ac 25\u00a2", "5 % $ 5.50 us$ 5 # 5 5 $ 25 cents"),
        # markup addresses and smileys
        ("<b>a</b> a < b <unk>", "<b> a </b> a < b < unk >"),
        ("a &amp; b &quot;c&quot; &lt;", "a & b c <"),
        ("www.a.com http://a.com/b. me@a.com", "www.a.com http://a.com/b me@a.com"),
        (":) :-( ;P ^_^ a:dog", ":-rrb- :--lrb- ;p ^_^ a dog"),
        # letters of all languages are letters
        ("Caf\u00e9 nai\u0308ve \u65e5\u672c", "caf\u00e9 nai\u0308ve \u65e5\u672c"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928\u094d\u0926\u0940"),
        ("\u2605\u2605a\u2122 5\u00b0C m\u00b2", "\u2605 \u2605 a \u2122 5 \u00b0 c m \u00b2"),
        ("\u2764\ufe0f", "\u2764"),
        ("テーブルの上に猫がいる。", "テーブルの上に猫がいる 。"),
        ("ㄇㄠ ㄍㄡ", "ㄇㄠ ㄍㄡ"),
        ("பூனை உள்ளது", "பூனை உள்ளது"),
        ("બિલાડી ખુરશી, १,२३४ ३/४", "બિલાડી ખુરશી १,२३४ ३/४"),
        ("हिन्दी-उर्दू é-è", "हिन्दी उर्दू é-è"),
        ("m\u00b2\u00b3 \u0967\U0001d7cf", "m \u00b2\u00b3 \u0967"),
        ("c'est d's 3.5-inch white,black-haired", "c'est d 's 3.5-inch white,black-haired"),
    ],
)
def test_what_each_rule_splits(caption: str, words: str) -> None:
    assert tokenize(caption) == words.split()


@pytest.mark.parametrize(
    ("caption", "cut"),
    [
        ("22 3/4 miles", ["22\xa03/4", "miles"]),
        ("22\xa03/4 miles", ["22\xa03/4", "miles"]),
        ("22\t3/4", ["22", "3/4"]),
        ("22, 3/4", ["22", "3/4"]),
        ("<b  c> d", ["<b\xa0\xa0c>", "d"]),
    ],
)
def test_spaces_within_a_token_are_no_break_spaces(caption: str, cut: list[str]) -> None:
    assert tokens(caption) == cut
    assert tokenize(caption) == [word for token in cut for word in token.split()]


def words_in(text: str) -> list[str]:
    return [word for caption in text.splitlines() for word in tokenize(caption)]


@pytest.mark.parametrize(
    "captions",
    [
        "A black dog runs along the beach with a ball in its mouth.\nTwo men sit at a table.",
        "a photo of a dog\na photo of a red car",
        "a large circle is to the left of a small red square\nthere is a star above it",
        "this bird has a yellow belly and a black crown\nmany green trees are near a pond",
    ],
)
def test_english_captions_are_told_by_function_words(captions: str) -> None:
    assert is_english(words_in(captions))


@pytest.mark.parametrize(
    "captions",
    [
        "Ein Hund läuft links neben einem Mann in den Park.\nEin Mädchen lehnt an einem Baum.",
        "een hond rent over het strand met een bal in zijn bek\nde kat ligt links op de bank",
        "en hund løper over stranden med en ball\nto menn er på vei inn i en by",
        "un chien court à gauche de la voiture\nun homme a un chapeau sur la tête",
        "um cão corre no campo\nas crianças estão à esquerda, no jardim do palácio",
        "egy férfi a ház előtt ül\na kutya a füvön fut balra egy labda után",
        "koira on pöydän vasemmalla puolella\nmies on pyörällä kadulla",
        "犬がボールをくわえて浜辺を走っている\n左に猫がいる",
        "一只狗叼着球在海滩上奔跑\n左边有一只猫",
        "",
    ],
)
def test_captions_in_other_languages_are_not_english(captions: str) -> None:
    assert not is_english(words_in(captions))


def test_characters_of_english_captions_are_not_its_words() -> None:
    assert not is_english("a man is on a beach with a dog and a ball")


def test_a_caption_of_combining_marks_takes_no_time_that_doubles_with_each() -> None:
    caption = "a" + "\u0301" * 1000
    assert tokenize(caption) == [caption]
    assert tokenize(f"{caption} a.b{caption}-") == [caption, f"a.b{caption}"]

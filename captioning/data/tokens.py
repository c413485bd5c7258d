r"""Tokenizes captions as the Stanford PTB tokenizer does, without Java.

The COCO caption evaluation (pycocoevalcap 1.2) uses Stanford's PTBTokenizer 3.4.1 in lower case and
drops punctuation. The rules below reproduce it; tests compare both. Some surprising results are
kept for equal scores: brackets are words (`-lrb-`), `?!` and `-----` are words though `?` and `--`
are not, and pounds are `#`.

Intended differences:

- A token that holds a white space (`1 1/2`, `<a href="x">`) is several words of `tokenize`, as it
  is to BLEU and CIDEr. `tokens` leaves it whole, as ROUGE-L sees it.
- `<unk>` and the other special tokens of the vocabulary are three words, not tags like `<b>`, so
  that a caption cannot contain one of them.
- Line breaks other than `\n` (`\r`, U+2028, ...) split words, instead of shifting later captions.
- A full stop that ends a caption does not depend on the next caption.
- A typographic apostrophe is a typed one, and typographic quotes are always dropped.
- Phone numbers with spaces, area codes in brackets, apostrophes in mixed case (`don'T`), two
  letters of Mongolian beside digits and hyphens, and text that captions do not have, such as a
  smiley within an address, may be split elsewhere.

Stanford's tokenizer knows the letters of Unicode 6.1, and the vowel signs of some scripts only.
Others (those of Kannada, Burmese, Khmer, ...) split words and are dropped, as are emoji and
historic scripts. Japanese, Chinese and Thai are one word from one space to the next.
"""

import re
from collections.abc import Iterable

# The tokens that the COCO caption evaluation drops; brackets are not among them in lower case.
PUNCTUATION = frozenset("'' ' `` ` . ? ! , : - -- ... ;".split())  # noqa: SIM905

# Tokens that are replaced. Stanford writes pounds as the Penn Treebank does.
SPELLINGS = {
    **{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"},
    **{"£": "#", "€": "$", "¤": "$", "\u20a0": "$", "\x80": "$", "¢": "cents"},
    **{"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"},
    **{"&amp;": "&", "&lt;": "<", "&gt;": ">"},
    **{"&quot;": "''", "&apos;": "'", "&nbsp;": "\xa0"},
}
BRACKETS = frozenset(SPELLINGS[bracket] for bracket in "()[]{}")
ROUND_BRACKETS = str.maketrans({"(": SPELLINGS["("], ")": SPELLINGS[")"]})

# Typographic apostrophes become typed ones; soft hyphens are dropped.
TYPED = str.maketrans({"’": "'", "\x92": "'", "\xad": None})  # noqa: RUF001

# Words that keep their full stop: in upper or lower case; as names; before a number ("no. 5", not
# "no. He").
ABBREVIATIONS = """
    adj|adm|adv|ala?|alex|apr|ariz|ass(?:n|oc|t)|attys?|aug|ave|bldg|blvd|brig|bros|calif|capt|cf
    |cie|cmdr|cos?|colo?|conn|corp|cpl|ct|dec|dept|det|drs?|elec|ens|esq|est|etc|ext|feb|fla|fri|ft
    |ga|gen|govs?|hon|inc|ind|insp|intl|jan|jos|jr|jul|jun|kans?|ky|lt|ltd|maj|mar|md|messrs|mich
    |minn|mlle|mme|mo|mon|mont|mrs?|ms|msgr|mt|natl|neb|nev|nov|oct|okla|penn|ph|plc|pres|profs?|pvt
    |rd|reps?|rev|sens?|sept?|sgt|sq|sr|ste?|supt|tel|tenn|thu|thurs|treas|tues?|univ|va|vs|vt|wed
    |wisc?|wm|wyo
"""
TITLES = "Ark|Del|Ill|La|Mass|Mfg|Miss|Ore|Pa|Pty|Tex|Wash"
NUMBERED = "art|ca|figs?|nos?|pp"

# Words that begin a sentence, so that the full stop in "vitamin C. The" ends one.
STARTS = r"""
    A|About|After|An|As|At|But|He|Her|Here|However|If|In|It|Last|M[rs]\.|Many|More|Now|Once|One
    |Other|Our|She|Since|So|Some|Such|That|The|Their|Then|There|These|They|This|We|What|When|While
    |Yet|You
"""

# Characters of the Basic Multilingual Plane as the tokenizer knows them, which is by Unicode 6.1:
# what Python's \w has and its letters have not; the vowel signs and accents that are parts of words
# (of some scripts only); and signs that are words. All other characters split words.
NO_LETTERS = (
    r"\u00b2\u00b3\u00b9\u00bc-\u00be\u037f-\u0383\u0528-\u0530\u0560\u0588\u05eb-\u05ef"
    r"\u085f-\u088f\u08a1\u08ad-\u08c9\u0978\u0980\u09f4-\u09fc\u0af2-\u0af9\u0b72-\u0b81"
    r"\u0bf0-\u0bf2\u0c34\u0c5a-\u0c5f\u0c78-\u0c80\u0cd7-\u0cdd\u0d04\u0d50-\u0d5f\u0d70-\u0d78"
    r"\u0e85\u0e86\u0e89\u0e8b\u0e8c\u0e8e-\u0e93\u0e98\u0ea0\u0ea8\u0ea9\u0eac\u0f2a-\u0f33"
    r"\u1369-\u137f\u13f5-\u13ff\u16ee-\u16ff\u170d\u1716-\u171f\u17ea-\u17ff\u1878-\u187f"
    r"\u191d-\u191f\u19ac-\u19c0\u19c8-\u19cf\u19da-\u19dd\u1b4c-\u1b4f\u1c80-\u1cbf\u1cf2\u1cf3"
    r"\u1cfa-\u1cff\u2070\u2072-\u2079\u2080-\u2089\u2150-\u2182\u2185-\u2793\u2c2f\u2c5f\u2cfd"
    r"\u3007-\u3029\u3038-\u303a\u312e-\u3130\u3192-\u3195\u31bb-\u31bf\u321f-\u32bf"
    r"\u4db6-\u4dbf\u9fcd-\u9fff\ua698-\ua69d\ua6e6-\ua6ef\ua78f\ua794-\ua79f\ua7ab-\ua7f7"
    r"\ua82d-\ua835\ua8fd\ua8fe\ua9e0-\ua9ff\uaa7e\uaa7f\uab2f-\uabbf"
)
NO_DIGITS = r"\u0de6-\u0def\ua9f0-\ua9f9"
MARKS = (
    r"\u02c2-\u02c5\u02d2-\u02df\u02e5-\u02eb\u02ed\u02ef-\u036f\u0375\u0378\u0379\u0384\u0385"
    r"\u03f6\u0483-\u0487\u055a-\u055f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    r"\u0615-\u061a\u064b-\u065e\u0670\u06d6-\u06e4\u06e7-\u06ed\u06fd\u06fe\u070f\u0711"
    r"\u0730-\u074c\u07a6-\u07b0\u07eb-\u07f3\u0900-\u0903\u093c\u093e-\u094e\u0951-\u0955"
    r"\u0962\u0963\u0981-\u0983\u09bc\u09be-\u09c4\u09c7\u09c8\u09cb-\u09cd\u09d7\u09e2\u09e3"
    r"\u0a01-\u0a03\u0a3c\u0a3e-\u0a4f\u0a81-\u0a83\u0abc\u0abe-\u0acf\u0b82\u0bbe-\u0bc2"
    r"\u0bc6-\u0bc8\u0bca-\u0bcd\u0c01-\u0c03\u0c3e-\u0c56\u0d3e-\u0d44\u0d46-\u0d48\u0e31"
    r"\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u1885\u1886"
)
SIGNS = (
    r"\#$%&*+/<=>@\\^|~\x80\xa2-\xa4\xbc-\xbe\u20a0\u20ac\u2153\u2154"
    r"\u00a1\u00a5-\u00a9\u00ac\u00ae-\u00b9\u00bf-\u00f7\u037e\u0387\u0589\u05be\u05c0\u05c3"
    r"\u05c6\u05f3\u05f4\u0600-\u0603\u0606-\u060c\u0614\u061b\u061e\u061f\u066a\u066d\u06d4"
    r"\u0700-\u070d\u07f6-\u07f8\u0964\u0965\u0e3f\u0e4f\u1fbd\u2016\u2017\u201a\u201e-\u2023"
    r"\u2030-\u2038\u203b\u203e-\u2042\u2044\u2070\u2074-\u208e\u20a4\u2100-\u214f\u2155-\u215e"
    r"\u2190-\u2bff\u3001\u3002\u3012\u30fb\uff01-\uff65\uffe0\uffe1\uffe5\uffe6"
)
RARE = r"\U00010000-\U0010ffff"  # emoji and historic scripts are not known at all
LETTER = rf"[^\W\d_{NO_LETTERS}{RARE}]"
DIGIT = rf"[^\D{NO_DIGITS}{RARE}]"
PLAIN = rf"[^\W_{NO_LETTERS}{NO_DIGITS}{RARE}]"  # letters and digits
LETTER_OR_DIGIT = rf"(?:{PLAIN}|[{MARKS}])"
START = rf"(?:{LETTER}|[{MARKS}])"
REST = rf"{PLAIN}*(?:[{MARKS}]{PLAIN}*)*"  # one way to match: no backtracking into the marks
HYPHEN = r"[-_\u058a\u2010\u2011]"
SPECIAL_TOKEN = "<(?:pad|bos|eos|unk)>"  # in a caption these are plain text
TAG = rf"(?!{SPECIAL_TOKEN})</?[A-Za-z!?][^>]{{0,999}}>"
NOT = r"(?<=[^\W\d_nN])(?:n't|N'T)"
ENDING = "'(?i:s|m|d|re|ve|ll)"
END = rf"(?!{LETTER_OR_DIGIT}|[-_]{LETTER_OR_DIGIT})"
END_OF_BOTH = rf"{END}(?!{ENDING})"  # "cannot's" stays whole

# What may be followed by something that is missing has a greatest length, so that time is linear.
RULES = rf"""
    # two words written as one: cannot, gonna, 'tis
    (?i:can(?=not{END_OF_BOTH}) | (?:gon|wan)(?=na{END_OF_BOTH}) | got(?=ta{END_OF_BOTH})
        | (?:gim|lem)(?=me{END_OF_BOTH}))
    | '[tT](?=(?i:is|was){END_OF_BOTH})

    # of markup and the web: tags, entities, addresses, @names, #topics, smileys
    | {TAG}
    | &(?:amp|lt|gt|quot|apos|nbsp);|&\#{DIGIT}+;
    | (?i:https?)://[^\s"<>|()]+[^\s"<>|.!?(){{}},-]
    | (?:www\.(?:[^\s"<>|.!?(){{}},]{{1,63}}\.){{1,9}}[A-Za-z]{{2,4}}
        | (?:[a-z]{{1,63}}\.){{1,9}}(?:com|net|org|edu))
      (?:/[^\s"<>|()]+[^\s"<>|.!?(){{}},-])?(?!{LETTER_OR_DIGIT})
    | [A-Za-z0-9][^\s"<>|()]{{0,63}}@(?:[^\s"<>|().]+\.)*[^\s"<>|().]+
    | @[A-Za-z_][A-Za-z_0-9]* | \#{START}+ | \#+ | @@+ | <<|>>
    | [-^=~<>]_[-^=~<>]
    | [<>]?[:;=][-o*']?[()DPdpO\\{{@|\[\]](?![A-Za-z])

    # signs that belong to a word: C++, US$, a bracket that is spelt out already
    | [Cc]\#|F\#|[Cc]\+\+ | [A-Z]+\$ | -(?i:[lr][rsc]b)-

    # fractions and slashes: 1-1/2, and/or, 10/12/2009
    | {DIGIT}{{1,4}}[-\s]{DIGIT}{{1,4}}[/\u2044]{DIGIT}{{1,4}}(?!{DIGIT})
    | [A-Za-z0-9]+(?:-[A-Za-z]+){{0,2}}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){{0,2}}){{1,2}}
    | {DIGIT}{{1,4}}[/\u2044]{DIGIT}{{1,4}}

    # apostrophes within a word: o'clock, O'Neil, y'all, rock 'n' roll, '80s
    | (?i:ma'am|c'mon|c'est|li'l|ev'ry|s'mores|nor'easter|nat'l|[eo]'er|ne'er|'em|'till?){END}
    | (?i:'cause){END} | (?i:ol'|somethin'|dunkin') | '[nN]' | '[0-9][0-9](?!\S) | '[2-9]0s
    | (?![A-Za-z]{ENDING}{END})[A-HJ-XZdln-o]['`]{LETTER}{{2,}}
    | (?!{LETTER}+{ENDING}{END}){LETTER}+[aeiouyAEIOUY]['`][aeiouA-Z]{LETTER}*
    | (?![A-Za-z]{ENDING}{END})(?:[DdLlJj]'|[Yy]'(?={LETTER}))

    # full stops within a word: 3.5-inch, U.S.-based; Mr., No. 5, U.S., J. Smith; runs.The, foo.jpg
    | [A-Za-z0-9]{{1,63}}[.,][A-Za-z0-9.,]{{0,63}}(?:-[A-Za-z0-9]+)+
    | (?i:(?:{ABBREVIATIONS})\.)(?!{LETTER_OR_DIGIT}) | (?:{TITLES})\.(?!{LETTER_OR_DIGIT})
    | (?i:(?:{NUMBERED})\.)(?=\s*{DIGIT}|[,:;]) | (?i:ph\.d\.)
    | [A-Za-z](?:\.[A-Za-z])+\.(?!{LETTER_OR_DIGIT})
    | [A-Za-z]\.(?!\s+(?:(?:{STARTS})(?!\S)|{TAG}(?!\S))|[A-Za-z])
    | {START}{REST}(?:[.!?]{START}{REST})+

    # numbers: 1,000, 10:30
    | {DIGIT}+(?:[.:,\u066b\u066c]{DIGIT}+)+

    # words, with hyphens: AT&T, x-ray, does|n't, dog|'s
    | [A-Z]+(?:[&+][A-Z]+)+
    | [nN]'[tT](?!\w)
    | {DIGIT}{PLAIN}*(?:{HYPHEN}{PLAIN}+)*
    | (?:(?!{NOT}){PLAIN})+(?:(?:{HYPHEN}(?:(?!{NOT}){PLAIN})+)+|[{MARKS}]{REST})?
    | [{MARKS}]{REST}
    | {ENDING}(?!{LETTER_OR_DIGIT}) | '[nN](?!{LETTER_OR_DIGIT})
    | [-+]?{DIGIT}+(?:[.:,\u066b\u066c]{DIGIT}+)* | [-+]?(?:[.:,\u066b\u066c]{DIGIT}+)+

    # punctuation that no list of punctuation knows, and signs
    | -{{5,}} | [!?]{{2,}} | (?:\\\*)+ | \*+ | _+
    | [\u207a\u207b\u208a\u208b]?(?:[\xb2\xb3\xb9\u2070\u2074-\u2079]+|[\u2080-\u2089]+)
    | [\u201a\u201e\u201f]{{1,2}} | [{SIGNS}()\[\]{{}}]
"""

# Most words are plain letters between spaces, and most marks are full stops, so these are tried
# first. Quotes, dashes, ellipses and characters that match no rule are skipped.
TOKEN = re.compile(
    rf"""
    \s*+(?:\.(?!\S)|(
        (?!(?i:cannot|gonna|wanna|gotta|gimme|lemme)\b)[A-Za-z]+(?=,?(?:\s|\Z))
        | {RULES}
    )|''|``|-{{2,4}}|\.\.\.|\S|\Z)
    """,
    re.VERBOSE,
)

# English words that do not name anything visible.
FUNCTION_WORDS = frozenset(
    """
    a an the this that these those some any each another other one his her its their it he she they
    him them who which what there is are was were be been being has have having do does and or as
    while not no very in on at of to from by with without for into onto over under up down through
    near next behind between front along around across off out above below against beside inside
    outside top side 's n't
    """.split()  # noqa: SIM905
)

# English words that distinguish no photo from others, so they are no keywords: postures and
# holding, quantities, and places within a photo.
UNSPECIFIC_WORDS = frozenset(
    """
    sit sits sitting seated stand stands standing lie lies lying lay lays laying lean leans leaning
    hang hangs hanging rest rests resting hold holds holding wear wears wearing do doing done
    group groups couple couples bunch bunches pair pairs row rows pile piles piece pieces slice
    slices set sets lot lots number variety one two three four five six seven eight nine ten several
    many few
    middle center centre back rear bottom edge end corner background foreground
    """.split()  # noqa: SIM905
)

ENGLISH = 0.3
"""Minimum share of `FUNCTION_WORDS` in English captions. Samples of 20 captions of Flickr8k and
COCO have at least 0.36. Other languages share some of the words: Hungarian captions have 0.27."""

NO_BREAK_SPACE = "\xa0"  # Stanford's tokenizer writes it for a space within a token

PLAIN_SPACES = str.maketrans(" \n", NO_BREAK_SPACE * 2)
OTHER_SPACES = re.compile(rf"[^\S{NO_BREAK_SPACE}]+")


def tokenize(caption: str) -> list[str]:
    """Split a caption into words: Penn Treebank tokens in lower case, without punctuation."""
    return words_of(tokens(caption))


def tokens(caption: str) -> list[str]:
    """Split a caption into tokens; one such as `22 3/4` is several words with no-break spaces."""
    caption_tokens = []
    for match in TOKEN.findall(caption.translate(TYPED)):
        if match.isalpha():
            caption_tokens.append(match.lower())
        elif match:
            spelling = SPELLINGS.get(match) or match.lower()
            if match[0] in ":;=<>":  # a smiley
                spelling = spelling.translate(ROUND_BRACKETS)
            for part in OTHER_SPACES.split(spelling.translate(PLAIN_SPACES)):
                if part.strip() and part not in PUNCTUATION:
                    caption_tokens.append(part)
    return caption_tokens


def words_of(tokens: list[str]) -> list[str]:
    """The words of a caption's tokens."""
    words = (word for token in tokens for word in token.split())
    return [word for word in words if word not in PUNCTUATION]


def is_english(words: Iterable[str]) -> bool:
    """Whether the words of captions are English, by their share of `FUNCTION_WORDS`.

    One caption is too few to judge; ten are enough.

    Args:
        words: all words of many captions, in lower case.
    """
    are_function_words = [word in FUNCTION_WORDS for word in words]
    return sum(are_function_words) > ENGLISH * len(are_function_words)


def plurals(name: str) -> list[str]:
    """Candidates for the regular plural of a name's last word; a few non-words do no harm.

    WordNet's rules from plurals to lemmas, in reverse. Stemming would confuse skis with skiing.
    """
    from nltk.corpus.reader.wordnet import NOUN, WordNetCorpusReader  # takes half a second

    rules = [*WordNetCorpusReader.MORPHOLOGICAL_SUBSTITUTIONS[NOUN], ("oes", "o")]
    return [
        f"{name.removesuffix(ending)}{plural_ending}"
        for plural_ending, ending in rules
        if name.endswith(ending)
    ]

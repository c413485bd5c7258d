r"""Tokenizes captions as the Stanford PTB tokenizer does, without Java.

Scores are comparable only under one tokenization. The COCO caption evaluation (pycocoevalcap 1.2)
uses Stanford's PTBTokenizer 3.4.1 in lower case and drops punctuation. The rules below reproduce
it; tests compare both on data sets and made-up captions. Some surprising results are kept for equal
scores: brackets are words (`-lrb-`), `?!` and `-----` are words though `?` and `--` are not, and
pounds are `#`.

Scores always use `tokenize`. A configuration may choose another tokenizer for a model's vocabulary.

Intended differences:

- A token that holds a white space (`1 1/2`, `<a href="x">`) is several words of `tokenize`, as it
  is to BLEU and CIDEr. `tokens` leaves it whole, as ROUGE-L sees it.
- `<unk>` and the other special tokens of the vocabulary are three words, not tags like `<b>`, so
  that a caption cannot contain one of them.
- Line breaks other than `\n` (`\r`, U+2028, ...) split words, instead of shifting later captions.
- A full stop that ends a caption does not depend on the next caption. Of COCO's 5,000 validation
  images this changes the CIDEr of one by 0.0038.
- A typographic apostrophe is a typed one, and typographic quotes are always dropped.
- Phone numbers with spaces, area codes in brackets, rare signs of other scripts than Latin, letters
  newer than Unicode 6.0, apostrophes in French and in mixed case (`c'est`, `don'T`), and text that
  captions do not have, such as a smiley within an address, may be split elsewhere.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Literal
from unicodedata import category

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
NAMES = "Ark|Del|Ill|La|Mass|Mfg|Miss|Ore|Pa|Pty|Tex|Wash"
NUMBERED = "art|ca|figs?|nos?|pp"

# Words that begin a sentence, so that the full stop in "vitamin C. The" ends one.
STARTS = r"""
    A|About|After|An|As|At|But|He|Her|Here|However|If|In|It|Last|M[rs]\.|Many|More|Now|Once|One
    |Other|Our|She|Since|So|Some|Such|That|The|Their|Then|There|These|They|This|We|What|When|While
    |Yet|You
"""

# Combining marks, which belong to the letters' words.
MARKS = (
    r"\u02c2-\u02df\u02e5-\u036f\u0483-\u0487\u055a-\u055f\u0591-\u05bd\u05bf\u05c1-\u05c7"
    r"\u0610-\u061a\u064b-\u065e\u0670\u06d6-\u06ed\u0900-\u0903\u093c-\u0957\u0962\u0963"
    r"\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
)
# Python's \w has these numerals; the tokenizer treats them as signs, or drops them.
NUMERALS = r"\xb2\xb3\xb9\xbc-\xbe\u2070-\u209c\u2150-\u218b\u2460-\u24ff\u2776-\u2793\u3007-\u33ff"
SIGNS = (
    r"\#$%&*+/<=>@\\^|~\x80\xa1-\xaa\xac\xae-\xb4\xb6-\xb9\xbc-\xbf\xd7\xf7\u037e\u0387\u0589"
    r"\u05be\u05c0\u05c3\u05f3\u05f4\u0600-\u060c\u061b\u061e\u061f\u066a\u066d\u06d4\u0e3f"
    r"\u2016\u2017\u201a\u201e\u2020-\u2023\u2030-\u2038\u203b\u203e-\u2042\u2044\u2070-\u207e"
    r"\u2080-\u208e\u20a0\u20a4\u20ac\u2100-\u214f\u2153-\u215e\u2190-\u2bff\u3001\u3002\u3012"
    r"\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0\uffe1\uffe5\uffe6"
)
LETTER = rf"[^\W\d_{NUMERALS}\U00010000-\U0010ffff]"  # emoji and rare scripts are left out
LETTER_OR_DIGIT = rf"(?:[^\W_{NUMERALS}\U00010000-\U0010ffff]|[{MARKS}])"
SPECIAL = "<(?:pad|bos|eos|unk)>"  # not words: a caption that has one means the letters
TAG = rf"(?!{SPECIAL})</?[A-Za-z!?][^>]{{0,999}}>"
NOT = r"(?<=[^\W\d_nN])(?:n't|N'T)"
ENDING = "'(?i:s|m|d|re|ve|ll)"
END = rf"(?!{LETTER_OR_DIGIT}|[-_]{LETTER_OR_DIGIT})"
END_OF_BOTH = rf"{END}(?!{ENDING})"  # "cannot's" stays whole

RULES = rf"""
    # two words written as one: cannot, gonna, 'tis
    (?i:can(?=not{END_OF_BOTH}) | (?:gon|wan)(?=na{END_OF_BOTH}) | got(?=ta{END_OF_BOTH})
        | (?:gim|lem)(?=me{END_OF_BOTH}))
    | '[tT](?=(?i:is|was){END_OF_BOTH})

    # of markup and the web: tags, entities, addresses, @names, #topics, smileys
    | {TAG}
    | &(?:amp|lt|gt|quot|apos|nbsp);|&\#\d+;
    | (?i:https?)://[^\s"<>|()]+[^\s"<>|.!?(){{}},-]
    | (?:www\.(?:[^\s"<>|.!?(){{}},]+\.)+[A-Za-z]{{2,4}}|(?:[a-z]+\.)+(?:com|net|org|edu))
      (?:/[^\s"<>|()]+[^\s"<>|.!?(){{}},-])?(?!{LETTER_OR_DIGIT})
    | [A-Za-z0-9][^\s"<>|()]{{0,63}}@(?:[^\s"<>|().]+\.)*[^\s"<>|().]+
    | @[A-Za-z_]\w* | \#{LETTER}+ | \#+ | @@+ | <<|>>
    | [-^=~<>]_[-^=~<>]
    | [<>]?[:;=][-o*']?[()DPdpO\\{{@|\[\]](?![A-Za-z])

    # signs that belong to a word: C++, US$, a bracket that is spelt out already
    | [Cc]\#|F\#|[Cc]\+\+ | [A-Z]+\$ | -(?i:[lr][rsc]b)-

    # fractions and slashes: 1-1/2, and/or, 10/12/2009
    | \d{{1,4}}[-\s]\d{{1,4}}/\d{{1,4}}(?!\d)
    | [A-Za-z0-9]+(?:-[A-Za-z]+){{0,2}}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){{0,2}}){{1,2}}

    # apostrophes within a word: o'clock, O'Neil, y'all, rock 'n' roll, '80s
    | (?i:ma'am|c'mon|li'l|ev'ry|s'mores|nor'easter|nat'l|[eo]'er|ne'er|'em|'till?|'cause){END}
    | (?i:ol'|somethin'|dunkin') | '[nN]' | '\d\d(?!\S) | '[2-9]0s
    | (?![A-Z]{ENDING}{END})[A-HJ-XZdln-o]['`]{LETTER}{{2,}}
    | (?!{LETTER}+{ENDING}{END}){LETTER}+[aeiouyAEIOUY]['`][aeiouA-Z]{LETTER}*
    | [DdLlJj]'|[Yy]'(?={LETTER})

    # full stops within a word: Mr., No. 5, U.S., J. Smith; runs.The, foo.jpg
    | (?i:(?:{ABBREVIATIONS})\.)(?!{LETTER_OR_DIGIT}) | (?:{NAMES})\.(?!{LETTER_OR_DIGIT})
    | (?i:(?:{NUMBERED})\.)(?=\s*\d|[,:;]) | (?i:ph\.d\.)
    | [A-Za-z](?:\.[A-Za-z])+\.(?!{LETTER_OR_DIGIT})(?:-{LETTER}+)?
    | [A-Za-z]\.(?!\s+(?:(?:{STARTS})(?!\S)|{TAG}(?!\S))|[A-Za-z])
    | {LETTER}{LETTER_OR_DIGIT}*(?:[.!?]{LETTER}{LETTER_OR_DIGIT}*)+(?:-{LETTER_OR_DIGIT}+)*

    # numbers: 3.5-inch, 1,000, 10:30
    | \d+(?:[.,]\d+)+-[A-Za-z]+ | \d+(?:[.:,]\d+)+

    # words, with hyphens: AT&T, x-ray, does|n't, dog|'s
    | [A-Z]+(?:[&+][A-Z]+)+
    | [nN]'[tT](?!\w)
    | (?:(?!{NOT}){LETTER_OR_DIGIT})+(?:[-_\u2010\u2011](?:(?!{NOT}){LETTER_OR_DIGIT})+)*
    | {ENDING}(?!{LETTER_OR_DIGIT}) | '[nN](?!{LETTER_OR_DIGIT})
    | [-+]?\d+(?:[.:,]\d+)* | [-+]?(?:[.:,]\d+)+

    # punctuation that no list of punctuation knows, and signs
    | -{{5,}} | [!?]{{2,}} | (?:\\\*)+ | \*+ | _+ | [{SIGNS}()\[\]{{}}]
"""

# Most words are plain letters between spaces, so these are tried first. Quotes, dashes, ellipses
# and characters that match no rule are skipped.
TOKEN = re.compile(
    rf"""
    \s*(?:(
        (?!(?i:cannot|gonna|wanna|gotta|gimme|lemme)\b)[A-Za-z]+(?=\s|\Z)
        | {RULES}
    )|''|``|-{{2,4}}|\.\.\.|\S)
    """,
    re.VERBOSE,
)


NO_BREAK_SPACE = "\xa0"  # Stanford's tokenizer writes it for a space within a token

PLAIN_SPACES = str.maketrans(" \n", NO_BREAK_SPACE * 2)
OTHER_SPACES = re.compile(rf"[^\S{NO_BREAK_SPACE}]+")

Tokenizer = Callable[[str], list[str]]
"""Gives the words of a caption, in lower case, without punctuation and white space."""

TokenizerName = Literal["ptb", "treebank", "wordpunct", "tweet"]
"""Their names in a configuration; all but the first are NLTK's.

- ptb: the tokenizer of the COCO caption evaluation: `do n't`, `x-ray`.
- treebank: the Penn Treebank's own rules, simpler and without COCO's surprises.
- wordpunct: runs of letters and digits: `don t`, `x ray`; the smallest vocabulary.
- tweet: words as people type them: `don't`, `#sunset`, emoji and smileys that have letters.
"""

KEPT = ("L", "M", "N", "Sc", "Sm", "So")  # Unicode categories; a token needs a character of one


def tokenize(caption: str) -> list[str]:
    """The words of a caption: Penn Treebank tokens in lower case, without punctuation.

    Evaluation always uses this function. Training does too, unless another tokenizer is configured,
    so that both use the same words.
    """
    return words_of(tokens(caption))


def tokens(caption: str) -> list[str]:
    """The tokens of a caption; a token may be several words, separated by no-break spaces.

    Stanford's tokenizer makes one token of a number such as `22 3/4`, which `tokenize` splits.
    """
    found = []
    for token in TOKEN.findall(caption.translate(TYPED)):
        if token.isalpha():
            found.append(token.lower())
        elif token:
            spelt = SPELLINGS.get(token) or token.lower()
            if token[0] in ":;=<>":  # a smiley
                spelt = spelt.translate(ROUND_BRACKETS)
            parts = OTHER_SPACES.split(spelt.translate(PLAIN_SPACES))
            found += [part for part in parts if part.strip() and part not in PUNCTUATION]
    return found


def words_of(tokens: list[str]) -> list[str]:
    """The words of a caption's tokens."""
    if not any(NO_BREAK_SPACE in token for token in tokens):
        return tokens
    words = (word for token in tokens for word in token.split())
    return [word for word in words if word not in PUNCTUATION]


@cache
def tokenizer(name: TokenizerName) -> Tokenizer:
    """The tokenizer of this name; NLTK is imported only for NLTK's tokenizers."""
    if name == "ptb":
        return tokenize
    from nltk import tokenize as nltk

    kinds = {
        "treebank": nltk.TreebankWordTokenizer,
        "wordpunct": nltk.WordPunctTokenizer,
        "tweet": nltk.TweetTokenizer,
    }
    cut = kinds[name]().tokenize

    def words(caption: str) -> list[str]:
        parts = [part for token in cut(caption.translate(TYPED).lower()) for part in token.split()]
        return [part for part in parts if any(category(c).startswith(KEPT) for c in part)]

    return words


def plurals(name: str) -> list[str]:
    """Candidates for the regular plural of a name's last word; a few non-words do no harm.

    WordNet's rules from plurals to lemmas, in reverse. Stemming would be no better: it would
    confuse skis with skiing, officers with offices, and performers with performing.
    """
    from nltk.corpus.reader.wordnet import NOUN, WordNetCorpusReader  # takes half a second

    rules = [*WordNetCorpusReader.MORPHOLOGICAL_SUBSTITUTIONS[NOUN], ("oes", "o")]
    return [f"{name.removesuffix(last)}{plural}" for plural, last in rules if name.endswith(last)]

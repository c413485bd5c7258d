"""Whether a caption of a scene is correct: its faults, in words."""

import re
from dataclasses import astuple, dataclass
from itertools import permutations

from captioning.shapes.language import BESIDE, BESIDE_IT, NUMBERS
from captioning.shapes.scene import COLOURS, KINDS, SIZES, Scene, Shape, relation

# Every readable sentence matches one of four patterns of phrases and relations.
_PHRASE = rf"an?(?: ({'|'.join(SIZES)}))?(?: ({'|'.join(COLOURS)}))? ({'|'.join(KINDS)})"
_P = re.sub(r"\((?!\?)", "(?:", _PHRASE)
_BESIDE = f"(?:{'|'.join(BESIDE.values())})"
_BESIDE_IT = f"(?:{'|'.join(BESIDE_IT.values())})"
_STATED = re.compile(rf"(?:there is {_P}|{_P}(?: is)?) {_BESIDE} {_P}(?: and {_BESIDE} {_P})*")
_INVERTED = re.compile(rf"{_BESIDE} {_P} is {_P}")
_COMPANY = re.compile(rf"{_P} with {_P} {_BESIDE_IT}(?: and {_P} {_BESIDE_IT})*")
_LISTED = re.compile(
    rf"(?:there is |({'|'.join(NUMBERS.values())}) shapes )?{_P}(?: {_P})*(?: and {_P})?"
)

_SIDES = {words: side for phrases in (BESIDE, BESIDE_IT) for side, words in phrases.items()}
_COUNTS = {word: number for number, word in NUMBERS.items()}


@dataclass(frozen=True)
class _Phrase:
    """The attributes in a noun phrase; an empty one is not named."""

    size: str
    colour: str
    kind: str

    def misnames(self, shape: Shape) -> list[str]:
        said, true = astuple(self), (shape.size, shape.colour, shape.kind)
        return [
            f"the {' '.join(true)} is called {word}"
            for word, fact in zip(said, true, strict=True)
            if word and word != fact
        ]


@dataclass(frozen=True)
class _Statement:
    """Noun phrases, relations (subject, side, object) between their indices, and a count."""

    phrases: list[_Phrase]
    relations: list[tuple[int, str, int]]
    count: int | None = None


def faults(caption: str, scene: Scene) -> tuple[str, ...]:
    """The faults of a caption of a scene, in words; empty if the caption is correct.

    A caption is correct if its phrases can be assigned to different objects of the scene so that
    every attribute and relation fits; otherwise the faults are those of the best assignment.
    Relations are between centres: an object is to the left of another if it is further to the left
    of it than above or below. Case and punctuation are ignored. A caption that does not fit any
    sentence pattern is a fault.
    """
    statement = _read(caption)
    if statement is None:
        return (f"cannot be read as a statement about shapes: {caption!r}",)
    present, named = len(scene.shapes), len(statement.phrases)
    if named > present:
        return (f"names {named} different shapes where there are {present}",)
    fewest = min(
        (_mismatches(statement, shapes) for shapes in permutations(scene.shapes, named)), key=len
    )
    if statement.count not in (None, present):
        fewest.append(f"counts {statement.count} shapes where there are {present}")
    if statement.count not in (None, named):
        fewest.append(f"counts {statement.count} shapes and names {named}")
    return tuple(fewest)


def _mismatches(statement: _Statement, shapes: tuple[Shape, ...]) -> list[str]:
    """The faults if the phrases name these shapes, in this order."""
    found = []
    for phrase, shape in zip(statement.phrases, shapes, strict=True):
        found += phrase.misnames(shape)
    for subject, side, other in statement.relations:
        one, two = shapes[subject], shapes[other]
        if relation(one, two) != side:
            found.append(
                f"the {one.size} {one.colour} {one.kind} is not {BESIDE[side]} "
                f"the {two.size} {two.colour} {two.kind}"
            )
    return found


def _read(caption: str) -> _Statement | None:
    """The statement of a caption; None if it does not fit any pattern."""
    words = " ".join(re.findall(r"\w+", caption.lower()))
    phrases = [_Phrase(*said) for said in re.findall(_PHRASE, words)]
    sides = [_SIDES[said] for said in re.findall(f"{_BESIDE_IT}|{_BESIDE}", words)]
    others = list(enumerate(sides, start=1))
    if _STATED.fullmatch(words):
        return _Statement(phrases, [(0, side, other) for other, side in others])
    if _COMPANY.fullmatch(words):
        return _Statement(phrases, [(other, side, 0) for other, side in others])
    if _INVERTED.fullmatch(words):
        return _Statement(phrases, [(1, side, 0) for _, side in others])
    if listed := _LISTED.fullmatch(words):
        return _Statement(phrases, [], _COUNTS.get(listed[1]))
    return None

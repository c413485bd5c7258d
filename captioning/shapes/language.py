"""English captions of scenes, true and unambiguous, and the faults of other captions."""

import re
from collections import Counter
from itertools import permutations
from typing import NamedTuple

import numpy as np

from captioning.shapes.scene import CLEAR, COLOURS, KINDS, SIZES, Scene, Shape, relation

CAPTIONS = 5  # for each scene, as COCO has
LONGEST = {2: 15, 3: 15, 4: 17, 5: 20}  # words in a caption of a scene of so many objects

BESIDE = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
BESIDE_IT = {
    "left": "to its left",
    "right": "to its right",
    "above": "above it",
    "below": "below it",
}
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}

LISTS = ("{all}", "there is {all}", "{number} shapes, {all}")
RELATIONS = (
    "{subject} {beside}",
    "{subject} is {beside}",
    "there is {subject} {beside}",
    "{first_beside} is {subject}",
    "{subject} with {company}",
)

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


def captions(scene: Scene, rng: np.random.Generator) -> tuple[str, ...]:
    """Five different captions of a scene of two to five objects, in lower case, no full stop.

    Each is true, no phrase in it fits two objects, and its meaning does not depend on commas. One
    lists the objects; the others state relations, unless the scene has no clear one.
    """
    lists, relations = rng.permutation(LISTS), rng.permutation(RELATIONS)
    related = any(relation(*pair, CLEAR) for pair in permutations(scene.shapes, 2))
    found: list[str] = []
    while len(found) < CAPTIONS:
        sentence = (lists[0], *relations)[len(found)] if related else rng.choice(lists)
        caption = _fill(str(sentence), scene, rng)
        if len(caption.split()) <= LONGEST[len(scene.shapes)] and caption not in found:
            found.append(caption)
    return tuple(found[i] for i in rng.permutation(CAPTIONS))


def _fill(sentence: str, scene: Scene, rng: np.random.Generator) -> str:
    """The template with random objects of the scene filled in."""
    are_sized = bool(rng.integers(2))
    shapes = [scene.shapes[i] for i in rng.permutation(len(scene.shapes))]
    alike = Counter((shape.colour, shape.kind) for shape in shapes)
    names = {}
    for shape in shapes:
        is_sized = are_sized or alike[shape.colour, shape.kind] > 1
        words = f"{shape.size} {shape.colour}" if is_sized else shape.colour
        names[shape] = f"{'an' if words[0] in 'aeiou' else 'a'} {words} {shape.kind}"
    listed = list(names.values())
    if sentence in LISTS:
        everything = " and ".join([", ".join(listed[:-1]), listed[-1]])
        return sentence.format(all=everything, number=NUMBERS[len(shapes)])

    pairs = [(*pair, relation(*pair, CLEAR)) for pair in permutations(shapes, 2)]
    subject = next(one for one, _, side in pairs if side)
    others = [(names[other], side) for one, other, side in pairs if side and one is subject]
    others = others[: rng.integers(1, len(others) + 1)]
    beside = [f"{BESIDE[side]} {other}" for other, side in others]
    company = [f"{other} {BESIDE_IT[OPPOSITE[side]]}" for other, side in others]
    return sentence.format(
        subject=names[subject],
        beside=" and ".join(beside),
        first_beside=beside[0],
        company=" and ".join(company),
    )


class _Statement(NamedTuple):
    """Phrases of size, colour and kind, empty if not said; relations of phrases; and a number."""

    phrases: list[tuple[str, str, str]]
    relations: list[tuple[int, str, int]]  # subject, side, object
    total: int | None = None


def faults(caption: str, scene: Scene) -> tuple[str, ...]:
    """The faults of a caption of a scene, in words; empty if everything that it states is right.

    A caption is right if its phrases can be assigned to different objects of the scene so that
    every attribute and every `relation` fits; otherwise the faults are those of the best
    assignment. Case and punctuation do not matter. A caption that is not a statement about shapes
    is a fault.
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
    if statement.total not in (None, present):
        fewest.append(f"counts {statement.total} shapes where there are {present}")
    if statement.total not in (None, named):
        fewest.append(f"counts {statement.total} shapes and names {named}")
    return tuple(fewest)


def _mismatches(statement: _Statement, shapes: tuple[Shape, ...]) -> list[str]:
    """The faults if the statement's phrases mean these shapes, in this order."""
    found = []
    for phrase, shape in zip(statement.phrases, shapes, strict=True):
        true = (shape.size, shape.colour, shape.kind)
        found += [
            f"the {' '.join(true)} is called {word}"
            for word, fact in zip(phrase, true, strict=True)
            if word and word != fact
        ]
    for subject, side, other in statement.relations:
        one, two = shapes[subject], shapes[other]
        if relation(one, two) != side:
            found.append(
                f"the {one.size} {one.colour} {one.kind} is not {BESIDE[side]} "
                f"the {two.size} {two.colour} {two.kind}"
            )
    return found


def _read(caption: str) -> _Statement | None:
    """The statement of a caption; None if it fits no pattern."""
    words = " ".join(re.findall(r"\w+", caption.lower()))
    phrases = re.findall(_PHRASE, words)
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

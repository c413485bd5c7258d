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

# A sentence is read as a pattern of phrases (P) and relations (B is BESIDE, I is BESIDE_IT).
PHRASE = rf"an?(?: ({'|'.join(SIZES)}))?(?: ({'|'.join(COLOURS)}))? ({'|'.join(KINDS)})"
STATED = r"(there is P|P( is)?) B P( and B P)*"
INVERTED = r"B P is P"
COMPANY = r"P with P I( and P I)*"
LISTED = rf"(there is |({'|'.join(NUMBERS.values())}) shapes )?P( P)*( and P)?"
SIDES = {words: side for phrases in (BESIDE_IT, BESIDE) for side, words in phrases.items()}


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
    if sentence in LISTS:
        *listed, last = names.values()
        everything = f"{', '.join(listed)} and {last}"
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


class _Statement(NamedTuple):
    """Phrases of size, colour and kind, empty if not said; relations of phrases; and a number."""

    phrases: list[tuple[str, str, str]]
    relations: list[tuple[int, str, int]]  # subject, side, object
    total: int | None = None


def _read(caption: str) -> _Statement | None:
    """The statement of a caption; None if it fits no pattern."""
    words = " ".join(re.findall(r"\w+", caption.lower()))
    phrases = re.findall(PHRASE, words)
    pattern = re.sub(PHRASE, "P", words)
    sides = [SIDES[said] for said in re.findall("|".join(SIDES), pattern)]
    for mark, said in (("I", BESIDE_IT), ("B", BESIDE)):
        pattern = re.sub("|".join(said.values()), mark, pattern)
    others = list(enumerate(sides, start=1))
    if re.fullmatch(STATED, pattern):
        return _Statement(phrases, [(0, side, other) for other, side in others])
    if re.fullmatch(COMPANY, pattern):
        return _Statement(phrases, [(other, side, 0) for other, side in others])
    if re.fullmatch(INVERTED, pattern):
        return _Statement(phrases, [(1, side, 0) for _, side in others])
    if listed := re.fullmatch(LISTED, pattern):
        total = next((number for number, word in NUMBERS.items() if word == listed[2]), None)
        return _Statement(phrases, [], total)
    return None


def _mismatches(statement: _Statement, shapes: tuple[Shape, ...]) -> list[str]:
    """The faults if the statement's phrases mean these shapes, in this order."""
    names = [f"the {shape.size} {shape.colour} {shape.kind}" for shape in shapes]
    found = [
        f"{name} is called {word}"
        for phrase, name in zip(statement.phrases, names, strict=True)
        for word, fact in zip(phrase, name.split()[1:], strict=True)
        if word and word != fact
    ]
    return found + [
        f"{names[one]} is not {BESIDE[side]} {names[other]}"
        for one, side, other in statement.relations
        if relation(shapes[one], shapes[other]) != side
    ]

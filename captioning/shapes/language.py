"""English captions of scenes, true and unambiguous, and whether other captions are right."""

import re
from collections import Counter
from itertools import permutations

import numpy as np

from captioning.shapes.scene import CLEAR, COLOURS, KINDS, SIZES, Scene, relation

CAPTIONS = 5  # for each scene, as COCO has
LONGEST = 15  # words in a caption

BESIDE = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
BESIDE_IT = {
    "left": "to its left",
    "right": "to its right",
    "above": "above it",
    "below": "below it",
}
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
NUMBERS = {2: "two", 3: "three"}
COUNTS = {word: number for number, word in NUMBERS.items()}

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
    """Five different captions of a scene of two or three objects, in lower case, no full stop.

    Each is true, no phrase in it fits two objects, and its meaning does not depend on commas. One
    lists the objects; the others state relations, unless the scene has no clear one.
    """
    lists, relations = rng.permutation(LISTS), rng.permutation(RELATIONS)
    related = any(relation(*pair, CLEAR) for pair in permutations(scene.shapes, 2))
    found: list[str] = []
    while len(found) < CAPTIONS:
        sentence = (lists[0], *relations)[len(found)] if related else rng.choice(lists)
        caption = _fill(str(sentence), scene, rng)
        if len(caption.split()) <= LONGEST and caption not in found:
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


def is_right(caption: str, scene: Scene) -> bool:
    """Whether everything that a caption of a scene states is right.

    Its phrases must fit different objects of the scene in every attribute and every `relation`, and
    a number must count them all. Case and punctuation do not matter. A caption that is not a
    statement about shapes is wrong.
    """
    words = " ".join(re.findall(r"\w+", caption.lower()))
    phrases = re.findall(PHRASE, words)
    pattern = re.sub(PHRASE, "P", words)
    sides = [SIDES[said] for said in re.findall("|".join(SIDES), pattern)]
    for mark, said in (("I", BESIDE_IT), ("B", BESIDE)):
        pattern = re.sub("|".join(said.values()), mark, pattern)
    places = range(1, len(sides) + 1)
    if re.fullmatch(STATED, pattern):
        related = [(0, place) for place in places]
    elif re.fullmatch(COMPANY, pattern):
        related = [(place, 0) for place in places]
    elif re.fullmatch(INVERTED, pattern):
        related = [(1, 0)]
    elif listed := re.fullmatch(LISTED, pattern):
        related = []
        if (number := COUNTS.get(listed[2])) and not number == len(phrases) == len(scene.shapes):
            return False
    else:
        return False
    relations = list(zip(related, sides, strict=True))
    return any(
        all(
            word in ("", fact)
            for phrase, shape in zip(phrases, shapes, strict=True)
            for word, fact in zip(phrase, (shape.size, shape.colour, shape.kind), strict=True)
        )
        and all(relation(shapes[one], shapes[two]) == side for (one, two), side in relations)
        for shapes in permutations(scene.shapes, len(phrases))
    )

"""Writes true and unambiguous English captions of scenes, and judges other captions."""

import re
from collections import Counter
from itertools import permutations

import numpy as np

from captioning.shapes.scene import CLEAR, COLOURS, KINDS, SIZES, Scene, Shape, relation

CAPTIONS_PER_SCENE = 5  # as in COCO
MAX_SCENE_WORDS = 15  # of a caption

BESIDE = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
BESIDE_IT = {
    "left": "to its left",
    "right": "to its right",
    "above": "above it",
    "below": "below it",
}
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
NUMBERS = {2: "two", 3: "three"}
NUMBERS_BY_WORD = {word: number for number, word in NUMBERS.items()}

LIST_TEMPLATES = ("{all}", "there is {all}", "{number} shapes, {all}")
RELATION_TEMPLATES = (
    "{subject} {beside}",
    "{subject} is {beside}",
    "there is {subject} {beside}",
    "{first_beside} is {subject}",
    "{subject} with {company}",
)

# A sentence is parsed to a pattern of phrases (P) and relations (B for BESIDE, I for BESIDE_IT).
PHRASE_PATTERN = rf"an?(?: ({'|'.join(SIZES)}))?(?: ({'|'.join(COLOURS)}))? ({'|'.join(KINDS)})"
STATEMENT_PATTERN = r"(there is P|P( is)?) B P( and B P)*"
INVERTED_PATTERN = r"B P is P"
COMPANY_PATTERN = r"P with P I( and P I)*"
LIST_PATTERN = rf"(there is |({'|'.join(NUMBERS.values())}) shapes )?P( P)*( and P)?"
SIDES = {words: side for phrases in (BESIDE_IT, BESIDE) for side, words in phrases.items()}


def captions(scene: Scene, rng: np.random.Generator) -> tuple[str, ...]:
    """Write five captions of a scene of two or three objects, in lower case, without full stop.

    Each is true, no phrase in it fits two objects, and its meaning does not depend on commas. One
    lists the objects; the others state relations, unless the scene has no clear one.
    """
    lists, relations = rng.permutation(LIST_TEMPLATES), rng.permutation(RELATION_TEMPLATES)
    has_relation = any(relation(*pair, CLEAR) for pair in permutations(scene.shapes, 2))
    texts: list[str] = []
    while len(texts) < CAPTIONS_PER_SCENE:
        sentence = (lists[0], *relations)[len(texts)] if has_relation else rng.choice(lists)
        text = _fill(str(sentence), scene, rng)
        if len(text.split()) <= MAX_SCENE_WORDS and text not in texts:
            texts.append(text)
    return tuple(texts[index] for index in rng.permutation(CAPTIONS_PER_SCENE))


def _fill(sentence: str, scene: Scene, rng: np.random.Generator) -> str:
    """Fill random objects of the scene into a template."""
    has_sizes = bool(rng.integers(2))
    shapes = [scene.shapes[index] for index in rng.permutation(len(scene.shapes))]
    counts = Counter((shape.colour, shape.kind) for shape in shapes)
    names = {}
    for shape in shapes:
        has_size = has_sizes or counts[shape.colour, shape.kind] > 1
        words = f"{shape.size} {shape.colour}" if has_size else shape.colour
        names[shape] = f"{'an' if words[0] in 'aeiou' else 'a'} {words} {shape.kind}"
    if sentence in LIST_TEMPLATES:
        *first_names, last_name = names.values()
        enumeration = f"{', '.join(first_names)} and {last_name}"
        return sentence.format(all=enumeration, number=NUMBERS[len(shapes)])

    relations = []
    for shape, neighbour in permutations(shapes, 2):
        if side := relation(shape, neighbour, CLEAR):
            relations.append((shape, neighbour, side))
    subject = relations[0][0]
    neighbours = [(names[shape], side) for first, shape, side in relations if first is subject]
    neighbours = neighbours[: rng.integers(1, len(neighbours) + 1)]
    beside = [f"{BESIDE[side]} {neighbour}" for neighbour, side in neighbours]
    company = [f"{neighbour} {BESIDE_IT[OPPOSITE[side]]}" for neighbour, side in neighbours]
    return sentence.format(
        subject=names[subject],
        beside=" and ".join(beside),
        first_beside=beside[0],
        company=" and ".join(company),
    )


def is_right(caption: str, scene: Scene) -> bool:
    """Whether a caption of a scene is correct in every statement.

    Its phrases must fit different objects of the scene in every attribute and every `relation`, and
    a number must count them all. Case and punctuation do not matter. A caption that is not a
    statement about shapes is incorrect.
    """
    words = " ".join(re.findall(r"\w+", caption.lower()))
    phrases = re.findall(PHRASE_PATTERN, words)
    pattern = re.sub(PHRASE_PATTERN, "P", words)
    sides = [SIDES[words] for words in re.findall("|".join(SIDES), pattern)]
    for mark, expressions in (("I", BESIDE_IT), ("B", BESIDE)):
        pattern = re.sub("|".join(expressions.values()), mark, pattern)
    phrase_numbers = range(1, len(sides) + 1)
    if re.fullmatch(STATEMENT_PATTERN, pattern):
        pairs = [(0, number) for number in phrase_numbers]
    elif re.fullmatch(COMPANY_PATTERN, pattern):
        pairs = [(number, 0) for number in phrase_numbers]
    elif re.fullmatch(INVERTED_PATTERN, pattern):
        pairs = [(1, 0)]
    elif enumeration := re.fullmatch(LIST_PATTERN, pattern):
        pairs = []
        count = NUMBERS_BY_WORD.get(enumeration[2])
        if count and not count == len(phrases) == len(scene.shapes):
            return False
    else:
        return False
    relations = list(zip(pairs, sides, strict=True))
    return any(
        all(map(_fits, phrases, shapes))
        and all(relation(shapes[one], shapes[other]) == side for (one, other), side in relations)
        for shapes in permutations(scene.shapes, len(phrases))
    )


def _fits(phrase: tuple[str, str, str], shape: Shape) -> bool:
    """Whether an object has the size, the colour and the kind of a phrase, each if it is given."""
    facts = (shape.size, shape.colour, shape.kind)
    return all(word in ("", fact) for word, fact in zip(phrase, facts, strict=True))

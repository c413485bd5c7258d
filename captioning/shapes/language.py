"""English captions of scenes, true and unambiguous."""

import numpy as np

from captioning.shapes.scene import CLEAR, Scene, Shape, relation

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


def captions(scene: Scene, rng: np.random.Generator) -> tuple[str, ...]:
    """Five different captions of a scene of two to five objects, in lower case, no full stop.

    Each is true, no phrase in it fits two objects, and its meaning does not depend on commas. One
    lists the objects; the others state relations, unless the scene has no clear one.
    """
    lists, relations = rng.permutation(LISTS), rng.permutation(RELATIONS)
    pairs = [(one, other) for one in scene.shapes for other in scene.shapes if one is not other]
    related = any(relation(one, other, CLEAR) for one, other in pairs)
    found: list[str] = []
    while len(found) < CAPTIONS:
        sentence = (lists[0], *relations)[len(found)] if related else rng.choice(lists)
        caption = _fill(str(sentence), scene, rng)
        if len(caption.split()) <= LONGEST[len(scene.shapes)] and caption not in found:
            found.append(caption)
    return tuple(found[i] for i in rng.permutation(CAPTIONS))


def name(shape: Shape, scene: Scene, sized: bool) -> str:
    """A noun phrase for one object; `sized` adds its size even if the phrase is unique without."""
    alike = [
        other for other in scene.shapes if (other.colour, other.kind) == (shape.colour, shape.kind)
    ]
    words = f"{shape.colour} {shape.kind}"
    if sized or len(alike) > 1:
        words = f"{shape.size} {words}"
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _fill(sentence: str, scene: Scene, rng: np.random.Generator) -> str:
    """The template with random objects of the scene filled in."""
    sized = bool(rng.integers(2))
    shapes = [scene.shapes[i] for i in rng.permutation(len(scene.shapes))]
    names = {shape: name(shape, scene, sized) for shape in shapes}
    listed = list(names.values())
    if sentence in LISTS:
        everything = " and ".join([", ".join(listed[:-1]), listed[-1]])
        return sentence.format(all=everything, number=NUMBERS[len(shapes)])

    sides = {
        (one, other): side
        for one in shapes
        for other in shapes
        if (side := relation(one, other, CLEAR)) is not None
    }
    subject = next(one for one, _ in sides)
    others = [(names[other], side) for (one, other), side in sides.items() if one is subject]
    others = others[: rng.integers(1, len(others) + 1)]
    beside = [f"{BESIDE[side]} {other}" for other, side in others]
    company = [f"{other} {BESIDE_IT[OPPOSITE[side]]}" for other, side in others]
    return sentence.format(
        subject=names[subject],
        beside=" and ".join(beside),
        first_beside=beside[0],
        company=" and ".join(company),
    )

"""The directive `gallery`: drawn scenes, and where a model looked in them for every word.

Scenes follow from a seed. With a checkpoint (`gallery_checkpoint` in conf.py, or the environment's
CAPTIONING_GALLERY_MODEL) each is captioned and shown with the model's attention; without one, with
the boxes of its objects and with captions that are true. With `:hard:` they are hard scenes, with
boxes and true captions in any case: the shipped model has not learnt these.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from PIL import Image, ImageDraw
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from captioning.captioner import Captioner, load
from captioning.shapes import (
    Scene,
    box,
    captions,
    faults,
    picture,
    random_hard_scene,
    random_scene,
    visible_masks,
)
from captioning.viewing import overlay

SEED = 2015
SCENES = 8
PIXELS = 256
OVERLAY_DPI = 90
QUALITY = 85
"""Of JPEG files: some 8 kB for a scene, 90 with a panel for each word."""


class Exhibit(NamedTuple):
    """A picture of the gallery, with what is said about it.

    Attributes:
        picture: the file.
        title: one caption.
        lines: what stands below it, as Markdown.
    """

    picture: Path
    title: str
    lines: tuple[str, ...]


def exhibits(
    folder: Path, checkpoint: str, scenes: int = SCENES, hard: bool = False
) -> Iterator[Exhibit]:
    """Draw the scenes.

    Args:
        folder: where the pictures go.
        checkpoint: the model's; empty for none.
        scenes: how many.
        hard: draw hard ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    captioner = None if not checkpoint else _loaded(checkpoint)
    rng = np.random.default_rng(SEED)
    for number in range(scenes):
        scene = random_hard_scene(rng) if hard else random_scene(rng)
        said = captions(scene, rng)
        path = folder / f"{'hard-' if hard else ''}scene-{number}.jpg"
        image = Image.fromarray(picture(scene, PIXELS))
        if captioner is None:
            _save(_boxed(image, scene), path)
            yield Exhibit(path, said[0], tuple(f"- {caption}" for caption in said[1:]))
        else:
            yield _captioned(captioner, image, scene, path)


@cache
def _loaded(checkpoint: str) -> Captioner:
    return load(checkpoint)


def _captioned(captioner: Captioner, image: Image.Image, scene: Scene, path: Path) -> Exhibit:
    [caption] = captioner.caption([image])
    figure = overlay.draw(image, caption)
    figure.set_dpi(OVERLAY_DPI)
    figure.canvas.draw()
    _save(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB"), path)
    wrong = faults(caption.text, scene)
    verdict = f"Not right: {'; '.join(wrong)}." if wrong else "Right in all that it says."
    return Exhibit(path, caption.text or "(no words)", (verdict,))


def _boxed(image: Image.Image, scene: Scene) -> Image.Image:
    draw = ImageDraw.Draw(image)
    for seen in visible_masks(scene, PIXELS):
        left, top, width, height = box(seen)
        draw.rectangle((left - 2, top - 2, left + width + 1, top + height + 1), outline="white")
    return image


def _save(image: Image.Image, path: Path) -> None:
    image.save(path, quality=QUALITY, subsampling=0)


class Gallery(SphinxDirective):
    """All exhibits."""

    option_spec: ClassVar = {"hard": directives.flag}

    def run(self) -> list[nodes.Node]:
        """A picture and its captions for each scene."""
        folder = Path(self.env.srcdir) / "_generated" / "gallery"
        hard = "hard" in self.options
        checkpoint = "" if hard else self.config.gallery_checkpoint
        lines = []
        for exhibit in exhibits(folder, checkpoint, hard=hard):
            lines += [
                f":::{{figure}} /_generated/gallery/{exhibit.picture.name}",
                f":alt: {exhibit.title}",
                f":figclass: {'gallery-wide' if checkpoint else 'gallery'}",
                "",
                f"{exhibit.title}",
                "",
                *exhibit.lines,
                ":::",
                "",
            ]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directive and its setting."""
    app.add_config_value("gallery_checkpoint", "", "env", types=[str])
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True}

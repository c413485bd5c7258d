"""The pages of `captioning demo`: free photos to click and, in another tab, drawn scenes."""

import io
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Path
from fastapi.responses import Response
from PIL import Image
from starlette.staticfiles import StaticFiles

from captioning.captioner import load
from captioning.serving.app import application
from captioning.serving.decoding import Decoders
from captioning.serving.protection import Limits
from captioning.shapes import picture, random_scene
from captioning.shelf import DEFAULT_MODEL
from captioning.web.page import PHOTO_BUTTONS, PHOTOS

PIXELS = 256  # side of a scene's picture
SPLIT = 3  # none of the data set's: no scene of the page is one of the training's
MOST = 10**6  # scenes
SCENE_BUTTON = (
    '<button id="scene" class="primary" type="button">Draw a new scene</button> '
    "<span>This model knows circles, squares, triangles, stars and crosses, and no photos.</span>"
)
TABS = (
    '<a href="" aria-current="page">Photos</a> <a href="drawn/">Drawn scenes</a>',
    '<a href="../">Photos</a> <a href="" aria-current="page">Drawn scenes</a>',
)
"""Of the page of photos, and of that of drawn scenes below it."""


def demo_application(
    limits: Limits, maps: Sequence[str] = (), model: str = DEFAULT_MODEL
) -> FastAPI:
    """Both pages; `model` captions the photos."""
    decoders = Decoders(limits)
    app = application(load(model), model, 16, limits, maps, PHOTO_BUTTONS, TABS[0], decoders)
    shapes = load("shapes")
    drawn = application(shapes, "shapes", 16, limits, maps, SCENE_BUTTON, TABS[1], decoders)
    pictures: dict[int | str, dict[str, Any]] = {
        200: {"content": {"image/png": {}}},
        422: {"description": "no such scene"},
    }
    drawn.get("/scenes/{number}", response_class=Response, responses=pictures)(scene)
    app.mount("/photos", StaticFiles(directory=PHOTOS["cat.jpg"].parent))
    app.mount("/drawn", drawn)
    return app


def scene(number: Annotated[int, Path(ge=0, lt=MOST)]) -> Response:
    """The picture of a drawn scene; a number always gives the same one."""
    drawn = random_scene(np.random.default_rng([0, SPLIT, number]))
    file = io.BytesIO()
    Image.fromarray(picture(drawn, PIXELS)).save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")

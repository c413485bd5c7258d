"""Drawn scenes for the page."""

import io
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path
from fastapi.responses import Response
from PIL import Image

from captioning.shapes import picture, random_scene

PIXELS = 256  # side of a scene's picture
SPLIT = 3  # none of the data set's: no scene of the page is one of the training's
MOST = 10**6  # scenes

scenes = APIRouter()


@scenes.get(
    "/scenes/{number}",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}, 422: {"description": "no such scene"}},
)
def scene(number: Annotated[int, Path(ge=0, lt=MOST)]) -> Response:
    """The picture of a drawn scene; a number always gives the same one."""
    drawn = random_scene(np.random.default_rng([0, SPLIT, number]))
    file = io.BytesIO()
    Image.fromarray(picture(drawn, PIXELS)).save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")

"""Pictures for the page to begin with: free photos, or drawn scenes."""

import io
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Path
from fastapi.responses import FileResponse, Response
from PIL import Image

from captioning.shapes import picture, random_scene
from captioning.web.page import PHOTO_BUTTONS, PHOTOS

PIXELS = 256  # side of a scene's picture
SPLIT = 3  # none of the data set's: no scene of the page is one of the training's
MOST = 10**6  # scenes
DRAWN = "drawn"
"""Where the page of drawn scenes lies, below that of photos."""


@dataclass(frozen=True)
class Examples:
    """Pictures that a page offers.

    Attributes:
        router: the addresses of the pictures.
        buttons: in HTML, what draws a scene or captions a photo.
        tabs: in HTML, links to the pages of the demo.
    """

    router: APIRouter
    buttons: str
    tabs: str


scenes, photos = APIRouter(), APIRouter()
SCENES = Examples(
    scenes,
    '<button id="scene" type="button">Draw a new scene</button> '
    "<span>This model knows circles, squares, triangles, stars and crosses, and no photos.</span>",
    '<a href="../">Photos</a> <a href="" aria-current="page">Drawn scenes</a>',
)
FREE_PHOTOS = Examples(
    photos,
    PHOTO_BUTTONS,
    f'<a href="" aria-current="page">Photos</a> <a href="{DRAWN}/">Drawn scenes</a>',
)


@photos.get(
    "/photos/{name}",
    response_class=FileResponse,
    responses={200: {"content": {"image/jpeg": {}}}, 404: {"description": "no such photo"}},
)
def photo(name: str) -> FileResponse:
    """One of the free photos."""
    if name not in PHOTOS:
        raise HTTPException(404, "no such photo")
    return FileResponse(PHOTOS[name], media_type="image/jpeg")


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

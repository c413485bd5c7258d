"""Makes pictures of pages at work: docs/page.gif, docs/sure.jpg and docs/offset.jpg.

Needs Chromium and the extra `dev`: `python scripts/pictures.py`.
"""

import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import captioning
from captioning.commands import main

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = ROOT / "captioning" / "web" / "photos"
SIZE = {"width": 620, "height": 615}  # to the end of what is said of a word


def shot(page: Any) -> Image.Image:
    """What the page shows now, when its colours have stopped changing."""
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def side_by_side(shots: list[Image.Image]) -> Image.Image:
    """One picture of pictures of equal size."""
    width, height = shots[0].size
    both = Image.new("RGB", (width * len(shots), height))
    for place, each in enumerate(shots):
        both.paste(each, (place * width, 0))
    return both


def moving(page: Any, path: Path) -> None:
    """A GIF of the photo, then of each word that is pointed at."""
    frames, words = [shot(page)], page.locator(".words .bar")
    for place in range(words.count()):
        words.nth(place).hover()
        frames.append(shot(page))
    colors = side_by_side(frames).quantize(200)
    frames = [frame.quantize(palette=colors) for frame in frames]
    times = [1500] + [900] * (len(frames) - 2) + [1800]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0)


def write_pictures() -> None:
    """Write all pictures."""
    with TemporaryDirectory() as folder, sync_playwright() as tools:
        photos = [str(PHOTOS / name) for name in ("cat.jpg", "flower.jpg")]
        main(["caption", *photos, "--html", folder])
        plain = captioning.load()
        plain.model.encoder.offset = (0.0, 0.0)
        plain(photos[0]).save(Path(folder) / "plain.html")
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = tools.chromium.launch(executable_path=path, args=["--no-sandbox"])
        shots = []
        for name in ("cat", "flower"):
            page = browser.new_page(viewport=SIZE)
            page.goto((Path(folder) / f"{name}.html").as_uri())
            shots.append(shot(page))
            if name == "cat":
                moving(page, ROOT / "docs" / "page.gif")
        side_by_side(shots).save(ROOT / "docs" / "sure.jpg", quality=85)
        shots = []
        for name in ("plain", "cat"):
            page.goto((Path(folder) / f"{name}.html").as_uri())
            page.locator(".words .bar").nth(1).hover()
            page.wait_for_timeout(500)
            shots.append(Image.open(io.BytesIO(page.locator(".stage").screenshot())))
        side_by_side(shots).save(ROOT / "docs" / "offset.jpg", quality=85)


if __name__ == "__main__":
    write_pictures()

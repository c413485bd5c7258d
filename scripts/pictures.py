"""Makes pictures of pages at work: page.webp, page.jpg, sure.jpg and offset.jpg in docs/.

Needs Chromium, the extra `dev` and npm's registry: `python scripts/pictures.py`.
"""

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import captioning
from captioning.commands import main

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = ROOT / "captioning" / "web" / "photos"
EVERYDAY = ("giraffe", "dogs", "fig")
SIZE = {"width": 620, "height": 640}  # to the end of what is said of a word
NARROW = {"width": 500, "height": 664}


def shot(page: Any) -> Image.Image:
    """What the page shows now, when its colours have stopped changing."""
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def side_by_side(shots: list[Image.Image]) -> Image.Image:
    """One picture of pictures of equal size."""
    width, height = shots[0].size
    both = Image.new("RGB", (width * len(shots), height))
    for place, picture in enumerate(shots):
        both.paste(picture, (place * width, 0))
    return both


def write_moving(page: Any, path: Path) -> None:
    """An animation of the photo, then of each word that is pointed at."""
    frames, words = [shot(page)], page.locator(".words .bar")
    for place in range(words.count()):
        words.nth(place).hover()
        frames.append(shot(page))
    times = [1500] + [900] * (len(frames) - 2) + [1800]
    options = {"append_images": frames[1:], "duration": times, "loop": 0}
    frames[0].save(path, save_all=True, quality=92, method=6, kmax=0, **options)


@contextmanager
def served(folder: str) -> Iterator[str]:
    """The address of a folder's files, until the block ends."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def write_hidden(browser: Any, path: Path) -> None:
    """The page without a server, with the building of temple.jpg hidden."""
    page = browser.new_page(viewport={"width": 760, "height": 1158})
    page.set_default_timeout(300_000)  # it loads a model
    with TemporaryDirectory() as folder, served(folder) as address:
        main(["export", "photos", folder, "--web"])
        page.goto(address)
        page.locator("[data-photo='temple.jpg']").click()
        page.wait_for_selector("body:not(.busy) #status:text-is('temple.jpg')")
        box = page.locator(".stage").bounding_box()
        page.mouse.move(box["x"] + 0.02 * box["width"], box["y"] + 2)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] - 2)
        page.mouse.up()
        page.wait_for_selector("body:not(.busy) #before:not(:empty)")
        page.locator("#view .words .new").first.hover()
        shot(page).save(path, quality=85)


def write_sure(browser: Any, folder: Path, path: Path) -> None:
    """The pages of the everyday photos side by side."""
    shots = []
    for name in EVERYDAY:
        page = browser.new_page(viewport=NARROW)
        page.goto((folder / f"{name}.html").as_uri())
        shots.append(shot(page))
    side_by_side(shots).save(path, quality=85)


def write_pictures() -> None:
    """Write all pictures."""
    docs = ROOT / "docs"
    with TemporaryDirectory() as folder, sync_playwright() as tools:
        for name in ("cat", *EVERYDAY):  # one by one: without links to each other
            main(["caption", str(PHOTOS / f"{name}.jpg"), "--html", folder])
        plain = captioning.load()
        plain.model.encoder.offsets[plain.preprocessing.size] = (0.0, 0.0)
        plain(PHOTOS / "cat.jpg").save(Path(folder) / "plain.html")
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = tools.chromium.launch(executable_path=path, args=["--no-sandbox"])
        write_hidden(browser, docs / "page.jpg")
        write_sure(browser, Path(folder), docs / "sure.jpg")
        page = browser.new_page(viewport=SIZE)
        page.goto((Path(folder) / "cat.html").as_uri())
        write_moving(page, docs / "page.webp")
        shots = []
        for name in ("plain", "cat"):
            page.goto((Path(folder) / f"{name}.html").as_uri())
            page.locator(".words .bar").nth(1).hover()
            page.wait_for_timeout(500)
            shots.append(Image.open(io.BytesIO(page.locator(".stage").screenshot())))
        side_by_side(shots).save(docs / "offset.jpg", quality=85)


if __name__ == "__main__":
    write_pictures()

import contextlib
import http.server
import io
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import yaml
from filelock import FileLock
from PIL import Image

os.environ["WANDB_MODE"] = "disabled"  # in fixtures of the session


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures that import PyTorch, which takes seconds, only where tests are run.

    The process with which pytest-xdist hands out tests to others needs none.
    """
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        from tests import fixtures

        config.pluginmanager.register(fixtures)


@pytest.fixture(autouse=True)
def without_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B is off, unless a test is of it; what loggers change for the process ends with a test."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_DATA_DIR", "")  # so that it is unset after the test, too
    monkeypatch.delenv("WANDB_DATA_DIR")


@pytest.fixture(scope="session", autouse=True)
def without_cached_data_sets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The library `datasets`, which reads this as it is imported, caches in a temporary folder."""
    os.environ["HF_DATASETS_CACHE"] = str(tmp_path_factory.getbasetemp() / "datasets")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets beside the checkout, where a developer's machine has them."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}")
    return folder


MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Fills a folder, by its name, once for all processes of a run of the tests.

    The first process that asks for the folder fills it while the others wait. No test may change
    what is in it.
    """
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = common.parent

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder, made = common / f"once-{name}", common / f"once-{name}.made"
        with FileLock(common / f"once-{name}.lock"):
            if not made.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
                folder.mkdir()
                fill(folder)
                made.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def tiny_config(shapes_data: Path, made_once: MadeOnce) -> Path:
    """A configuration that trains on the drawn scenes in a second: 3 epochs of 3 steps."""

    def part(name: str, **init_args: Any) -> dict[str, Any]:
        return {"class_path": f"captioning.{name}", "init_args": init_args}

    reader = part("data.readers.Coco", root=str(shapes_data))
    model = {
        "encoder": part("models.CNNEncoder", backbone="small", weights=None, trainable_stages=-1),
        "decoder": part("models.LSTMDecoder", embedding_dim=8, hidden_dim=8, attention_dim=8),
        "search": part("search.BeamSearch", width=2, max_length=6),
    }
    data = {"reader": reader, "size": 32, "batch_size": 2, "min_count": 1, "workers": 0}
    trainer = {"max_epochs": 3, "accelerator": "cpu"}
    text = yaml.safe_dump({"data": data, "model": model, "trainer": trainer})
    return made_once("config", lambda to: (to / "tiny.yaml").write_text(text)) / "tiny.yaml"


Trained = Callable[..., Path]


@pytest.fixture(scope="session")
def trained(tiny_config: Path, made_once: MadeOnce) -> Trained:
    """Folders of trainings by `tiny_config`, from a name and further options.

    Each is trained once for all processes; not to be changed by a test.
    """

    def folder_of(name: str, *options: str) -> Path:
        def train(folder: Path) -> None:
            from captioning.commands import main

            given = ["--config", str(tiny_config), "--trainer.default_root_dir", str(folder)]
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                assert main(["train", *given, *options]) == 0, errors.getvalue()

        return made_once(name, train)

    return folder_of


@pytest.fixture(scope="session")
def checkpoint(trained: Trained) -> Path:
    """What `captioning train` leaves behind, without a page; not to be changed by a test."""
    pages = ("--validation_page.images=0", "--validation_grounding.images=0")
    return trained("run", *pages) / "best.ckpt"


@pytest.fixture(scope="module")  # while it runs, no other test of its thread may use asyncio
def browser() -> Iterator[Any]:
    """Headless Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        # Chromium's own sandbox does not work for root, as whom continuous integration runs.
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened_page(
    browser: Any, address: str, allowed: tuple[str, ...] = (), **options: Any
) -> Iterator[Any]:
    """A page in a context of its own, in the end as wide as its window and light or dark as asked.

    It must have had no errors, and asked for no more than is allowed.

    Args:
        browser: the fixture.
        address: of the page.
        allowed: what requests of the page begin with, such as "GET http://". By default it lies
            on the disk, and must log nothing either.
        options: of the context.
    """
    context = browser.new_context(reduced_motion="reduce", **options)
    page, wrong = context.new_page(), []
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(f"{request.method} {request.url[:200]}"))
    if not allowed:
        page.on("console", lambda message: wrong.append(message.text))
    page.goto(address)
    yield page
    assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
    red, *_ = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
    assert (int(red) < 64) == (options.get("color_scheme") == "dark")
    context.close()
    known = ("GET data:", *(allowed or ("GET file:",)))
    assert [entry for entry in wrong if not entry.startswith(known)] == []


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of a page with their attributes."""
    found = []

    class Document(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Document().feed(page)
    return found


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """No checks of types and shapes: while a graph is traced, sizes are tensors, too."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def quick_ones(values: Iterable[Any], quick: Callable[[Any], bool]) -> list[Any]:
    """Values for a test, which takes all but the quick ones before releases alone."""
    slow = pytest.mark.integration
    return [pytest.param(value, marks=() if quick(value) else slow) for value in values]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 1) -> str:
    """The one line on stderr with which a command refuses its input."""
    from captioning.commands import main

    capsys.readouterr()
    assert main(arguments) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("captioning: ")
    return line


def image_file(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The content of a file with this image, of a format by its name in Pillow."""
    image.save(file := io.BytesIO(), kind, **options)
    return file.getvalue()


def draw_photos(folder: Path, *names: str, first: int = 0) -> None:
    """Different photos of 60 x 40 pixels, by their names below a folder; `first` is a seed."""
    for seed, name in enumerate(names, first):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        patches = np.random.default_rng(seed).integers(0, 255, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(patches).resize((60, 40)).save(path)


def write_flickr8k(folder: Path) -> None:
    """Four photos in Flickr8k's own files."""
    draw_photos(folder, *(f"Images/{number}.jpg" for number in range(4)), first=1000)
    captions = [f"{number}.jpg#{n}\tA dog number {n} ." for number in range(4) for n in range(5)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(captions))
    (folder / "Flickr_8k.trainImages.txt").write_text("0.jpg\n1.jpg\n2.jpg\n")
    (folder / "Flickr_8k.devImages.txt").write_text("3.jpg\n")


@contextlib.contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Writing more bytes to a file fails in the middle, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


Served = Callable[[Path], str]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[Served]:
    """Serves folders by Python's own server; gives their addresses."""
    with contextlib.ExitStack() as stack:

        def address_of(folder: Path) -> str:
            handler = partial(Quiet, directory=str(folder))
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(server.server_close)
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/"

        yield address_of

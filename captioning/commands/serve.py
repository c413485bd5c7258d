"""`captioning serve` and `captioning demo`: a web page and a JSON API for captions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from captioning.commands.options import MAPS, ModelOptions, SearchOptions
from captioning.errors import InputError
from captioning.shelf import DEFAULT

Offered = Annotated[
    tuple[str, ...],
    Parameter(
        name="--map",
        help=f"A map of a word that requests may choose: {MAPS}; repeatable, and the first is "
        "their default. By default all that the model has.",
    ),
]

LIMITS = Group("Limits", help="What is refused.")


def serve_captions(
    *,
    using: ModelOptions = ModelOptions(),
    search: SearchOptions = SearchOptions(),
    maps: Offered = (),
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_host: tuple[str, ...] = (),
    max_megabytes: Annotated[int, Parameter(group=LIMITS)] = 20,
    max_megapixels: Annotated[int, Parameter(group=LIMITS)] = 25,
    timeout: Annotated[float, Parameter(group=LIMITS)] = 30.0,
    queue: Annotated[int, Parameter(group=LIMITS)] = 64,
) -> None:
    """Serve a page in the browser and a JSON API, until interrupted; needs the extra serve.

    Args:
        host: Address to listen on; 0.0.0.0 for all of this machine.
        port: 0 for any free one.
        allow_host: A further name of the server, besides localhost and --host, such as that of a
            proxy; repeatable. With --host 0.0.0.0 this machine's name and all numeric addresses
            are allowed too.
        max_megabytes: Of a photo.
        max_megapixels: Of a photo; decoding takes some 10 MB for each.
        timeout: Seconds that a request may take.
        queue: Photos that wait or are captioned at a time.
    """
    with _extra():
        from captioning import serving

    address = serving.free_address(host, port)
    hosts = serving.allowed_hosts(address[0], host, allow_host)
    captioner = using.load()
    limits = serving.Limits(
        bytes=max_megabytes * 1_000_000,
        pixels=max_megapixels * 1_000_000,
        seconds=timeout,
        requests=queue,
    )
    app = serving.application(
        captioner,
        search.of(captioner),
        " + ".join("/".join(Path(path).parts[-2:]) for path in using.model),  # no whole paths
        using.batch_size,
        limits,
        hosts,
        maps=maps,
    )
    serving.serve(app, address, limits)


def demo(
    *,
    port: int = 0,
    no_browser: bool = False,
    maps: Offered = (),
) -> None:
    """Open the web page at once: the model that comes with the package, and photos to click.

    Another tab has drawn scenes. Needs the extra serve.

    Args:
        port: By default any free one.
        no_browser: Only print the address.
    """
    with _extra():
        from captioning import serving
        from captioning.serving.demo import FREE_PHOTOS, SCENES
    from captioning.captioner import load

    address = serving.free_address("127.0.0.1", port)
    limits = serving.Limits()
    of_scenes, of_photos = load("shapes"), load(DEFAULT)
    app = serving.application(
        of_photos,
        of_photos.search,
        DEFAULT,
        batch_size=16,
        limits=limits,
        examples=FREE_PHOTOS,
        maps=maps,
        tab=serving.service(of_scenes, of_scenes.search, "shapes", 16, limits, SCENES, maps),
    )
    serving.serve(app, address, limits, opens_browser=not no_browser)


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"this command needs {error.name}; run pip install 'captioning[serve]'"
        ) from None

"""`captioning demo`: the web page at once, with a model and pictures that the package has."""

import argparse

from captioning.cli.options import add_maps, add_number
from captioning.cli.serve import OFFERED
from captioning.errors import UsageError
from captioning.numbers import Port
from captioning.shelf import DEFAULT


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_number(parser, "--port", Port, "default: any free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    add_maps(parser, OFFERED, default="all, the default map first")


def run(options: argparse.Namespace) -> int:
    """Caption photos, and drawn scenes in a tab, on the page until interrupted."""
    try:
        from captioning.serving import (
            Limits,
            allowed_hosts,
            application,
            listening_socket,
            serve,
            service,
        )
        from captioning.serving.demo import FREE_PHOTOS, SCENES
    except ImportError as error:
        raise UsageError(
            f"demo needs {error.name}, which is not installed; pip install 'captioning[serve]'"
        ) from None
    from captioning.captioner import load

    host = "127.0.0.1"
    with listening_socket(host, options.port or 0) as listening:
        limits, maps = Limits(), options.maps
        of_scenes, of_photos = load("shapes"), load(DEFAULT)
        app = application(
            of_photos,
            of_photos.search,
            DEFAULT,
            batch_size=16,
            limits=limits,
            hosts=allowed_hosts(listening, host, []),
            examples=FREE_PHOTOS,
            maps=maps,
            tab=service(of_scenes, of_scenes.search, "shapes", 16, limits, SCENES, maps),
        )
        serve(app, listening, limits, opens_browser=not options.no_browser)
    return 0

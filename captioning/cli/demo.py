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
    parser.add_argument(
        "--scenes",
        action="store_true",
        help="a model of drawn shapes captions freshly drawn scenes, instead of photos",
    )
    add_maps(parser, OFFERED, default="all, the default map first")


def run(options: argparse.Namespace) -> int:
    """Caption photos, or drawn scenes, on the page until interrupted."""
    try:
        from captioning.serving import Limits, allowed_hosts, application, listening_socket, serve
        from captioning.serving.demo import FREE_PHOTOS, SCENES
    except ImportError as error:
        raise UsageError(
            f"demo needs {error.name}, which is not installed; pip install 'captioning[serve]'"
        ) from None
    from captioning.captioner import load

    host = "127.0.0.1"
    with listening_socket(host, options.port or 0) as listening:
        captioner, limits = load("shapes" if options.scenes else DEFAULT), Limits()
        app = application(
            captioner,
            captioner.search,
            "of drawn scenes" if options.scenes else "of photos",
            batch_size=16,
            limits=limits,
            hosts=allowed_hosts(listening, host, []),
            examples=SCENES if options.scenes else FREE_PHOTOS,
            maps=options.maps,
        )
        serve(app, listening, limits, opens_browser=not options.no_browser)
    return 0

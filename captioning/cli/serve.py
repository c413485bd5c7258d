"""`captioning serve`: a web page and a JSON API for captions."""

import argparse
from pathlib import Path

from captioning.cli.model_options import add_model, add_search, model_and_search
from captioning.cli.options import add_maps
from captioning.errors import UsageError
from captioning.numbers import Megabytes, Megapixels, Port, Requests, Seconds, option

OFFERED = "a map of a word that requests may choose; the first is their default"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    add_search(parser)
    add_maps(parser, OFFERED, default="all, the default map first")
    where = parser.add_argument_group("address")
    where.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 for all of this machine (default: this machine alone)",
    )
    where.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name of the server, besides localhost and --host, such as that of a proxy; "
        "may be given again. With --host 0.0.0.0 this machine's name and all numeric addresses are "
        "allowed too",
    )
    where.add_argument(
        "--port",
        type=option(Port),
        default=8000,
        metavar="N",
        help="0 for any free one (default: 8000)",
    )
    limits = parser.add_argument_group("limits", "what is refused")
    limits.add_argument(
        "--max-megabytes",
        type=option(Megabytes),
        default=20,
        metavar="N",
        help="of a photo (default: 20)",
    )
    limits.add_argument(
        "--max-megapixels",
        type=option(Megapixels),
        default=50,
        metavar="N",
        help="of a photo; decoding takes some 10 MB for each (default: 50)",
    )
    limits.add_argument(
        "--timeout",
        type=option(Seconds),
        default=30,
        metavar="S",
        help="seconds that a request may take (default: 30)",
    )
    limits.add_argument(
        "--queue",
        type=option(Requests),
        default=64,
        metavar="N",
        help="photos that wait or are captioned at a time (default: 64)",
    )


def run(options: argparse.Namespace) -> int:
    """Answer requests until interrupted."""
    try:
        from captioning.serving import Limits, allowed_hosts, application, listening_socket, serve
    except ImportError as error:
        raise UsageError(
            f"serve needs {error.name}, which is not installed; pip install 'captioning[serve]'"
        ) from None
    with listening_socket(options.host, options.port) as listening:
        hosts = allowed_hosts(listening, options.host, options.allow_host)
        captioner, search = model_and_search(options)
        limits = Limits(
            bytes=options.max_megabytes * 1_000_000,
            pixels=options.max_megapixels * 1_000_000,
            seconds=float(options.timeout),
            requests=options.queue,
        )
        name = " + ".join(
            "/".join(Path(path).parts[-2:]) for path in options.model
        )  # no whole paths
        batch_size, maps = options.batch_size, options.maps
        app = application(captioner, search, name, batch_size, limits, hosts, maps=maps)
        serve(app, listening, limits)
    return 0

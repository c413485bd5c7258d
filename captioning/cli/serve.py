"""`captioning serve`: a web page and a JSON API for captions."""

import argparse
from pathlib import Path

from captioning.cli.model_options import add_model, add_search, model_and_search
from captioning.cli.options import add_maps, add_number
from captioning.errors import UsageError
from captioning.numbers import Megabytes, Megapixels, Port, Requests, Seconds
from captioning.shelf import DEFAULT

OFFERED = "a map of a word that requests may choose; the first is their default"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, DEFAULT)
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
    add_number(where, "--port", Port, "0 for any free one", 8000)
    limits = parser.add_argument_group("limits", "what is refused")
    add_number(limits, "--max-megabytes", Megabytes, "of a photo", 20)
    each = "of a photo; decoding takes some 10 MB for each"
    add_number(limits, "--max-megapixels", Megapixels, each, 50)
    add_number(limits, "--timeout", Seconds, "seconds that a request may take", 30, "S")
    add_number(limits, "--queue", Requests, "photos that wait or are captioned at a time", 64)


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
        given = options.model or [DEFAULT]
        name = " + ".join("/".join(Path(path).parts[-2:]) for path in given)  # no whole paths
        batch_size, maps = options.batch_size, options.maps
        app = application(captioner, search, name, batch_size, limits, hosts, maps=maps)
        serve(app, listening, limits)
    return 0

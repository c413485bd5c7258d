"""`captioning serve`: a web page and a JSON API for captions."""

import argparse
import socket
from pathlib import Path

from captioning.cli.options import Commands, add_model, add_search, model_and_search, positive
from captioning.errors import UsageError


def add(commands: Commands) -> None:
    """Tell the parser of this command."""
    parser = commands.add_parser("serve", help="a web page and a JSON API for captions")
    add_model(parser)
    add_search(parser)
    where = parser.add_argument_group("address")
    where.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 for all of this machine (default: this machine alone)",
    )
    where.add_argument(
        "--port", type=_port, default=8000, metavar="N", help="0 for any free one (default: 8000)"
    )
    limits = parser.add_argument_group("limits", "what is refused")
    limits.add_argument(
        "--max-megabytes", type=positive, default=20, metavar="N", help="of a photo (default: 20)"
    )
    limits.add_argument(
        "--max-megapixels",
        type=positive,
        default=50,
        metavar="N",
        help="of a photo; decoding takes up to 20 MB for each (default: 50)",
    )
    limits.add_argument(
        "--timeout",
        type=positive,
        default=30,
        metavar="S",
        help="seconds from a request to its answer (default: 30)",
    )
    limits.add_argument(
        "--queue",
        type=positive,
        default=64,
        metavar="N",
        help="requests that are answered or wait at a time (default: 64)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer requests until interrupted."""
    try:
        import uvicorn

        from captioning.models.folding import folded
        from captioning.serving import Limits, application
    except ImportError as error:
        raise UsageError(
            f"serve needs {error.name}, which is not installed; pip install 'captioning[serve]'"
        ) from None
    listening = _socket(options.host, options.port)
    captioner, search = model_and_search(options)
    captioner.encoder = folded(captioner.encoder)
    limits = Limits(
        bytes=options.max_megabytes * 1_000_000,
        pixels=options.max_megapixels * 1_000_000,
        seconds=float(options.timeout),
        requests=options.queue,
    )
    name = " + ".join("/".join(Path(path).parts[-2:]) for path in options.model)  # no whole paths
    app = application(captioner, search, name, options.batch_size, limits)
    config = uvicorn.Config(
        app, log_level="warning", server_header=False, timeout_graceful_shutdown=options.timeout
    )
    host, port = listening.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    try:
        with captioner.prepared():
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        return 0  # the way to end it
    return 0


def _port(text: str) -> int:
    if text.isdecimal() and int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")


def _socket(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a wrong address is told before the model is loaded.

    Raises:
        UsageError: no socket can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port} ({error.strerror}); "
            "give another --host or --port"
        ) from None

"""Where the server listens."""

import socket

from captioning.errors import UsageError


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket, opened first so that a wrong address fails before the model is loaded.

    Args:
        host: a name or an address.
        port: 0 for any free one.

    Raises:
        UsageError: no socket can listen at this address.
    """
    if not host.strip():  # which would be every address of this machine
        raise UsageError("--host is empty; give an address, or 0.0.0.0 for all of this machine")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, ValueError) as error:  # ValueError: no name can be like this
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UsageError(
            f"cannot listen on {host}, port {port} ({reason}); give another --host or --port"
        ) from None


def url_of(listening: socket.socket) -> str:
    """The address of the socket, as a browser takes it."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"

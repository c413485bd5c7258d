"""Which names the server answers to, and from which pages it takes photos.

A page from another server may send requests to any address that the browser reaches, this machine
included. By DNS rebinding, where the page's name is made to resolve to this machine, it might even
read the answers; the Host header still holds the page's name then.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from captioning.errors import UsageError
from captioning.serving.refusals import refusal

AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII)
"""A name or an address, with an optional port."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods that change nothing and never run the model."""

MOST_HEADERS = 100
LONGEST_HEADERS = 16_384
"""Bytes of all headers and the address in total."""


@dataclass(frozen=True)
class Hosts:
    """The allowed Host headers, with any port, since the port differs behind a tunnel.

    Attributes:
        names: in lower case; loopback's are always allowed.
        trusted: further names, whose pages may send photos even if a proxy changes Host.
        every_address: whether to allow all numeric addresses. A browser sends one only if its
            user or a link gave the number, so DNS rebinding cannot use one.
    """

    names: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()
    every_address: bool = False

    def allow(self, authority: str) -> bool:
        """Whether a Host header is allowed."""
        name = _name(authority)
        if name is None:
            return False
        try:
            address = ip_address(name)
        except ValueError:
            return name == "localhost" or name in self.names | self.trusted
        return self.every_address or address.is_loopback or name in self.names | self.trusted

    def allow_origin(self, origin: str, host: str) -> bool:
        """Whether a page may send photos to the server.

        Args:
            origin: the Origin header, which names the page's server.
            host: the Host header.
        """
        scheme, _, authority = origin.lower().partition("://")
        port = {"http": ":80", "https": ":443"}.get(scheme)
        if port is None or _name(authority) is None:
            return False
        same = authority.removesuffix(port) == host.lower().removesuffix(port)
        return same or _name(authority) in self.trusted


def hosts_of(listening: socket.socket, host: str, allowed: Iterable[str]) -> Hosts:
    """The names of a server.

    Args:
        listening: its socket.
        host: the address or name of --host.
        allowed: further names.

    Raises:
        UsageError: one of them is not a host name.
    """
    trusted = set()
    for given in allowed:
        found = AUTHORITY.fullmatch(given.lower())
        if found is None or found[2]:
            raise UsageError(
                f"--allow-host {given!r} is not a host name; give a name or an address alone, "
                "such as photos.example.org"
            )
        trusted.add(_bare(found[1]))
    address = listening.getsockname()[0]
    names = {host.lower(), address}
    is_everywhere = ip_address(address.partition("%")[0]).is_unspecified
    if is_everywhere:
        own = socket.gethostname().lower()
        names |= {own, f"{own}.local"}
    return Hosts(frozenset(names), frozenset(trusted), every_address=is_everywhere)


def _name(authority: str) -> str | None:
    """The host of "host:port", without the brackets of IPv6, or None where it is none."""
    found = AUTHORITY.fullmatch(authority.lower())
    return _bare(found[1]) if found else None


def _bare(name: str) -> str:
    return name.strip("[]").removesuffix(".")


class HostCheck:
    """Middleware that refuses requests meant for another host, or sent by another's page.

    Args:
        app: the wrapped app.
        hosts: the names that the server answers to.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse."""
        refused = self._refused(scope) if scope["type"] == "http" else None
        if refused is None:
            await self.app(scope, receive, send)
        else:
            await refusal(*refused)(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence of the refusal; None if nothing is wrong."""
        headers = Headers(scope=scope)
        size = sum(len(name) + len(value) for name, value in headers.raw)
        size += len(scope["raw_path"]) + len(scope["query_string"])
        if len(headers) > MOST_HEADERS or size > LONGEST_HEADERS:
            sentence = (
                f"more than {MOST_HEADERS} headers, or {LONGEST_HEADERS} bytes of them and of the "
                "address; send fewer"
            )
            return 431, sentence
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _name(hosts[0]) is None:
            return 400, "the Host header names no host; send the one of this server's address"
        if not self.hosts.allow(hosts[0]):
            name = _name(hosts[0])
            return 421, f"this server is not {name}; if it should be, start it with --allow-host"
        if scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        is_foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if is_foreign or (origin is not None and not self.hosts.allow_origin(origin, hosts[0])):
            return 403, "pages of other servers may not send photos here; open this server's own"
        return None

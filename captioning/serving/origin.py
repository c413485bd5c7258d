"""Which host names the server answers to, which pages may send it photos, and what pages may do.

A page of another site may send requests to any address that the browser reaches, including this
machine. By DNS rebinding, where the page's own name is made to resolve to this machine, it could
even read the answers; the Host header still holds the page's name then.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioning.errors import InputError
from captioning.serving.refusals import refusal
from captioning.web.page import SERVER, policy

AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+?)\.?)(:[0-9]{1,5})?", re.ASCII)
"""An IPv6 address or a name, with an optional port."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")  # which never run the model

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Security headers for browsers, besides the content security policy."""


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts that requests may be for, besides loopback, in lower case and with any port.

    Attributes:
        names: of the server.
        trusted: further names, whose pages may send photos even if a proxy changes Host.
        every_address: whether to allow all numeric addresses, which DNS rebinding cannot use.
    """

    names: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()
    every_address: bool = False

    def __contains__(self, name: str) -> bool:
        """Whether a host is allowed, without its port."""
        if name == "localhost" or name in self.names | self.trusted:
            return True
        try:
            return ip_address(name).is_loopback or self.every_address
        except ValueError:
            return False


def allowed_hosts(address: str, host: str, further: Iterable[str]) -> AllowedHosts:
    """The names of a server: its address, that of --host and those of --allow-host.

    Raises:
        InputError: a name of --allow-host is malformed.
    """
    trusted = set()
    for given in further:
        if (name := _name(f"{given}:1")) is None:
            raise InputError(
                f"--allow-host {given!r} is not a host name; give a name or an address without "
                "a port, such as photos.example.org"
            )
        trusted.add(name)
    names = {host.lower(), address}
    is_everywhere = ip_address(address.partition("%")[0]).is_unspecified
    if is_everywhere:
        own = socket.gethostname().lower()
        names |= {own, f"{own}.local"}
    return AllowedHosts(frozenset(names), frozenset(trusted), is_everywhere)


def _name(authority: str) -> str | None:
    """The host of "host:port" without brackets; None if malformed."""
    found = AUTHORITY.fullmatch(authority.lower())
    return found and (found[1] or found[2])


def with_origin_check(app: ASGIApp, hosts: AllowedHosts) -> ASGIApp:
    """The app, without requests for another host or sent by another site's page.

    Starlette's TrustedHostMiddleware cannot allow all numeric addresses, and gives no remedy.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        refused = None
        if scope["type"] == "http":
            refused = _refusal(Headers(scope=scope), scope["method"], hosts)
        await (refused or app)(scope, receive, send)

    return checked


def with_security_headers(app: ASGIApp) -> ASGIApp:
    """The app, with the security headers in every answer."""
    allowed = f"{policy(SERVER)}; frame-ancestors 'none'"

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS | {"Content-Security-Policy": allowed})
            await send(message)

        await app(scope, receive, sent)

    return wrapped


def _refusal(headers: Headers, method: str, hosts: AllowedHosts) -> ASGIApp | None:
    given = headers.getlist("host")
    name = _name(given[0]) if len(given) == 1 else None
    if name is None:
        return refusal(400, "the Host header is missing or malformed; send this server's name")
    if name not in hosts:
        sentence = f"this server is not {name}; if it should be, start it with --allow-host"
        return refusal(421, sentence)
    origin = headers.get("origin", f"http://{given[0]}").lower()
    scheme, _, authority = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme)
    is_same = port and authority.removesuffix(port) == given[0].lower().removesuffix(port)
    is_own = port and (is_same or _name(authority) in hosts.trusted)
    is_direct = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    if method in SAFE_METHODS or (is_own and is_direct):
        return None
    return refusal(403, "pages of other sites may not send photos; open this server's own page")

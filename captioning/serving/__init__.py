"""A web page and a JSON API that caption photos from strangers.

`application` makes the ASGI app and `serve` runs it until it is interrupted. Needs the extra
`serve`.
"""

from captioning.serving.app import application, service
from captioning.serving.origin import AllowedHosts, allowed_hosts
from captioning.serving.refusals import Limits
from captioning.serving.server import free_address, serve, web_server

__all__ = [
    "AllowedHosts",
    "Limits",
    "allowed_hosts",
    "application",
    "free_address",
    "serve",
    "service",
    "web_server",
]

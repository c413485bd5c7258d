"""A web page and a JSON API that caption photos from strangers; needs the extra `serve`.

`application` makes the app, `Protection` bounds what strangers may send to it, and `serve` runs
both until they are interrupted.
"""

from captioning.serving.app import application
from captioning.serving.protection import AllowedHosts, Limits, Protection
from captioning.serving.server import free_address, serve, web_server

__all__ = [
    "AllowedHosts",
    "Limits",
    "Protection",
    "application",
    "free_address",
    "serve",
    "web_server",
]

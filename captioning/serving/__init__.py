"""The web page and the JSON API, which caption photos from strangers and do nothing else.

`application` makes the app and `serve` answers until it is interrupted. Needs the extra `serve`.
"""

from captioning.serving.address import listening_socket
from captioning.serving.app import application
from captioning.serving.hosts import Hosts, hosts_of
from captioning.serving.limits import Limits
from captioning.serving.log import faults_on_stderr
from captioning.serving.run import serve
from captioning.serving.server import Server

__all__ = [
    "Hosts",
    "Limits",
    "Server",
    "application",
    "faults_on_stderr",
    "hosts_of",
    "listening_socket",
    "serve",
]

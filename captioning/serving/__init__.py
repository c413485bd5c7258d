"""The web page and the JSON API: photos from strangers become captions, and nothing else happens.

`application` makes the app and `Server` serves it; `captioning serve` does both. Needs the extra
`serve`.
"""

from captioning.serving.app import application
from captioning.serving.hosts import Hosts, hosts_of
from captioning.serving.limits import Limits
from captioning.serving.log import faults_on_stderr
from captioning.serving.server import Server

__all__ = ["Hosts", "Limits", "Server", "application", "faults_on_stderr", "hosts_of"]

"""The web page and the JSON API: photos from strangers become captions, and nothing else happens.

`application` makes the app; `captioning serve` runs it. Needs the extra `serve`.
"""

from captioning.serving.app import application
from captioning.serving.limits import Limits

__all__ = ["Limits", "application"]

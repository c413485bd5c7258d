"""The whole model as one: photos in, captions out; saved, loaded, and several as an ensemble."""

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.captioner.checkpoint import load

__all__ = ["Caption", "Captioner", "load"]

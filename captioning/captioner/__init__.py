"""What people use: captioners, captions, loading and exporting."""

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.captioner.checkpoint import load
from captioning.captioner.exporting import export

__all__ = ["Caption", "Captioner", "export", "load"]

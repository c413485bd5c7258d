"""What people use: captioners, captions, loading, exporting and ensembles."""

from captioning.captioner.caption import Caption
from captioning.captioner.captioner import Captioner
from captioning.captioner.checkpoint import export, load

__all__ = ["Caption", "Captioner", "export", "load"]

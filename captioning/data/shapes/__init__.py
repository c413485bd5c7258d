"""The built-in data set: drawn scenes with known objects, relations and captions."""

from captioning.data.shapes.drawing import box, mask, picture
from captioning.data.shapes.judge import faults
from captioning.data.shapes.language import captions
from captioning.data.shapes.scene import Background, Scene, Shape, random_scene, relation
from captioning.data.shapes.writer import read_scenes, write_shapes

__all__ = [
    "Background",
    "Scene",
    "Shape",
    "box",
    "captions",
    "faults",
    "mask",
    "picture",
    "random_scene",
    "read_scenes",
    "relation",
    "write_shapes",
]

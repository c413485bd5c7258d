"""The built-in data set: drawn scenes with known objects, relations and captions."""

from captioning.shapes.drawing import box, mask, picture
from captioning.shapes.language import captions, is_right
from captioning.shapes.random_scenes import random_scene
from captioning.shapes.scene import Background, Scene, Shape, relation
from captioning.shapes.writer import read_scenes, write_shapes

__all__ = [
    "Background",
    "Scene",
    "Shape",
    "box",
    "captions",
    "is_right",
    "mask",
    "picture",
    "random_scene",
    "read_scenes",
    "relation",
    "write_shapes",
]

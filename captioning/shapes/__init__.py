"""The built-in data set: drawn scenes with known objects, relations and captions."""

from captioning.shapes.drawing import box, mask, picture, visible_masks
from captioning.shapes.language import captions, is_right
from captioning.shapes.random_scenes import random_hard_scene, random_scene
from captioning.shapes.scene import Background, Mark, Scene, Shape, Texture, relation
from captioning.shapes.writer import read_scenes, write_shapes

__all__ = [
    "Background",
    "Mark",
    "Scene",
    "Shape",
    "Texture",
    "box",
    "captions",
    "is_right",
    "mask",
    "picture",
    "random_hard_scene",
    "random_scene",
    "read_scenes",
    "relation",
    "visible_masks",
    "write_shapes",
]

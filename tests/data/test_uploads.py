import io

import numpy as np
import pytest
from PIL import Image

from captioning.data.images import PhotoSizeError, Upload, read_image, read_reduced
from captioning.data.records import Record
from captioning.errors import InputError


def test_an_upload_is_read_as_its_file_is(shapes_records: list[Record]) -> None:
    path = shapes_records[0].image
    upload = Upload(path.name, path.read_bytes(), 10_000_000)
    assert np.array_equal(read_image(upload), read_image(path))
    assert read_reduced(upload, 16).size == read_image(path).size


def test_an_upload_of_too_many_pixels_is_refused_by_its_header() -> None:
    header = b"P6 2000 1000 255\n"  # of a file that lacks all pixels
    with pytest.raises(PhotoSizeError, match=r"^big: 2000 x 1000 pixels are more than the 1 mill"):
        read_image(Upload("big", header, 1_000_000))


def test_postscript_is_not_run() -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "EPS")
    with pytest.raises(InputError, match=r"^drawing: not an image"):
        read_image(Upload("drawing", file.getvalue(), 1_000_000))

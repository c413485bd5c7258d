from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from captioning.data.images import PhotoSizeError, Upload, read_image, read_reduced_photo
from captioning.errors import InputError

RED, GREEN = (255, 0, 0), (0, 255, 0)


def half_red_half_green(height: int) -> Image.Image:
    """A photo twice as wide as high, red on the left."""
    image = Image.new("RGB", (2 * height, height), GREEN)
    image.paste(RED, (0, 0, height, height))
    return image


def near(pixel: Any, expected: tuple[int, int, int], tolerance: int = 8) -> bool:
    return bool(np.abs(np.subtract(pixel, expected)).max() <= tolerance)


def grey_level(path: Path) -> list[int]:
    return np.asarray(read_image(path))[..., 0].ravel().tolist()


def test_alpha_is_laid_on_white_in_proportion(tmp_path: Path) -> None:
    pixels = np.array([[[0, 0, 0, 0], [0, 0, 0, 51], [0, 0, 0, 255]]], np.uint8)
    Image.fromarray(pixels).save(tmp_path / "alpha.png")
    assert grey_level(tmp_path / "alpha.png") == [255, 204, 0]


WIDE = [("uint16", "png", "I;16"), ("uint16", "tif", "I;16"), (">u2", "tif", "I;16B")]
WIDE += [("uint16", "pgm", "I"), ("int32", "tif", "I"), ("float32", "tif", "F")]


@pytest.mark.parametrize("white", [255, 1023, 4095, 16383, 65535])
@pytest.mark.parametrize(("kind", "suffix", "mode"), WIDE)
def test_the_white_of_wide_greys_is_that_of_the_bits_they_use(
    tmp_path: Path, kind: str, suffix: str, mode: str, white: int
) -> None:
    path = tmp_path / f"wide.{suffix}"
    for brightest in (white, white * 0.6):
        Image.fromarray(np.array([[0, white / 5, brightest]]).astype(kind)).save(path)
        with Image.open(path) as image:
            assert image.mode == mode
        assert grey_level(path) == [0, 51, round(brightest / white * 255)]


@pytest.mark.parametrize(
    ("kind", "greys"),
    [
        ("int32", [0, 200_000, 1_000_000]),  # no depth of its own: the largest is white
        ("float32", [0, 200_000, 1_000_000]),
        ("float32", [0, 0.2, 1]),
        ("int32", [-1024, 819, 4095]),  # of a CT
    ],
)
def test_other_greys_are_seen_from_black_to_white(
    tmp_path: Path, kind: str, greys: list[float]
) -> None:
    Image.fromarray(np.array([greys], kind)).save(tmp_path / "wide.tif")
    assert grey_level(tmp_path / "wide.tif") == [0, 51, 255]


@pytest.mark.parametrize("kind", ["uint16", "int32", "float32"])
def test_greys_without_light_stay_black(tmp_path: Path, kind: str) -> None:
    Image.fromarray(np.zeros((1, 3), kind)).save(tmp_path / "black.tif")
    assert grey_level(tmp_path / "black.tif") == [0, 0, 0]


def test_a_photo_is_turned_upright_as_its_exif_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: what is stored left belongs on top
    half_red_half_green(16).save(tmp_path / "turned.jpg", exif=exif, subsampling=0)
    image = read_image(tmp_path / "turned.jpg")
    assert image.size == (16, 32)
    assert near(image.getpixel((8, 2)), RED)


@pytest.mark.parametrize(("side", "reduction"), [(161, 1), (160, 2), (81, 2), (40, 8), (2, 8)])
def test_a_large_jpeg_is_reduced_to_what_is_needed(
    tmp_path: Path, side: int, reduction: int
) -> None:
    half_red_half_green(320).save(tmp_path / "large.jpg")
    image, size = read_reduced_photo(tmp_path / "large.jpg", side)
    assert size == (640, 320)
    assert image.size == (640 // reduction, 320 // reduction)


@pytest.mark.parametrize("kind", ["baseline", "progressive", "CMYK", "several pictures"])
def test_colours_survive_the_reduction_of_every_kind_of_jpeg(tmp_path: Path, kind: str) -> None:
    photo, path = half_red_half_green(320), tmp_path / "large.jpg"
    photo = photo.convert("CMYK") if kind == "CMYK" else photo
    if kind == "several pictures":
        photo.save(path, "MPO", save_all=True, append_images=[photo])
    else:
        photo.save(path, progressive=kind == "progressive")
    image, _ = read_reduced_photo(path, 40)
    assert (image.mode, image.size) == ("RGB", (80, 40))
    assert near(image.getpixel((2, 8)), RED)
    assert near(image.getpixel((70, 8)), GREEN)


def test_megabytes_of_text_or_profile_do_not_hide_a_photo(tmp_path: Path) -> None:
    photo, texts = half_red_half_green(32), PngInfo()
    texts.add_text("workflow", "x" * 3_000_000, zip=True)
    texts.add_itxt("more", "x" * 3_000_000, zip=True)
    photo.save(tmp_path / "1.png", pnginfo=texts, icc_profile=bytes(3_000_000))
    assert read_image(tmp_path / "1.png").tobytes() == photo.tobytes()


@pytest.mark.filterwarnings("ignore:Image size")  # Pillow warns of more than 89 megapixels
@pytest.mark.parametrize(
    ("side", "limit", "message"),
    [(10_001, 10**8, r"10001 x 10001 pixels are more"), (20_000, 10**9, "too many pixels; scale")],
)
def test_a_photo_of_too_many_pixels_is_refused_by_its_header(
    tmp_path: Path, side: int, limit: int, message: str
) -> None:
    (tmp_path / "large.ppm").write_bytes(b"P6 %d %d 255\n" % (side, side))  # no pixels follow
    with pytest.raises(PhotoSizeError, match=rf"large\.ppm: {message}"):
        read_image(tmp_path / "large.ppm", limit)


@pytest.mark.parametrize("kind", ["EPS", "PCX"])
def test_other_formats_are_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (8, 8)).save(path, kind)
    for photo in (path, Upload("photo", path.read_bytes(), 1000)):
        with pytest.raises(InputError, match="not an image that can be read"):
            read_image(photo)


def test_a_heic_photo_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    plugin = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    plugin.from_pillow(half_red_half_green(32)).save(tmp_path / "photo.heic")
    image = read_image((tmp_path / "photo.heic").rename(tmp_path / "photo.jpg"))
    assert near(image.getpixel((4, 16)), RED, 20)
    assert near(image.getpixel((60, 16)), GREEN, 20)

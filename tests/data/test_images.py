import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data import images
from captioning.data.images import (
    MEGAPIXELS,
    MOST_MEGAPIXELS,
    PhotoSizeError,
    Upload,
    pixels_of,
    read_image,
    read_photo,
)
from captioning.data.records import Record
from captioning.errors import InputError

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def half_red_half_green() -> Image.Image:
    """32 x 16 pixels, red on the left."""
    image = Image.new("RGB", (32, 16), GREEN)
    image.paste(RED, (0, 0, 16, 16))
    return image


def near(pixel: object, expected: tuple[int, int, int], tolerance: int = 8) -> bool:
    return bool(np.abs(np.subtract(pixel, expected)).max() <= tolerance)


def grey_level(path: Path) -> list[int]:
    return np.asarray(read_image(path))[..., 0].ravel().tolist()


def large_half_red_half_green() -> Image.Image:
    """640 x 320 pixels, red on the left."""
    return half_red_half_green().resize((640, 320), Image.Resampling.NEAREST)


@pytest.mark.parametrize("mode", ["RGB", "P", "RGBA", "CMYK"])
def test_colours_survive_every_colour_mode(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("photo.tif" if mode == "CMYK" else "photo.png")
    half_red_half_green().convert(mode).save(path)
    image = read_image(path)
    assert image.mode == "RGB"
    assert near(image.getpixel((2, 8)), RED)
    assert near(image.getpixel((30, 8)), GREEN)


def test_a_cmyk_jpeg_is_not_inverted(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), WHITE).convert("CMYK").save(tmp_path / "print.jpg")
    assert near(read_image(tmp_path / "print.jpg").getpixel((8, 8)), WHITE)


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_grey_and_bilevel_images_become_rgb(tmp_path: Path, mode: str) -> None:
    Image.new("L", (4, 4), 255).convert(mode).save(tmp_path / "grey.png")
    image = read_image(tmp_path / "grey.png")
    assert (image.mode, image.getpixel((1, 1))) == ("RGB", WHITE)


def test_alpha_is_laid_on_white_in_proportion(tmp_path: Path) -> None:
    pixels = np.array([[[0, 0, 0, 0], [0, 0, 0, 51], [0, 0, 0, 255]]], np.uint8)
    Image.fromarray(pixels).save(tmp_path / "alpha.png")
    assert grey_level(tmp_path / "alpha.png") == [255, 204, 0]


@pytest.mark.parametrize("transparency", [0, bytes([0] * 256)], ids=["one colour", "table"])
def test_transparent_palette_colours_become_white(tmp_path: Path, transparency: object) -> None:
    Image.new("P", (4, 4), 0).save(tmp_path / "palette.png", transparency=transparency)
    assert read_image(tmp_path / "palette.png").getpixel((0, 0)) == WHITE


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_greys_are_scaled_and_not_clipped(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"wide.{suffix}"
    Image.fromarray(np.array([[0, 257, 100 * 257, 65535]], np.uint16)).save(path)
    assert grey_level(path) == [0, 1, 100, 255]


def test_a_16_bit_pgm_is_scaled_by_65535(tmp_path: Path) -> None:
    (tmp_path / "wide.pgm").write_bytes(b"P5 2 1 65535\n" + struct.pack(">HH", 257, 65535))
    assert grey_level(tmp_path / "wide.pgm") == [1, 255]


@pytest.mark.parametrize("white", [1.0, 255.0, 65535.0])
def test_floating_point_greys_are_scaled_by_their_white(tmp_path: Path, white: float) -> None:
    Image.fromarray(np.array([[0, white / 5, white]], np.float32)).save(tmp_path / "float.tif")
    assert grey_level(tmp_path / "float.tif") == [0, 51, 255]


def test_a_photo_is_turned_upright_as_its_exif_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: what is stored left belongs on top
    half_red_half_green().save(tmp_path / "turned.jpg", exif=exif, subsampling=0)
    image = read_image(tmp_path / "turned.jpg")
    assert image.size == (16, 32)
    assert near(image.getpixel((8, 2)), RED)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_does_not_lose_the_photo(tmp_path: Path) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x99"
    half_red_half_green().save(tmp_path / "photo.jpg", exif=exif)
    assert read_image(tmp_path / "photo.jpg").size == (32, 16)


def test_a_photo_of_one_pixel_is_read(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), RED).save(tmp_path / "dot.png")
    assert read_image(tmp_path / "dot.png").getpixel((0, 0)) == RED


@pytest.mark.parametrize(("side", "reduction"), [(161, 1), (160, 2), (81, 2), (40, 8), (2, 8)])
def test_a_large_jpeg_is_reduced_as_long_as_its_short_side_stays_large_enough(
    tmp_path: Path, side: int, reduction: int
) -> None:
    large_half_red_half_green().save(tmp_path / "large.jpg")
    image, size = read_photo(tmp_path / "large.jpg", side)
    assert size == (640, 320)
    assert image.size == (640 // reduction, 320 // reduction)


def test_a_small_jpeg_is_read_like_any_photo(tmp_path: Path) -> None:
    Image.effect_noise((99, 99), 80).save(tmp_path / "small.jpg")
    image = read_photo(tmp_path / "small.jpg", 50).image
    assert image.tobytes() == read_image(tmp_path / "small.jpg").tobytes()


def test_other_formats_are_not_reduced(tmp_path: Path) -> None:
    large_half_red_half_green().save(tmp_path / "large.png")
    image, size = read_photo(tmp_path / "large.png", 10)
    assert (image.size, size) == ((640, 320), (640, 320))


@pytest.mark.parametrize("kind", ["baseline", "progressive", "CMYK", "several pictures"])
def test_colours_survive_the_reduction_of_every_kind_of_jpeg(tmp_path: Path, kind: str) -> None:
    photo, path = large_half_red_half_green(), tmp_path / "large.jpg"
    if kind == "CMYK":
        photo.convert("CMYK").save(path)
    elif kind == "several pictures":
        photo.save(path, "MPO", save_all=True, append_images=[photo])
    else:
        photo.save(path, progressive=kind == "progressive")
    image, _ = read_photo(path, 40)
    assert (image.mode, image.size) == ("RGB", (80, 40))
    assert near(image.getpixel((2, 8)), RED)
    assert near(image.getpixel((70, 8)), GREEN)


def test_a_reduced_photo_is_turned_upright_with_its_size(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    large_half_red_half_green().save(tmp_path / "turned.jpg", exif=exif)
    image, size = read_photo(tmp_path / "turned.jpg", 40)
    assert (image.size, size) == ((40, 80), (320, 640))
    assert near(image.getpixel((20, 5)), RED)


def bad_file(folder: Path, kind: str) -> Path:
    path = folder / "photo.jpg"
    if kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("<html>not found</html>")
    elif kind == "folder":
        path.mkdir()
    elif kind == "truncated":
        half_red_half_green().resize((320, 160)).save(path)
        path.write_bytes(path.read_bytes()[:1000])
    elif kind == "truncated png":
        Image.effect_noise((64, 64), 50).save(path, "PNG")
        path.write_bytes(path.read_bytes()[:1000])
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "no such file"),
        ("empty", "empty file .* again"),
        ("text", "not an image .* convert it to JPEG or PNG"),
        ("folder", "a folder; give a regular file"),
        ("truncated", "damaged or cut short .* again"),
        ("truncated png", "damaged or cut short .* again"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name_and_a_remedy(
    tmp_path: Path, kind: str, message: str
) -> None:
    path = bad_file(tmp_path, kind)
    with pytest.raises(InputError, match=message) as caught:
        read_image(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_large_jpeg_that_is_cut_short_is_not_reduced_to_what_is_left(tmp_path: Path) -> None:
    Image.effect_noise((640, 640), 80).save(tmp_path / "large.jpg")
    whole = (tmp_path / "large.jpg").read_bytes()
    (tmp_path / "large.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"large\.jpg: damaged or cut short .* again"):
        read_photo(tmp_path / "large.jpg", 80)


@pytest.mark.filterwarnings("ignore:Image size")  # Pillow warns of more than 89 megapixels
@pytest.mark.parametrize("size", [(10_000, 10_001), (13_000, 13_000)])
def test_a_photo_of_more_than_100_megapixels_is_refused_by_its_header(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "large.ppm").write_bytes(b"P6 %d %d 255\n" % size)  # no pixels follow
    with pytest.raises(PhotoSizeError, match=rf"large\.ppm: {size[0]} x {size[1]} pixels are more"):
        read_image(tmp_path / "large.ppm")


def test_a_decompression_bomb_is_refused_whatever_the_limit(tmp_path: Path) -> None:
    (tmp_path / "bomb.ppm").write_bytes(b"P6 20000 20000 255\n")
    with pytest.raises(PhotoSizeError, match=r"bomb\.ppm: too many pixels; scale"):
        read_photo(tmp_path / "bomb.ppm", 2, max_pixels=10**9)


@pytest.mark.parametrize("side", [None, 4])
def test_a_call_may_set_another_limit(tmp_path: Path, side: int | None) -> None:
    Image.new("L", (100, 100)).save(tmp_path / "photo.png")
    read_photo(tmp_path / "photo.png", side, 10_000)
    with pytest.raises(PhotoSizeError, match=r"photo\.png: 100 x 100 .* raise max-megapixels"):
        read_photo(tmp_path / "photo.png", side, 9_999)


@pytest.mark.parametrize("megapixels", [0.0, -1.0, MOST_MEGAPIXELS + 1, float("nan"), float("inf")])
def test_an_impossible_limit_is_refused(megapixels: float) -> None:
    with pytest.raises(InputError, match=r"max_megapixels: give a number above 0 and at most 178"):
        pixels_of(megapixels)


def test_the_largest_limit_stays_within_pillows_own() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert pixels_of(MEGAPIXELS) < pixels_of(MOST_MEGAPIXELS) < 2 * Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("name", ["pipe.jpg", "/dev/zero"])
def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(InputError, match="a pipe or a device; give a regular file"):
        read_image(tmp_path / name)


@pytest.mark.parametrize("name", ["a\0b.jpg", f"{'a' * 300}.jpg"])
def test_an_impossible_path_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match=r"file name too long|null byte"):
        read_image(name)


@pytest.mark.parametrize("kind", ["EPS", "PCX"])
@pytest.mark.parametrize("is_upload", [False, True])
def test_other_formats_are_not_opened(tmp_path: Path, kind: str, is_upload: bool) -> None:
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (8, 8)).save(path, kind)
    photo = Upload("photo", path.read_bytes(), 1000) if is_upload else path
    with pytest.raises(InputError, match="not an image that can be read"):
        read_image(photo)


def test_an_upload_is_read_as_its_file_is(shapes_records: list[Record]) -> None:
    path = shapes_records[0].image
    upload = Upload(path.name, path.read_bytes(), 10_000_000)
    assert np.array_equal(read_image(upload), read_image(path))
    assert read_photo(upload, 16).size == read_image(path).size


def test_an_upload_of_too_many_pixels_is_refused_by_its_header() -> None:
    header = b"P6 2000 1000 255\n"
    with pytest.raises(PhotoSizeError, match=r"^big: 2000 x 1000 pixels are more than the 1 mill"):
        read_image(Upload("big", header, 1_000_000))


def heic(path: Path) -> Path:
    """A photo as an iPhone writes it."""
    plugin = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    plugin.from_pillow(half_red_half_green().resize((64, 32))).save(path)
    return path


def test_a_heic_photo_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    image = read_image(heic(tmp_path / "photo.heic").rename(tmp_path / "photo.jpg"))
    assert near(image.getpixel((4, 16)), RED, 20)
    assert near(image.getpixel((60, 16)), GREEN, 20)


def test_without_its_plugin_a_heic_photo_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = heic(tmp_path / "photo.heic")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    images._reads_heif.cache_clear()
    with pytest.raises(InputError, match=r"photo\.heic: HEIC.*pip install 'captioning\[heic\]'"):
        read_image(path)
    images._reads_heif.cache_clear()

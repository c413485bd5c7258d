import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data.images import read_image, read_reduced
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


def test_damaged_exif_data_does_not_lose_the_photo(tmp_path: Path) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x99"
    half_red_half_green().save(tmp_path / "photo.jpg", exif=exif)
    assert read_image(tmp_path / "photo.jpg").size == (32, 16)


def test_a_photo_of_one_pixel_is_read(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), RED).save(tmp_path / "dot.png")
    assert read_image(tmp_path / "dot.png").getpixel((0, 0)) == RED


@pytest.mark.parametrize(
    ("side", "reduction"), [(321, 1), (161, 1), (160, 2), (81, 2), (80, 4), (40, 8), (2, 8)]
)
def test_a_large_jpeg_is_reduced_as_long_as_its_short_side_stays_large_enough(
    tmp_path: Path, side: int, reduction: int
) -> None:
    large_half_red_half_green().save(tmp_path / "large.jpg")
    image, size, by, origin = read_reduced(tmp_path / "large.jpg", side)
    assert (size, by, origin) == ((640, 320), reduction, (0, 0))
    assert image.size == (640 // reduction, 320 // reduction)


def test_a_small_jpeg_is_read_like_any_photo(tmp_path: Path) -> None:
    Image.effect_noise((99, 99), 80).save(tmp_path / "small.jpg")
    image = read_reduced(tmp_path / "small.jpg", 50).image
    assert image.tobytes() == read_image(tmp_path / "small.jpg").tobytes()


def test_other_formats_are_not_reduced(tmp_path: Path) -> None:
    large_half_red_half_green().save(tmp_path / "large.png")
    image, size, reduction, _ = read_reduced(tmp_path / "large.png", 10)
    assert (image.size, size, reduction) == ((640, 320), (640, 320), 1)


@pytest.mark.parametrize("kind", ["baseline", "progressive", "CMYK", "several pictures"])
def test_colours_survive_the_reduction_of_every_kind_of_jpeg(tmp_path: Path, kind: str) -> None:
    photo, path = large_half_red_half_green(), tmp_path / "large.jpg"
    if kind == "CMYK":
        photo.convert("CMYK").save(path)
    elif kind == "several pictures":
        photo.save(path, "MPO", save_all=True, append_images=[photo])
    else:
        photo.save(path, progressive=kind == "progressive")
    image, _, reduction, _ = read_reduced(path, 40)
    assert (image.mode, reduction) == ("RGB", 8)
    assert near(image.getpixel((2, 8)), RED)
    assert near(image.getpixel((70, 8)), GREEN)


def test_a_reduced_grey_photo_is_rgb(tmp_path: Path) -> None:
    Image.new("L", (640, 320), 255).save(tmp_path / "grey.jpg")
    image = read_reduced(tmp_path / "grey.jpg", 40).image
    assert (image.mode, image.getpixel((1, 1))) == ("RGB", WHITE)


def test_a_reduced_photo_is_turned_upright_with_its_size(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    large_half_red_half_green().save(tmp_path / "turned.jpg", exif=exif)
    image, size, _, _ = read_reduced(tmp_path / "turned.jpg", 40)
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
        ("missing", "no such file; check the path"),
        ("empty", "empty file .* again"),
        ("text", "not an image .* convert it to JPEG or PNG"),
        ("folder", "a folder, not a photo; give"),
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
    assert "\n" not in str(caught.value)


def test_libtiff_prints_nothing_about_damaged_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Image.effect_noise((64, 64), 50).save(tmp_path / "photo.tif", compression="tiff_lzw")
    content = bytearray((tmp_path / "photo.tif").read_bytes())
    content[200:2200] = b"\x55" * 2000
    (tmp_path / "photo.tif").write_bytes(content)
    with pytest.raises(InputError, match="damaged or cut short"):
        read_image(tmp_path / "photo.tif")
    assert capfd.readouterr().err == ""


def test_a_large_jpeg_that_is_cut_short_is_not_reduced_to_what_is_left(tmp_path: Path) -> None:
    Image.effect_noise((640, 640), 80).save(tmp_path / "large.jpg")
    whole = (tmp_path / "large.jpg").read_bytes()
    (tmp_path / "large.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"large\.jpg: damaged or cut short .* again"):
        read_reduced(tmp_path / "large.jpg", 80)


def test_reducing_does_not_make_a_decompression_bomb_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_red_half_green().save(tmp_path / "bomb.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match=r"bomb\.jpg: too many pixels to be safe; scale"):
        read_reduced(tmp_path / "bomb.jpg", 2)


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half_red_half_green().save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match=r"bomb\.png: too many pixels to be safe; scale"):
        read_image(tmp_path / "bomb.png")


def test_warnings_work_again_after_many_threads_have_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_red_half_green().save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # above it Pillow warns
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_image, [tmp_path / "large.png"] * 64))
    assert warnings.filters == before

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.datastructures import UploadFile

from captioning.data.framing import Fit, scaled_down
from captioning.data.images import DecodedPhoto, read_image, read_reduced_photo
from captioning.data.preprocessing import Preprocessing, View
from captioning.errors import InputError
from tests.conftest import image_file, unchecked

PHOTOS = {"wide": (240, 80), "tall": (70, 200), "square": (96, 96), "smaller": (20, 12)}


def ramp(size: tuple[int, int]) -> Image.Image:
    """A photo whose red is the pixel's column and whose green is its row."""
    rows, columns = np.mgrid[: size[1], : size[0]]
    return Image.fromarray(np.stack([columns, rows, 0 * rows], axis=-1).astype(np.uint8))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def middles(start: float, side: float, pixels: int) -> torch.Tensor:
    """Where the middles of the view's pixels lie in the photo, in its pixels' numbers."""
    return start + (torch.arange(pixels) + 0.5) * side / pixels - 0.5


def assert_crop_names_the_place(view: View) -> None:
    left, top, width, height = view.crop
    size = view.pixels.shape[-1]
    columns = view.pixels[0].float().mean(dim=0)
    rows = view.pixels[1].float().mean(dim=1)
    inside = slice(1, -1)  # at the border a filter sees less than it wants
    torch.testing.assert_close(columns[inside], middles(left, width, size)[inside], atol=1, rtol=0)
    torch.testing.assert_close(rows[inside], middles(top, height, size)[inside], atol=1, rtol=0)


def grey(values: type, white: float) -> Image.Image:
    return Image.fromarray((np.asarray(ramp((90, 60)).convert("L")) / 255 * white).astype(values))


@pytest.mark.parametrize(
    ("photo", "suffix"),
    [
        (ramp((90, 60)), "jpg"),
        (grey(np.uint16, 65535), "png"),
        (grey(np.uint16, 4095), "png"),
        (grey(np.int32, 255), "tiff"),
        (grey(np.float32, 1), "tiff"),
        (Image.merge("RGBA", [*ramp((90, 60)).split(), grey(np.uint8, 255)]), "png"),
        (grey(np.uint8, 255), "png"),
        (ramp((90, 60)).quantize(8), "gif"),
    ],
    ids=["turned", "16 bits", "12 bits", "32 bits", "float", "transparent", "grey", "palette"],
)
def test_a_photo_is_the_same_through_every_door(
    photo: Image.Image, suffix: str, tmp_path: Path
) -> None:
    path, exif = tmp_path / f"photo.{suffix}", Image.Exif()
    exif[0x112] = 6
    photo.save(path, **({"exif": exif} if suffix == "jpg" else {}))
    data, preprocessing = path.read_bytes(), Preprocessing(64)
    doors: list[Any] = [str(path), data, bytearray(data), memoryview(data), io.BytesIO(data)]
    doors += [UploadFile(io.BytesIO(data)), {"image": path}]
    doors += [{"image": {"bytes": data, "path": "gone.jpg"}}]
    doors += [{"bytes": None, "path": str(path)}, Image.open(io.BytesIO(data))]
    if suffix != "jpg":
        doors.append(np.asarray(photo if photo.mode != "P" else photo.convert("RGB")))
    seen, size = preprocessing(path).pixels, preprocessing(path).size
    for door in doors * 2:  # files are read again, from their beginning
        view = preprocessing(preprocessing.photo_source(door))  # type: ignore[arg-type]
        assert view.size == size
        torch.testing.assert_close(view.pixels, seen, atol=0, rtol=0)


def cut_short() -> Image.Image:
    """An image of Pillow whose file is damaged."""
    return Image.open(io.BytesIO(image_file(ramp((90, 60)), "JPEG")[:900]))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"img": "a.jpg"}, "'img': 'a.jpg'}: not a photo; give a path, an image, bytes or pixels"),
        (io.StringIO("text"), r"photo 3: read\(\) gives str, not bytes; open in binary mode"),
        (3.5, r"3\.5: not a photo"),
        (np.zeros((4, 4, 3)), r"pixels of float64 and shape \(4, 4, 3\): give uint8"),
        (torch.zeros(4, 4, 3, dtype=torch.bfloat16), "pixels of torch.bfloat16 and shape"),
        (cut_short(), "photo 3: damaged or closed image"),
    ],
)
def test_what_is_no_photo_is_one_line(wrong: Any, line: str) -> None:
    with unchecked(), pytest.raises(InputError, match=line):
        Preprocessing(32).photo_source(wrong, "photo 3")


@pytest.mark.parametrize("size", PHOTOS.values(), ids=PHOTOS)
def test_the_crop_is_where_the_pixels_come_from(size: tuple[int, int]) -> None:
    assert_crop_names_the_place(Preprocessing(32)(ramp(size)))
    for seed in range(5):
        view = Preprocessing(32).augmented(ramp(size), seeded(seed), flip=False)
        assert_crop_names_the_place(view)


@pytest.mark.parametrize("size", PHOTOS.values(), ids=PHOTOS)
@pytest.mark.parametrize("augmented", [False, True], ids=["whole", "augmented"])
def test_a_padded_photo_is_seen_whole_between_grey_bars(
    size: tuple[int, int], augmented: bool
) -> None:
    preprocessing, photo = Preprocessing(32, "pad"), ramp(size)
    view = preprocessing(photo)
    if augmented:
        view = preprocessing.augmented(photo, seeded(3), flip=False)
    left, top, width, height = view.crop
    assert width == pytest.approx(height, rel=1 / 8)  # bars take whole pixels of the image
    x, y = middles(left, width, 32) + 0.5, middles(top, height, 32) + 0.5  # in the photo
    inside = ((y > 0) & (y < size[1]))[:, None] & ((x > 0) & (x < size[0]))
    is_grey = (view.pixels == 128).all(dim=0)
    assert is_grey.equal(~inside)
    if not augmented:
        assert left <= 0 >= top
        assert left + width >= size[0] - 1e-9
        assert top + height >= size[1] - 1e-9
    columns = view.pixels[0].float().masked_fill(~inside, torch.nan).nanmean(dim=0)
    expected = (x - 0.5).masked_fill(~inside.any(dim=0), torch.nan)
    torch.testing.assert_close(columns[2:-2], expected[2:-2], atol=2, rtol=0, equal_nan=True)


def natural(width: int, height: int) -> Image.Image:
    """A photo with structure at all scales, the coarser the stronger, as natural photos have it."""
    generator = np.random.default_rng(0)
    total = np.zeros((height, width, 3))
    for cells in (3, 6, 12, 24, 48, 96, 192):
        patches = generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        scale = Image.fromarray(patches).resize((width, height), Image.Resampling.BICUBIC)
        total += (np.asarray(scale) - 127.5) * 3 / cells
    return Image.fromarray((127.5 + total / 2).clip(0, 255).astype(np.uint8))


def test_a_reduced_jpeg_gives_the_view_of_the_whole_photo(tmp_path: Path) -> None:
    natural(1200, 900).save(tmp_path / "large.jpg", quality=92)
    assert read_reduced_photo(tmp_path / "large.jpg", 147).image.size == (300, 225)
    whole = Preprocessing(64)(read_image(tmp_path / "large.jpg"))
    view = Preprocessing(64)(tmp_path / "large.jpg")
    assert (view.crop, view.size) == (whole.crop, whole.size)
    assert not view.pixels.equal(whole.pixels)
    assert (view.pixels.float() - whole.pixels.float()).abs().mean() < 1


@pytest.mark.parametrize("fit", ["crop", "pad", "squeeze"])
def test_a_photo_of_any_scale_gives_the_view_of_the_whole_photo(fit: Fit) -> None:
    photo = DecodedPhoto(natural(1000, 700), (1000, 700))
    whole, view = Preprocessing(64, fit)(photo), Preprocessing(64, fit)(scaled_down(photo, 480))
    assert (view.crop, view.size) == (whole.crop, whole.size)
    assert (view.pixels.float() - whole.pixels.float()).abs().mean() < 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_reduced_photo_shows_the_same_place_when_turned(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    # No multiple of the reduction, so that an edge of the reduced photo reaches beyond the photo.
    ramp((243, 201)).save(tmp_path / "turned.jpg", exif=exif, quality=98, subsampling=0)
    for seed in range(5):
        whole, view = (
            Preprocessing(16).augmented(photo, seeded(seed), flip=True)
            for photo in (read_image(tmp_path / "turned.jpg"), tmp_path / "turned.jpg")
        )
        assert (view.crop, view.size) == (whole.crop, whole.size)
        inside = np.s_[:2, 1:-1, 1:-1]  # beyond the border a JPEG holds what it likes
        difference = view.pixels[inside].float() - whole.pixels[inside].float()
        # Where the photo is flipped, it may lie up to a reduced pixel further, of four pixels.
        assert difference.abs().max() <= (1 if orientation in (1, 5) else 4)

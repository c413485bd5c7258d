import io
import os
import socket
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data.images import read_image, read_reduced
from captioning.data.megapixels import MAX_PIXELS, MEGAPIXELS, MOST_MEGAPIXELS, pixels_of
from captioning.data.photo_limits import (
    MAX_SCANS,
    MAX_SIDE,
    MemoryBudget,
    MeteredFile,
    PhotoSizeError,
)
from captioning.data.preprocessing import Preprocessing
from captioning.data.rgb import rgb
from captioning.errors import InputError


def header(width: int, height: int) -> bytes:
    """A grey PNG of which nothing but the header is there."""
    fields = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + fields + struct.pack(">I", zlib.crc32(fields))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 9) + b"IDAT"


def tiled(side: int) -> bytes:
    """A TIFF of 16 x 16 pixels in one tile of `side` x `side`, packed."""
    data = zlib.compress(bytes(16))
    tags = {
        **{256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1},
        **{322: side, 323: side, 324: 8 + 2 + 10 * 12 + 4, 325: len(data)},
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4) + data


def with_scans(count: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32), (90, 20, 30)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * (count - content.count(b"\xff\xda")) + content[-2:]


@pytest.mark.parametrize("size", [(10_000, 10_001), (13_000, 13_000)])
def test_a_photo_of_more_than_100_megapixels_is_refused_by_its_header(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "large.png").write_bytes(header(*size))
    with pytest.raises(
        PhotoSizeError, match=rf"{size[0]} x {size[1]} pixels are more than the 100"
    ):
        read_image(tmp_path / "large.png")


def test_no_side_may_be_so_long_that_a_pointer_for_each_row_fills_the_memory(
    tmp_path: Path,
) -> None:
    (tmp_path / "tall.png").write_bytes(header(1, MAX_SIDE + 1))
    with pytest.raises(PhotoSizeError, match=f"neither side may have more than {MAX_SIDE}"):
        read_image(tmp_path / "tall.png")


@pytest.mark.parametrize("read", [read_image, lambda path, most: read_reduced(path, 4, most)])
def test_a_call_may_set_another_limit(tmp_path: Path, read: object) -> None:
    assert callable(read)
    Image.new("L", (100, 100)).save(tmp_path / "photo.png")
    read(tmp_path / "photo.png", 10_000)
    with pytest.raises(PhotoSizeError, match=r"photo\.png: 100 x 100 .* raise max-megapixels"):
        read(tmp_path / "photo.png", 9_999)


def test_the_limit_of_a_preprocessing_is_no_part_of_what_a_checkpoint_keeps(tmp_path: Path) -> None:
    Image.new("L", (100, 100)).save(tmp_path / "photo.png")
    preprocessing = Preprocessing(32)
    assert preprocessing.max_pixels == MAX_PIXELS
    preprocessing.max_pixels = 9_999
    assert preprocessing.config == Preprocessing(32).config
    with pytest.raises(PhotoSizeError):
        preprocessing(tmp_path / "photo.png")


@pytest.mark.parametrize("megapixels", [0.0, -1.0, MOST_MEGAPIXELS + 1, float("nan"), float("inf")])
def test_a_limit_that_cannot_be_is_refused(megapixels: float) -> None:
    with pytest.raises(InputError, match=r"max_megapixels: give a number above 0 and at most 178"):
        pixels_of(megapixels)


def test_the_largest_limit_stays_within_pillows_own() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert pixels_of(MEGAPIXELS) < pixels_of(MOST_MEGAPIXELS) < 2 * Image.MAX_IMAGE_PIXELS


PEAK = """
import resource, sys
from captioning.data.images import read_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read_image(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


KEPT = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from captioning.data.images import read_image

def kept():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = kept()
threads = int(sys.argv[2])
meeting = threading.Barrier(threads)

def read(_):
    read_image(sys.argv[1])
    meeting.wait()

with ThreadPoolExecutor(threads) as pool:
    list(pool.map(read, range(threads)))
    print(kept() - before)
"""


@pytest.mark.parametrize("mode", ["RGBA", "I;16", "LA", "F"])
def test_a_photo_takes_at_most_ten_bytes_per_pixel(tmp_path: Path, mode: str) -> None:
    path, pixels = tmp_path / "photo.tif", 3000 * 3000
    Image.new(mode, (3000, 3000)).save(path, compression="tiff_deflate")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, check=True, text=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit < 10 * pixels + 20e6


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is reported by Linux only"
)
def test_threads_keep_no_memory_of_large_photos(tmp_path: Path) -> None:
    # Each thread's 72 MB, as photo and copy, would stay with it.
    path, threads = tmp_path / "photo.png", 6
    Image.new("RGBA", (3000, 3000)).save(path, compress_level=1)
    done = subprocess.run(
        [sys.executable, "-c", KEPT, str(path), str(threads)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(done.stdout) < threads * 72e6 / 2


@pytest.mark.parametrize("mode", ["RGBA", "LA", "I;16", "I", "F", "P"])
def test_strips_change_no_pixel(mode: str) -> None:
    values = np.random.default_rng(0).integers(0, 60_000, (23, 17, 4))
    if mode in ("RGBA", "LA"):
        image = Image.fromarray((values % 256).astype(np.uint8)).convert(mode)
    elif mode == "P":
        image = Image.fromarray((values[..., 0] % 256).astype(np.uint8)).convert("P")
        image.info["transparency"] = bytes(range(256))
    else:
        kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        image = Image.fromarray(values[..., 0].astype(kind))
    whole = rgb(image).tobytes()
    assert rgb(image, strip=40).tobytes() == whole


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket.jpg"))
        for name in ("pipe.jpg", "socket.jpg", "/dev/zero"):
            with pytest.raises(InputError, match="a device or pipe, not a photo"):
                read_image(tmp_path / name)


@pytest.mark.parametrize("name", ["a\0b.jpg", f"{'a' * 300}.jpg"])
def test_a_path_that_no_file_can_have_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match=r"check the path|give a shorter name"):
        read_image(name)


@pytest.mark.parametrize("kind", ["EPS", "PCX"])
def test_formats_that_could_do_more_than_show_pixels_are_not_read(
    tmp_path: Path, kind: str
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "photo.jpg", kind)
    with pytest.raises(InputError, match=f"{kind} files are not read; convert it to JPEG or PNG"):
        read_image(tmp_path / "photo.jpg")


@pytest.mark.parametrize("count", [MAX_SCANS, MAX_SCANS + 1])
def test_a_progressive_jpeg_of_endless_scans_is_refused(tmp_path: Path, count: int) -> None:
    (tmp_path / "photo.jpg").write_bytes(with_scans(count))
    if count <= MAX_SCANS:
        assert read_image(tmp_path / "photo.jpg").size == (32, 32)
    else:
        with pytest.raises(PhotoSizeError, match="progressive JPEG of more than 100 scans"):
            read_image(tmp_path / "photo.jpg")


def test_a_huge_tile_of_a_small_tiff_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.tif").write_bytes(tiled(20_000))
    with pytest.raises(PhotoSizeError, match="tiles of 20000 x 20000 pixels are too large"):
        read_image(tmp_path / "photo.tif")


def test_comments_that_take_pillow_minutes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "photo.ppm").write_bytes(b"P3 4 4 255\n" + b"#\n" * 500_000 + b"1 " * 48)
    with pytest.raises(PhotoSizeError, match="PNM in text of more than 16 MB or 100 comments"):
        read_image(tmp_path / "photo.ppm")


def test_a_small_pnm_in_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "photo.ppm").write_bytes(b"P3 2 1 255\n# two\n255 0 0  0 255 0\n")
    assert read_image(tmp_path / "photo.ppm").tobytes() == bytes([255, 0, 0, 0, 255, 0])


def test_an_endless_header_is_given_up() -> None:
    content = io.BytesIO(b"P6\n" + b"#\n" * 1000 + b"1 1 255\n123")
    file = MeteredFile(content, "photo.ppm", max_reads=1000)
    with pytest.raises(PhotoSizeError, match=r"photo\.ppm: in too many small pieces to be read"):
        Image.open(file)


def test_a_large_header_is_given_up() -> None:
    content = io.BytesIO()
    Image.new("L", (8, 8)).save(content, "JPEG", exif=bytes(60_000), comment=bytes(60_000))
    content.seek(0)
    file = MeteredFile(content, "photo.jpg", max_header=100_000)
    with pytest.raises(PhotoSizeError, match="before its pixels"):
        Image.open(file)


def test_photos_wait_for_room_and_one_that_is_larger_than_all_of_it_is_alone() -> None:
    memory, entered = MemoryBudget(10), threading.Event()

    def large() -> None:
        with memory.reserve(25):
            entered.set()

    with memory.reserve(4), memory.reserve(6):
        waiting = threading.Thread(target=large)
        waiting.start()
        assert not entered.wait(0.05)
    assert entered.wait(10)
    waiting.join()

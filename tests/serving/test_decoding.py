"""Uploads that cost what they like, and the processes that decode them."""

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest
from PIL import Image
from starlette.testclient import TestClient

from captioning.data.decoder import COMMAND, LENGTH, DecodedUpload, Job
from captioning.data.images import UPLOAD_KINDS, Upload
from tests.conftest import image_file
from tests.serving import costly
from tests.serving.conftest import Ask, Serve, assert_refused, wait_for, waiting

SIZE = 3_000_000  # bytes


def test_a_photo_that_takes_too_long_ends_its_process_only(ask: Ask, photo: bytes) -> None:
    client = ask(decoding_seconds=0.3)
    endless = {"photo": ("endless.jpg", costly.progressive_jpeg(20_000))}
    begun = time.monotonic()
    for _ in range(2):
        answer = client.post("/caption", files=endless)
        assert_refused(answer, 413, "endless.jpg: takes more than 0.3 seconds to decode; send a")
        assert client.post("/caption", files={"photo": photo}).status_code == 200
    assert time.monotonic() - begun < 20  # without an end, each takes a minute


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no memory")
def test_a_photo_that_takes_too_much_memory_is_refused(ask: Ask, photo: bytes) -> None:
    client = ask(pixels=1_000_000)
    answer = client.post("/caption", files={"photo": costly.jpeg_comments(4_000_000)})
    assert_refused(answer, 413, "upload: too many pixels")
    assert client.post("/caption", files={"photo": photo}).status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no memory")
def test_files_that_a_process_has_mapped_leave_a_photo_its_memory(photo: bytes) -> None:
    program = f"import mmap; mapped = mmap.mmap(-1, 400_000_000); {COMMAND}"
    job = Job(Upload("photo", photo, 1_000_000), 32, "crop", 0, memory=50_000_000)
    process = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(job), capture_output=True, check=True
    )
    answer = pickle.loads(process.stdout[2 * LENGTH :])  # after the empty one
    assert isinstance(answer, DecodedUpload)
    assert len(answer.pixels) == 32 * 32 * 3


def picture(kind: str) -> bytes:
    """A red photo as a file of a format by its name in Pillow."""
    return image_file(Image.new("RGB", (64, 48), "red"), kind)


def test_formats_of_the_web_and_of_phones_are_taken(client: TestClient) -> None:
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "AVIF", "HEIF"):
        if kind == "HEIF":
            pytest.importorskip("pillow_heif").register_heif_opener()
        answer = client.post("/caption", files={"photo": picture(kind)})
        assert answer.status_code == 200, kind


def test_other_formats_are_refused_by_naming_those_taken(client: TestClient) -> None:
    for kind in ("TIFF", "BMP", "PPM", "JPEG2000", "ICO"):
        answer = client.post("/caption", files={"photo": ("scan", picture(kind))})
        assert_refused(answer, 415, f"scan: not an image that can be read; send {UPLOAD_KINDS}")


def test_the_process_that_decodes_does_not_import_torch() -> None:
    code = "import sys, captioning.data.decoder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.integration
@pytest.mark.parametrize(("requests", "photos_each"), [(2, 1), (1, 6)])
@pytest.mark.parametrize(
    "costly_photo",
    [
        costly.progressive_jpeg,
        partial(costly.fill_bytes, SIZE),
        partial(costly.jpeg_comments, SIZE),
        partial(costly.gif_comments, SIZE),
        partial(costly.plain_ppm, SIZE),
        costly.tiff_of_one_tile,
    ],
    ids=["progressive JPEG", "fill bytes", "JPEG comments", "GIF comments", "PPM", "TIFF"],
)
def test_a_photo_is_captioned_while_costly_ones_are_decoded(
    serve: Serve,
    photo: bytes,
    costly_photo: Callable[[], bytes],
    requests: int,
    photos_each: int,
) -> None:
    client = serve(seconds=8.0, decoding_seconds=3.0)
    files = [("photo", costly_photo())] * photos_each
    assert client.post("/caption", files={"photo": photo}).status_code == 200
    with ThreadPoolExecutor(requests) as strangers:
        answers = [strangers.submit(client.post, "/caption", files=files) for _ in range(requests)]
        wait_for(lambda: waiting(client) == requests * photos_each or answers[0].done())
        begun = time.monotonic()
        assert client.post("/caption", files={"photo": photo}).status_code == 200
        assert time.monotonic() - begun < 2
        begun = time.monotonic()
        assert client.post("/caption", files={"photo": b"text"}).status_code == 415
        assert time.monotonic() - begun < 2  # no second try behind the costly photos
    assert {answer.result().status_code for answer in answers} <= {200, 413, 415, 504}


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_a_client_with_many_costly_photos_does_not_delay_another(
    serve: Serve, photo: bytes
) -> None:
    client, files = serve(queue=80, decoding_seconds=3.0), {"photo": costly.progressive_jpeg()}
    stranger = httpx.Client(
        base_url=client.base_url, transport=httpx.HTTPTransport(local_address="127.0.0.2")
    )
    with stranger, ThreadPoolExecutor(50) as threads:
        answers = [threads.submit(stranger.post, "/caption", files=files) for _ in range(50)]
        wait_for(lambda: waiting(client) == 40)  # half of the queue
        for _ in range(3):
            begun = time.monotonic()
            assert client.post("/caption", files={"photo": photo}).status_code == 200
            assert time.monotonic() - begun < 2
        stranger.close()
        for answer in answers:
            answer.cancel()

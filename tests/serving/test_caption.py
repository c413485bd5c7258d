import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import pytest
from PIL import Image
from starlette.testclient import TestClient

from captioning.captioner import Captioner
from captioning.data.images import Upload, read_image
from captioning.maps import MAPS
from captioning.search import BeamSearch
from captioning.viewing import viewer
from tests.serving.conftest import Ask, assert_refused, bomb, form, wait_for, waiting


def offered(client: TestClient) -> list[str]:
    """The maps that the page offers."""
    page = client.get("/").text.partition('name="compare"')[0]
    return re.findall('<option value="([^"]+)">', page)


def named(caption: dict[str, Any]) -> list[str]:
    """The names of a caption's maps."""
    return [each["map"] for each in caption["maps"]]


def asked(client: TestClient, photo: Any, **settings: str) -> httpx.Response:
    return client.post("/caption", files={"photo": photo}, data=settings)


def read(photo: bytes) -> Image.Image:
    return read_image(Upload("photo", photo, 10_000))


def test_a_photo_gets_the_caption_that_the_model_gives_it(
    client: TestClient, captioner: Captioner, photo: bytes
) -> None:
    answer = asked(client, photo)
    [expected] = captioner([read(photo)])
    [found] = answer.json()["captions"]
    assert answer.status_code == 200
    assert found["caption"] == expected.text
    probabilities = [word["probability"] for word in found["words"]]
    assert probabilities == pytest.approx(expected.probabilities, rel=1e-3)
    assert "view" not in answer.json()


def test_a_text_is_read_and_a_beginning_is_continued(
    client: TestClient, captioner: Captioner, photo: bytes
) -> None:
    for given, expected in (
        ({"text": "A red circle."}, captioner.read(read(photo), "a red circle")),
        ({"begin": "a red"}, captioner(read(photo), captioner.constrained("a red"))),
    ):
        [found] = asked(client, photo, **given).json()["captions"]
        assert found["caption"] == expected.text
        assert found["score"] == pytest.approx(expected.score, rel=1e-3)
        assert found["caption"].startswith("a red")


def test_the_view_has_the_chosen_map_and_the_one_beside_it(
    client: TestClient, captioner: Captioner, photo: bytes
) -> None:
    search, names = BeamSearch(width=3, max_length=5), ("occlusion", "grad-cam")
    chosen = {"view": "true", "beam": "3", "captions": "2", "map": names[0], "compare": names[1]}
    view = asked(client, photo, **chosen).json()["view"]
    best = captioner(read(photo), search, names, runners_up=3, most=2)
    captions = [each.view() for each in (best, *best.others)]
    assert view == viewer.data(read(photo), captions)


def test_maps_that_take_long_are_for_few_words(
    ask: Ask, captioner: Captioner, photo: bytes
) -> None:
    captioner.default_map = "occlusion"
    client = ask()
    assert offered(client)[0] == "occlusion"
    assert sorted(offered(client)) == sorted(MAPS)
    many = {"view": "true", "captions": "4", "beam": "4"}
    view = asked(client, photo, **many).json()["view"]
    assert [named(each) for each in view["captions"]] == [["occlusion"]] * 4
    many |= {"captions": "7", "beam": "7", "compare": "gradient"}
    sentence = (
        "maps by occlusion and gradient take long, so at most 30 words may have them, not 35; ask"
    )
    assert_refused(asked(client, photo, **many), 422, sentence)
    long = {"view": "true", "text": "a " * 100}
    sentence = "maps by occlusion take long, so at most 60 words may have them, not 100; ask"
    assert_refused(asked(client, photo, **long), 422, sentence)
    assert asked(client, photo, **long, map="attention").status_code == 200


def test_a_server_offers_the_maps_that_it_was_started_with(ask: Ask, photo: bytes) -> None:
    client = ask(maps=("evidence", "attention"))
    assert offered(client) == ["evidence", "attention"]
    [first] = asked(client, photo, view="true").json()["view"]["captions"]
    assert named(first) == ["evidence"]
    sentence = "map 'occlusion' is not offered here; choose from evidence, attention"
    assert_refused(asked(client, photo, view="true", map="occlusion"), 422, sentence)


def test_settings_that_make_no_sense_are_named(client: TestClient, photo: bytes) -> None:
    sampling = {"sample": "true"}
    for settings, sentence in (
        ({"captions": "0"}, "captions: Input should be greater than or equal to 1"),
        ({"beam": "wide"}, "beam: Input should be a valid integer"),
        ({"captions": "4", "beam": "3"}, "a beam of 3 finds fewer than 4 captions; send beam=4"),
        ({"beam": "3"} | sampling, "beam and sample exclude each other"),
        ({"temperature": "1"}, "temperature is for sampling; send sample=true with it"),
        ({"temperature": "nan"} | sampling, "temperature: Input should be a finite number"),
        ({"begin": "two"} | sampling, "begin is for beam search; leave out sample and text"),
        ({"begin": "red zebras"}, "'red zebras': the model does not know 'zebras'"),
        ({"text": "lime"}, "'lime': the model does not know 'lime'"),
        ({"text": "a" * 201}, "text: String should have at most 200 characters"),
        ({"beem": "3"}, "beem: Extra inputs are not permitted; see /docs"),
        ({"map": "occlusion"}, "map and compare are for the view; send view=true with them"),
        ({"compare": "lime", "view": "true"}, "map 'lime' is not offered here; choose from "),
    ):
        assert_refused(asked(client, photo, **settings), 422, sentence)


def test_files_that_are_no_photos_are_named(client: TestClient) -> None:
    for photo, status, sentence in (
        (("notes.txt", b"no photo"), 415, "notes.txt: not an image that can be read"),
        (("empty.jpg", b""), 415, "empty.jpg: empty file (0 bytes)"),
        (("bomb.png", bomb(9_000)), 413, "bomb.png: 9000 x 9000 pixels are more than the 25 mill"),
        ((None, "/etc/passwd"), 422, "photo: Value error, Expected UploadFile"),
    ):
        assert_refused(asked(client, photo), status, sentence)
    without = client.post("/caption", files={"view": (None, "true")})
    assert_refused(without, 422, "photo: Field required; see /docs for the fields")


def test_a_file_name_stays_one_line_of_unicode(client: TestClient) -> None:
    head = b'Content-Disposition: form-data; name="photo"; filename="\\ud800\\n.txt"'
    answer = client.post(
        "/caption",
        content=b"--b\r\n" + head + b"\r\n\r\nx\r\n--b--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=b; charset=unicode_escape"},
    )
    assert answer.status_code == 415
    assert ".txt: not an image" in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_other_bodies_than_a_form_of_few_files_are_refused(client: TestClient) -> None:
    for kind in ("application/json", "application/x-www-form-urlencoded", ""):
        answer = client.post("/caption", content=b"photo=1", headers={"Content-Type": kind})
        assert_refused(answer, 422, "photo: ")
    for kind in ("", '; filename="photo"'):
        part = f'--b\r\nContent-Disposition: form-data; name="photo"{kind}\r\n\r\nx\r\n'
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = client.post("/caption", content=part * 30 + "--b--\r\n", headers=headers)
        assert_refused(answer, 400, "Too many")


def several(client: TestClient, *photos: tuple[str, bytes], **settings: str) -> httpx.Response:
    return client.post("/caption", files=[("photo", photo) for photo in photos], data=settings)


def test_several_photos_are_answered_in_order_a_bad_one_by_its_error(
    client: TestClient, photos: list[bytes]
) -> None:
    files = [("a.png", photos[0]), ("notes.txt", b"no photo"), ("b.png", photos[1])]
    files += [("bomb.png", bomb(9_000)), ("c.png", photos[2])]
    for settings in ({}, {"view": "true", "beam": "3", "captions": "2"}, {"text": "a red circle"}):
        answer = several(client, *files, **settings)
        assert answer.status_code == 200
        first, notes, second, large, third = answer.json()["photos"]
        for alone, found in zip(photos, (first, second, third), strict=False):
            expected = asked(client, ("one.png", alone), **settings).json()
            assert found.keys() == expected.keys()
            texts = [caption["caption"] for caption in found["captions"]]
            assert texts == [caption["caption"] for caption in expected["captions"]]
            scores = [caption["score"] for caption in found["captions"]]
            others = [caption["score"] for caption in expected["captions"]]
            assert scores == pytest.approx(others, rel=1e-3)
        assert first["captions"][0]["score"] != second["captions"][0]["score"]
        assert notes["error"].startswith("notes.txt: not an image")
        assert large["error"].startswith("bomb.png: 9000 x 9000 pixels are more")
    assert_refused(several(client, *files, text="lime"), 422, "'lime': the model does not know")


def test_a_request_has_as_many_photos_as_the_server_takes(
    ask: Ask, held: Event, photo: bytes
) -> None:
    files = [("photo.png", photo)] * 3
    assert_refused(several(ask(photos=2), *files), 400, "Too many files. Maximum number of files")
    assert_refused(several(ask(queue=2), *files), 400, "Too many files. Maximum number of files")
    client = ask(queue=4)
    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(several, client, *files)
        wait_for(lambda: waiting(client) == 3)
        assert_refused(several(client, *files[:2]), 503, "3 photos are waiting; try again")
        assert waiting(client) == 3
        held.set()
        assert len(first.result().json()["photos"]) == 3
    assert waiting(client) == 0


def test_a_body_over_the_limit_is_refused_with_any_headers(ask: Ask) -> None:
    client = ask(bytes=100_000)
    headers, body = form(bytes(300_000))
    pieces = (body[start : start + 1000] for start in range(0, len(body), 1000))
    for content in (body, pieces):  # its length is announced or not
        answer = client.post("/caption", content=content, headers=headers)
        assert_refused(answer, 413, "more than 0.1 MB; send a smaller photo")

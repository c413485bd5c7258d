import io
import re

import httpx
import pytest
from PIL import Image

from captioning.captioner import Captioner
from captioning.data.images import Upload, read_image
from captioning.maps import MAPS
from captioning.search import BeamSearch
from captioning.serving import Limits, application
from captioning.viewing import viewer
from tests.serving.conftest import Serve, served


def read(photo: bytes) -> Image.Image:
    return read_image(Upload("photo", photo, 10_000))


def test_a_photo_gets_the_caption_that_the_model_gives_it(
    client: httpx.Client, captioner: Captioner, photo: bytes
) -> None:
    answer = client.post("/caption", files={"photo": photo})
    [expected] = captioner.caption([read(photo)])
    [found] = answer.json()["captions"]
    assert answer.status_code == 200
    assert found["caption"] == expected.text
    assert [word["probability"] for word in found["words"]] == pytest.approx(expected.probabilities)


def test_as_many_candidates_come_as_are_asked_for_the_best_first(
    client: httpx.Client, captioner: Captioner, photo: bytes
) -> None:
    answer = client.post(
        "/caption", files={"photo": photo}, data={"beam": "4", "captions": "3"}
    ).json()
    [expected] = captioner.candidates([read(photo)], BeamSearch(width=4, max_length=5))
    assert [found["caption"] for found in answer["captions"]] == [
        caption.text for caption in expected[:3]
    ]


def test_a_cold_sample_is_the_most_probable_caption(client: httpx.Client, photo: bytes) -> None:
    greedy = client.post("/caption", files={"photo": photo}, data={"beam": "1"})
    sampling = {"sample": "true", "temperature": "0.05"}
    cold = client.post("/caption", files={"photo": photo}, data=sampling)
    assert cold.json()["captions"][0]["caption"] == greedy.json()["captions"][0]["caption"]


def test_hot_samples_differ(client: httpx.Client, captioner: Captioner, photo: bytes) -> None:
    captioner.decoder.output.weight.detach().mul_(0.1)  # parameters at random can be too sure
    sampling = {"sample": "true", "temperature": "5", "captions": "10"}
    answer = client.post("/caption", files={"photo": photo}, data=sampling).json()
    assert len({found["caption"] for found in answer["captions"]}) > 1


def test_the_view_is_that_of_the_package(
    client: httpx.Client, captioner: Captioner, photo: bytes
) -> None:
    found = client.post("/caption", files={"photo": photo}, data={"view": "true"}).json()["view"]
    captions = captioner.caption([read(photo)], runners_up=3)
    expected = viewer.data(read(photo), captions)
    assert found["photo"] == expected["photo"]
    assert found["crop"] == expected["crop"]
    for word, expected_word in zip(
        found["captions"][0]["words"], expected["captions"][0]["words"], strict=True
    ):
        assert word["weights"] == expected_word["weights"]
        assert len(word["runners_up"]) == 3


def test_the_view_has_the_map_that_is_chosen_and_the_one_beside_it(
    client: httpx.Client, captioner: Captioner, photo: bytes
) -> None:
    names = ("occlusion", "fine-grad-cam")
    chosen = {"view": "true", "beam": "3", "captions": "2"} | dict(
        zip(("map", "compare"), names, strict=True)
    )
    view = client.post("/caption", files={"photo": photo}, data=chosen).json()["view"]
    search = BeamSearch(width=3, max_length=5)
    [candidates] = captioner.candidates([read(photo)], search, runners_up=3, maps=names, most=2)
    expected = viewer.data(read(photo), candidates, compares=True)
    assert view["compares"]
    assert [each["map"] for each in view["captions"]] == ["occlusion", "occlusion"]
    assert view["captions"] == expected["captions"]


def test_a_map_that_the_model_does_not_have_is_refused_in_a_sentence(
    client: httpx.Client, captioner: Captioner, photo: bytes
) -> None:
    captioner.encoder.register_forward_hook(lambda _, __, output: output.detach())
    chosen = {"view": "true", "map": "fine-grad-cam"}
    answer = client.post("/caption", files={"photo": photo}, data=chosen)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("map fine-grad-cam: this encoder gives no gradient")


def test_the_view_has_the_models_own_map_which_the_page_offers_first(
    serve: Serve, captioner: Captioner, photo: bytes
) -> None:
    captioner.shown_map = "evidence"
    client = serve()
    offered = re.findall('<option value="([^"]+)">', client.get("/").text)
    assert offered[: len(MAPS)] == ["evidence", *(name for name in MAPS if name != "evidence")]
    answer = client.post("/caption", files={"photo": photo}, data={"view": "true"}).json()
    assert answer["view"]["captions"][0]["map"] == "evidence"


def test_the_models_own_map_is_there_for_any_number_of_captions_though_it_takes_long(
    serve: Serve, captioner: Captioner, photo: bytes
) -> None:
    captioner.shown_map = "occlusion"
    client = serve()
    many = {"view": "true", "captions": "4", "beam": "4"}
    answer = client.post("/caption", files={"photo": photo}, data=many).json()
    assert [each["map"] for each in answer["view"]["captions"]] == ["occlusion"] * 4
    refused = client.post("/caption", files={"photo": photo}, data=many | {"compare": "gradient"})
    assert refused.json()["error"].startswith("gradient takes long, so at most 3 captions have it")


def test_a_server_offers_the_maps_that_it_was_started_with(
    captioner: Captioner, photo: bytes
) -> None:
    limits = Limits()
    app = application(
        captioner, captioner.search, "tiny", 16, limits, maps=["attention-norm", "attention"]
    )
    with served(app, limits) as address:
        page = httpx.get(address).text
        assert page.count('<option value="attention-norm">') == 2
        assert '"occlusion"' not in page.partition("<script>")[0]
        first, other = (
            httpx.post(f"{address}/caption", files={"photo": photo}, data={"view": "true"} | more)
            for more in ({}, {"map": "occlusion"})
        )
    assert first.json()["view"]["captions"][0]["map"] == "attention-norm"
    assert other.status_code == 422
    assert other.json()["error"] == (
        "no map 'occlusion' here; choose from attention-norm, attention"
    )


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM"])
def test_images_of_many_kinds_are_captioned(client: httpx.Client, kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (50, 40), "red").save(file, kind)
    assert client.post("/caption", files={"photo": file.getvalue()}).status_code == 200


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"captions": "0"}, "captions: input should be greater than or equal to 1"),
        ({"beam": "11"}, "beam: input should be less than or equal to 10"),
        ({"beam": "wide"}, "beam: input should be a valid integer"),
        ({"captions": "4", "beam": "3"}, "a beam of 3 finds no 4 captions; send beam=4"),
        ({"beam": "3", "sample": "true"}, "beam and sample exclude each other"),
        ({"temperature": "1"}, "temperature is for sampling; send sample=true with it"),
        ({"temperature": "nan", "sample": "true"}, "temperature: input should be a finite number"),
        ({"beem": "3"}, "unknown setting 'beem'; see /docs"),
        ({"map": "occlusion"}, "map and compare are for the view; send view=true with them"),
        ({"compare": "lime", "view": "true"}, "no map 'lime' here; choose from attention, "),
        (
            {"map": "gradient", "view": "true", "captions": "4", "beam": "4"},
            "gradient takes long, so at most 3 captions have it; ask for fewer captions",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(
    client: httpx.Client, photo: bytes, settings: dict[str, str], sentence: str
) -> None:
    answer = client.post("/caption", files={"photo": photo}, data=settings)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("notes.txt", b"no photo", "notes.txt: not an image that can be read"),
        ("empty.jpg", b"", "empty.jpg: empty file (0 bytes)"),
        ("drawing.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "drawing.eps: not"),
        ("a\nb.png", b"x", "a b.png: not an image"),
        (".." * 90 + ".png", b"x", "." * 96 + ".png: not an image"),
    ],
)
def test_a_file_that_is_no_photo_is_named(
    client: httpx.Client, name: str, content: bytes, sentence: str
) -> None:
    boundary = b"border"
    body = (
        b'--border\r\nContent-Disposition: form-data; name="photo"; filename="'
        + name.encode()
        + b'"\r\n\r\n'
        + content
        + b"\r\n--border--\r\n"
    )
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}
    answer = client.post("/caption", content=body, headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"].startswith(sentence)


def test_a_damaged_photo_is_refused(client: httpx.Client, photo: bytes) -> None:
    answer = client.post("/caption", files={"photo": ("photo.png", photo[:300])})
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("photo.png: damaged or cut short")


def test_a_request_without_a_photo_gets_an_error_that_says_so(client: httpx.Client) -> None:
    answer = client.post("/caption", files={"view": (None, "true")})
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "photo is missing; send it as a field of the form",
    )


def test_the_path_of_a_file_is_no_photo(client: httpx.Client) -> None:
    answer = client.post("/caption", files={"photo": (None, "/etc/passwd")})
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "photo is text; send it as a file",
    )


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_no_form_of_files_is_refused(client: httpx.Client, kind: str) -> None:
    answer = client.post("/caption", content=b"photo=1", headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert "multipart/form-data" in answer.json()["error"]


def test_a_form_that_cannot_be_parsed_is_refused(client: httpx.Client) -> None:
    headers = {"Content-Type": "multipart/form-data"}
    answer = client.post("/caption", content=b"x", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the form cannot be read (Missing boundary")


def test_letters_that_are_no_unicode_break_nothing(client: httpx.Client) -> None:
    head = b'Content-Disposition: form-data; name="photo"; filename="\\ud800.txt"'
    kind = "multipart/form-data; boundary=b; charset=unicode_escape"
    answer = client.post(
        "/caption",
        content=b"--b\r\n" + head + b"\r\n\r\nx\r\n--b--\r\n",
        headers={"Content-Type": kind},
    )
    assert answer.status_code == 415
    assert ".txt: not an image" in answer.json()["error"]

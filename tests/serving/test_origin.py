import socket

import pytest
from starlette.testclient import TestClient

from captioning.commands import main
from captioning.serving import AllowedHosts
from tests.serving.conftest import Ask, assert_refused


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:80", "localhost."]
)
def test_a_server_answers_to_loopback(client: TestClient, host: str) -> None:
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8000", "192.0.2.1", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", ["/", "/health"])
def test_a_page_whose_name_was_rebound_reads_nothing(
    client: TestClient, host: str, path: str
) -> None:
    answer = client.get(path, headers={"Host": host})
    assert_refused(answer, 421, f"this server is not {host.split(':')[0]}; ")


@pytest.mark.parametrize("host", ["", "a b", "user@localhost", "localhost/", "[::1", "localhost:x"])
def test_a_malformed_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_send_no_photos(
    client: TestClient, photo: bytes, headers: dict[str, str]
) -> None:
    answer = client.post("/caption", files={"photo": photo}, headers=headers)
    assert_refused(answer, 403, "pages of other sites may not send photos")


def test_the_servers_own_page_sends_photos(client: TestClient, photo: bytes) -> None:
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/caption", files={"photo": photo}, headers=own).status_code == 200


def test_a_page_behind_an_allowed_proxy_sends_photos(ask: Ask, photo: bytes) -> None:
    client = ask(hosts=AllowedHosts(trusted=("photos.example.org",)))
    origin = {"Origin": "https://photos.example.org"}
    for host in ("photos.example.org", "localhost"):  # as the proxy leaves or changes it
        headers = origin | {"Host": host}
        assert client.post("/caption", files={"photo": photo}, headers=headers).status_code == 200


def test_a_server_on_all_addresses_takes_its_name_and_numbers() -> None:
    hosts = AllowedHosts("0.0.0.0", "0.0.0.0", ("photos.example.org",))
    for name in (socket.gethostname().lower(), "192.0.2.1", "2001:db8::1", "photos.example.org"):
        assert name in hosts
    assert "evil.example" not in hosts


@pytest.mark.parametrize("name", ["", "http://a", "a:80", "a/b", "*", "::1"])
def test_an_allowed_host_that_is_not_a_name_is_reported(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["serve", "--model", "no.ckpt", "--port", "0", f"--allow-host={name}"]) == 1
    assert f"--allow-host {name!r} is not a host name" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["a..b", "no.such.host.invalid"])
def test_a_host_that_cannot_be_listened_on_is_reported(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert main(["serve", "--model", "no.ckpt", "--port", "0", "--host", host]) == 1
    assert capsys.readouterr().err.startswith(f"captioning: cannot listen on {host}, port 0 (")

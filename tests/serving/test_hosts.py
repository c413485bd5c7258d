import socket

import httpx
import pytest

from captioning.cli import main
from captioning.serving import Hosts, hosts_of
from tests.serving.conftest import Serve


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:80", "localhost."]
)
def test_the_names_of_loopback_are_the_server_s(client: httpx.Client, host: str) -> None:
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8000", "192.0.2.1", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", ["/", "/health", "/nowhere"])
def test_a_page_whose_name_was_rebound_reads_nothing(
    client: httpx.Client, host: str, path: str
) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["error"].startswith(f"this server is not {host.split(':')[0]}; ")


@pytest.mark.parametrize("host", ["", "a b", "user@localhost", "localhost/", "[::1", "localhost:x"])
def test_a_malformed_host_is_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_servers_send_no_photos(
    client: httpx.Client, photo: bytes, headers: dict[str, str]
) -> None:
    answer = client.post("/caption", files={"photo": photo}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("pages of other servers may not send photos here")


def test_the_server_s_own_page_sends_photos(client: httpx.Client, photo: bytes) -> None:
    own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.post("/caption", files={"photo": photo}, headers=own).status_code == 200


def test_a_page_behind_a_proxy_that_is_allowed_sends_photos(serve: Serve, photo: bytes) -> None:
    client = serve(hosts=Hosts(trusted=frozenset({"photos.example.org"})))
    origin = {"Origin": "https://photos.example.org"}
    for host in ("photos.example.org", "localhost"):  # as the proxy leaves or changes it
        headers = origin | {"Host": host}
        assert client.post("/caption", files={"photo": photo}, headers=headers).status_code == 200


def test_a_server_for_everybody_takes_its_name_and_numbers_but_no_other_name() -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        hosts = hosts_of(everywhere, "0.0.0.0", ["photos.example.org"])
    for name in (socket.gethostname(), "192.0.2.1:8000", "[2001:db8::1]", "photos.example.org"):
        assert hosts.allow(name)
    assert not hosts.allow("evil.example")


def test_a_server_answers_to_the_name_that_it_listens_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        hosts = hosts_of(listening, "Photos.Example.org", [])
    assert hosts.allow("photos.example.org")


@pytest.mark.parametrize("name", ["", "http://a", "a:80", "a/b", "*", "::1"])
def test_an_allowed_host_that_is_no_host_is_reported(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["serve", "--model", "no.ckpt", "--port", "0", f"--allow-host={name}"]) == 2
    assert f"--allow-host {name!r} is not a host name" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_not_every_address(capsys: pytest.CaptureFixture[str], host: str) -> None:
    assert main(["serve", "--model", "no.ckpt", "--port", "0", "--host", host]) == 2
    assert capsys.readouterr().err.startswith("captioning: --host is empty; give an address")


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
def test_a_host_that_is_no_name_is_reported(capsys: pytest.CaptureFixture[str], host: str) -> None:
    assert main(["serve", "--model", "no.ckpt", "--port", "0", "--host", host]) == 2
    assert "captioning: cannot listen on" in capsys.readouterr().err

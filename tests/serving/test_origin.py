import socket
from itertools import product

from starlette.testclient import TestClient

from captioning.serving import AllowedHosts
from tests.serving.conftest import Ask, assert_refused

HOSTS = {
    200: ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:80", "localhost."],
    400: ["", "a b", "user@localhost", "localhost/", "[::1", "localhost:x"],
    421: ["evil.example", "localhost.evil.example:8000", "192.0.2.1", "127.0.0.1.evil.example"],
}
"""The Host header of requests, by the status of their answers."""


def test_only_loopback_is_answered(client: TestClient) -> None:
    for status, hosts in HOSTS.items():
        for host, path in product(hosts, ("/", "/health")):
            answer = client.get(path, headers={"Host": host})
            assert answer.status_code == status, host
            if status == 421:  # a page whose name was rebound
                assert_refused(answer, 421, f"this server is not {host.split(':')[0]}; ")


def test_only_the_servers_own_page_sends_photos(client: TestClient, photo: bytes) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = client.post("/caption", files={"photo": photo}, headers=headers)
        assert_refused(answer, 403, "pages of other sites may not send photos")
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

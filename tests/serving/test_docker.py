"""The files of docker/: what can be run of them without Docker."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from captioning.commands import main
from tests.serving.conftest import Serve, listens, wait_for

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"


def instruction(name: str) -> list[str]:
    """The words of an instruction of the Dockerfile."""
    [found] = re.findall(rf"(?m)^{name} .*?(\[.*\])$", joined())
    words: list[str] = json.loads(found)
    return words


def joined() -> str:
    return (FOLDER / "Dockerfile").read_text().replace("\\\n", "")


def test_what_the_image_is_built_from_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = [line.split()[1:-1] for line in re.findall(r"(?m)^COPY (?!--from).*", joined())]
    for name in [name for names in copied for name in names]:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_entry_point_is_a_command_with_known_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program, *arguments = instruction("ENTRYPOINT")
    assert program == "captioning"
    assert main([*arguments, "--port", "x"]) == 2
    assert "--port" in capsys.readouterr().err


@pytest.mark.integration
def test_the_health_check_asks_the_server(serve: Serve) -> None:
    port = serve().base_url.port
    check = [word.replace(":8000", f":{port}") for word in instruction("HEALTHCHECK")]
    subprocess.run(check, check=True, timeout=30)
    absent = [word.replace(":8000", ":9") for word in instruction("HEALTHCHECK")]
    assert subprocess.run(absent, capture_output=True, check=False, timeout=30).returncode


@pytest.fixture
def proxied(serve: Serve, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the proxy before a server."""
    if not shutil.which("nginx"):
        pytest.skip("nginx is not installed")
    service = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["proxy"]
    server, port = f"127.0.0.1:{serve().base_url.port}", "18080"
    text = (FOLDER / "nginx.conf").read_text().replace("captioning:8000", server)
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    text = text.replace("8080", f"127.0.0.1:{port}").replace("/run/nginx.pid", "nginx.pid")
    (tmp_path / "nginx.conf").write_text(text)
    command = ["nginx", "-p", str(tmp_path), "-c", "nginx.conf", "-e", str(tmp_path / "errors")]
    options = "daemon off; error_log errors;"
    with (
        subprocess.Popen([*command, "-g", options]) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        wait_for(lambda: listens(("127.0.0.1", int(port))))
        yield client
        process.terminate()


@pytest.mark.integration
def test_the_proxy_passes_photos_on_and_limits_strangers(
    proxied: httpx.Client, photo: bytes
) -> None:
    assert proxied.get("/").status_code == 200
    answer = proxied.post("/caption", files={"photo": photo})
    assert answer.status_code == 200, answer.text
    assert answer.json()["captions"]
    large = proxied.post("/caption", content=b"x" * 21_000_000)
    assert large.status_code == 413
    statuses = [proxied.post("/caption", files={"photo": photo}).status_code for _ in range(60)]
    assert statuses[0] == 200
    assert 429 in statuses
    for path in ("/review", "/v1/chat/completions", "/api/generate", "/api/chat"):
        assert 429 in [proxied.post(path).status_code for _ in range(60)], path

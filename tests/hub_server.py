"""A server on loopback with as much of the Hugging Face Hub's API as pushing and loading need."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_of_the_tests"


class HubServer(ThreadingHTTPServer):
    """Repositories in memory: commits by their hashes, and branches."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, dict[str, str]] = {}
        self.private: set[str] = set()
        self.blobs: dict[str, bytes] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        """What HF_ENDPOINT is set to."""
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repository: str, branch: str, files: dict[str, bytes]) -> str:
        """Add files to a branch; returns the hash of the commit."""
        before = self.branches[repository].get(branch)
        whole = {**self.commits.get(before or "", {}), **files}
        content = f"{before}".encode() + b"".join(whole.values())
        name = hashlib.sha1(content).hexdigest()
        self.commits[name] = whole
        self.branches[repository][branch] = name
        return name


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """A server that runs while the block does."""
    with HubServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def log_message(self, *args: Any) -> None:
        pass

    def _answer_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(self.path.partition("?")[0])
        self.server.requests.append(f"{self.command} {path}")
        for command, pattern, method in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in command:
                values = found.groupdict()
                if "repository" not in values or self._may_go_on(values):
                    method(self, **values, body=body)
                return
        self._answer(404, {"error": f"no route for {self.command} {path}"})

    def _answer(self, status: int, content: Any, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    @property
    def _has_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _may_go_on(self, values: dict[str, Any]) -> bool:
        """Whether the request may; else it is answered. A revision becomes its commit."""
        repository = values["repository"]
        is_hidden = repository in self.server.private and not self._has_token
        if self.command in ("POST", "PUT") and not self._has_token:
            self._answer(401, {"error": "Invalid username or password."})
        elif repository not in self.server.branches or is_hidden:
            status, code = 404 if self._has_token else 401, {"X_Error_Code": "RepoNotFound"}
            self._answer(status, {"error": "Repository not found"}, **code)
        elif "revision" not in values:
            return True
        else:
            asked = values["revision"] or "main"
            commit = self.server.branches[repository].get(asked, asked)
            values["revision"] = commit
            if commit in self.server.commits:
                return True
            self._answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        return False

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repository = f"{asked['organization']}/{asked['name']}"
        if not self._has_token:
            self._answer(401, {"error": "Invalid username or password."})
            return
        url = {"url": f"{self.server.address}/{repository}"}
        if repository in self.server.branches:
            self._answer(409, {"error": "You already created this model repo", **url})
            return
        self.server.branches[repository] = {}
        self.server.commit(repository, "main", {".gitattributes": b""})
        if asked.get("private") or asked.get("visibility") == "private":
            self.server.private.add(repository)
        self._answer(200, url)

    def validate(self, body: bytes) -> None:
        assert json.loads(body)["content"].startswith("---\n")
        self._answer(200, {"errors": [], "warnings": []})

    def branch(self, repository: str, branch: str, body: bytes) -> None:
        branches = self.server.branches[repository]
        is_new = branch not in branches
        branches.setdefault(branch, branches["main"])
        self._answer(200 if is_new else 409, {"error": "exists"})

    def info(self, repository: str, revision: str, body: bytes) -> None:
        files = [{"rfilename": each} for each in self.server.commits[revision]]
        self._answer(200, {"id": repository, "sha": revision, "siblings": files})

    def tree(self, repository: str, revision: str, body: bytes) -> None:
        files = [
            {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for path, data in self.server.commits[revision].items()
        ]
        self._answer(200, files)

    def resolve(self, repository: str, revision: str, path: str, body: bytes) -> None:
        data = self.server.commits[revision].get(path)
        if data is None:
            self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            return
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        self._answer(200, data, ETag=etag, X_Repo_Commit=revision)

    def preupload(self, repository: str, branch: str, body: bytes) -> None:
        files = json.loads(body)["files"]
        for file in files:
            is_large = file["path"].endswith(".safetensors")
            file |= {"uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False}
        self._answer(200, {"files": files})

    def batch(self, repository: str, body: bytes) -> None:
        objects = json.loads(body)["objects"]
        for each in objects:
            href = f"{self.server.address}/blobs/{each['oid']}"
            each["actions"] = {"upload": {"href": href}}
        self._answer(200, {"transfer": "basic", "objects": objects})

    def blob(self, name: str, body: bytes) -> None:
        assert hashlib.sha256(body).hexdigest() == name
        self.server.blobs[name] = body
        self._answer(200, {})

    def commit(self, repository: str, branch: str, body: bytes) -> None:
        files = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        name = self.server.commit(repository, branch, files)
        url = f"{self.server.address}/{repository}/commit/{name}"
        self._answer(200, {"success": True, "commitOid": name, "commitUrl": url})


for verb in ("GET", "HEAD", "POST", "PUT"):
    setattr(_Handler, f"do_{verb}", _Handler._answer_request)

REPOSITORY = "(?P<repository>[^/]+/[^/]+)"
MODEL = f"/api/(?:models|datasets)/{REPOSITORY}"  # or data set

ROUTES = (
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.validate),
    ("POST", rf"{MODEL}/branch/(?P<branch>.+)", _Handler.branch),
    ("POST", rf"{MODEL}/preupload/(?P<branch>.+)", _Handler.preupload),
    ("POST", rf"{MODEL}/commit/(?P<branch>.+)", _Handler.commit),
    ("GET", rf"{MODEL}/tree/(?P<revision>[^/]+)/?", _Handler.tree),
    ("GET", rf"{MODEL}(?:/revision/(?P<revision>.+))?", _Handler.info),
    ("POST", rf"/{REPOSITORY}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", r"/blobs/(?P<name>\w+)", _Handler.blob),
    (
        "GET HEAD",
        rf"/(?:datasets/)?{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)",
        _Handler.resolve,
    ),
)

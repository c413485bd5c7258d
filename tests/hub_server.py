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

    def do_GET(self) -> None:
        self._answer_request()

    def do_HEAD(self) -> None:
        self._answer_request()

    def do_POST(self) -> None:
        self._answer_request()

    def do_PUT(self) -> None:
        self._answer_request()

    def _answer_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(self.path.partition("?")[0])
        self.server.requests.append(f"{self.command} {path}")
        for command, pattern, method in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in command:
                method(self, *found.groups(), body)
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

    def _allowed(self, repository: str, writes: bool = False) -> bool:
        """Whether the request may go on; a refusal is answered here."""
        has_token = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if writes and not has_token:
            self._answer(401, {"error": "Invalid username or password."})
            return False
        is_hidden = repository in self.server.private and not has_token
        if repository not in self.server.branches or is_hidden:
            code = {"X_Error_Code": "RepoNotFound"}
            self._answer(404 if has_token else 401, {"error": "Repository not found"}, **code)
            return False
        return True

    def _commit_of(self, repository: str, revision: str) -> str | None:
        if revision in self.server.commits:
            return revision
        name = self.server.branches[repository].get(revision)
        if name is None:
            self._answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        return name

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repository = f"{asked['organization']}/{asked['name']}"
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
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

    def branch(self, repository: str, name: str, body: bytes) -> None:
        if not self._allowed(repository, writes=True):
            return
        branches = self.server.branches[repository]
        is_new = name not in branches
        branches.setdefault(name, branches["main"])
        self._answer(200 if is_new else 409, {"error": "exists"})

    def info(self, repository: str, revision: str | None, body: bytes) -> None:
        if self._allowed(repository) and (name := self._commit_of(repository, revision or "main")):
            files = [{"rfilename": each} for each in self.server.commits[name]]
            self._answer(200, {"id": repository, "sha": name, "siblings": files})

    def tree(self, repository: str, revision: str, body: bytes) -> None:
        if self._allowed(repository) and (name := self._commit_of(repository, revision)):
            files = self.server.commits[name].items()
            self._answer(
                200,
                [
                    {
                        "type": "file",
                        "path": path,
                        "size": len(data),
                        "oid": hashlib.sha1(data).hexdigest(),
                    }
                    for path, data in files
                ],
            )

    def resolve(self, repository: str, revision: str, path: str, body: bytes) -> None:
        if self._allowed(repository) and (name := self._commit_of(repository, revision)):
            data = self.server.commits[name].get(path)
            if data is None:
                self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
                return
            etag = f'"{hashlib.sha1(data).hexdigest()}"'
            self._answer(200, data, ETag=etag, X_Repo_Commit=name)

    def preupload(self, repository: str, revision: str, body: bytes) -> None:
        if self._allowed(repository, writes=True):
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self._answer(200, {"files": files})

    def batch(self, repository: str, body: bytes) -> None:
        if self._allowed(repository, writes=True):
            objects = json.loads(body)["objects"]
            for each in objects:
                href = f"{self.server.address}/blobs/{each['oid']}"
                each["actions"] = {"upload": {"href": href}}
            self._answer(200, {"transfer": "basic", "objects": objects})

    def blob(self, name: str, body: bytes) -> None:
        assert hashlib.sha256(body).hexdigest() == name
        self.server.blobs[name] = body
        self._answer(200, {})

    def commit(self, repository: str, revision: str, body: bytes) -> None:
        if not self._allowed(repository, writes=True):
            return
        files = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        name = self.server.commit(repository, revision, files)
        url = f"{self.server.address}/{repository}/commit/{name}"
        self._answer(200, {"success": True, "commitOid": name, "commitUrl": url})


ROUTES = (
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.validate),
    ("POST", r"/api/models/([^/]+/[^/]+)/branch/(.+)", _Handler.branch),
    ("POST", r"/api/models/([^/]+/[^/]+)/preupload/(.+)", _Handler.preupload),
    ("POST", r"/api/models/([^/]+/[^/]+)/commit/(.+)", _Handler.commit),
    ("GET", r"/api/models/([^/]+/[^/]+)/tree/([^/]+)/?", _Handler.tree),
    ("GET", r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", _Handler.info),
    ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", r"/blobs/(\w+)", _Handler.blob),
    ("GET HEAD", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", _Handler.resolve),
)

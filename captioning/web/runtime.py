"""ONNX Runtime for browsers, from its npm package onnxruntime-web."""

import hashlib
import os
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from captioning.errors import InputError, as_input_error

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""Of the package's file, as npm publishes it."""

FILES = {
    "onnxruntime.js": "package/dist/ort.wasm.bundle.min.mjs",
    "onnxruntime.wasm": "package/dist/ort-wasm-simd-threaded.wasm",
}
"""What a page needs, by the name that it has there, in the package."""

MOST_BYTES = 100_000_000  # of a file of the package
PART = 1 << 20  # bytes that are read at a time
TIMEOUT = 60.0  # seconds without a byte


def runtime_files(package: str | Path | None = None) -> dict[str, bytes]:
    """The files of `FILES`, by the name that they have beside a page.

    Args:
        package: the file that ``npm pack onnxruntime-web`` writes. By default `VERSION` is
            downloaded from npm's registry, or from that of the variable ``NPM_CONFIG_REGISTRY``,
            which npm uses too, and must have its published checksum.

    Raises:
        InputError: there is no such file, it is no such package, or it cannot be downloaded.
    """
    if package is not None:
        return _unpacked(Path(package))
    with _downloaded() as path:
        return _unpacked(path)


def _unpacked(path: Path) -> dict[str, bytes]:
    found = {}
    try:
        with tarfile.open(path) as archive:
            for name, member in FILES.items():
                entry = archive.getmember(member)
                content = archive.extractfile(entry) if entry.isfile() else None  # no link
                if content is None or entry.size > MOST_BYTES:
                    raise KeyError(member)
                found[name] = content.read()
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise as_input_error(error, path, "cannot be read") from None
    except (KeyError, EOFError, OSError, tarfile.TarError):
        raise InputError(
            f"{path}: not the npm package {PACKAGE}, or another version of it; run "
            f"npm pack {PACKAGE}@{VERSION}"
        ) from None
    return found


@contextmanager
def _downloaded() -> Iterator[Path]:
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or "https://registry.npmjs.org"
    address = f"{registry.rstrip('/')}/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
    remedy = f"run npm pack {PACKAGE}@{VERSION} where there is a network, and give --runtime FILE"
    digest = hashlib.sha512()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{PACKAGE}.tgz"
        try:
            with (
                urllib.request.urlopen(address, timeout=TIMEOUT) as answer,
                path.open("wb") as file,
                tqdm(
                    total=int(answer.headers.get("Content-Length") or 0) or None,
                    desc=f"{PACKAGE} {VERSION}",
                    unit="B",
                    unit_scale=True,
                    disable=not sys.stderr.isatty(),
                ) as bar,
            ):
                while part := answer.read(PART):
                    digest.update(part)
                    file.write(part)
                    bar.update(len(part))
                    if file.tell() > MOST_BYTES:
                        break
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # its answer is in a temporary file
            raise InputError(f"{address}: cannot be downloaded ({reason}); {remedy}") from None
        if digest.digest() != b64decode(SHA512):
            raise InputError(f"{address}: another file than npm published; {remedy}")
        yield path

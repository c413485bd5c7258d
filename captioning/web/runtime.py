"""ONNX Runtime for browsers, from its npm package onnxruntime-web."""

import hashlib
import io
import os
import tarfile
import urllib.request
from base64 import b64decode
from http.client import HTTPException
from pathlib import Path

from captioning.errors import InputError, reading

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""Of the package's file, as npm publishes it."""

FILES = {
    "onnxruntime.js": "package/dist/ort.wasm.bundle.min.mjs",
    "onnxruntime.wasm": "package/dist/ort-wasm-simd-threaded.wasm",
}
"""What a page needs, by the name that it has there, in the package."""

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
        with reading(package):
            content = Path(package).read_bytes()
        return _unpacked(content, str(package))
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or "https://registry.npmjs.org"
    address = f"{registry.rstrip('/')}/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
    remedy = f"run npm pack {PACKAGE}@{VERSION} where there is a network, and give --runtime FILE"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            content = answer.read()
    except (HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"{address}: cannot be downloaded ({reason}); {remedy}") from error
    if hashlib.sha512(content).digest() != b64decode(SHA512):
        raise InputError(f"{address}: another file than npm published; {remedy}")
    return _unpacked(content, address)


def _unpacked(package: bytes, source: str) -> dict[str, bytes]:
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(package)) as archive:
            for name, member in FILES.items():
                entry = archive.getmember(member)
                content = archive.extractfile(entry) if entry.isfile() else None  # no link
                if content is None:
                    raise KeyError(member)
                found[name] = content.read()
    except (KeyError, EOFError, OSError, tarfile.TarError):
        raise InputError(
            f"{source}: not the npm package {PACKAGE}, or another version of it; run "
            f"npm pack {PACKAGE}@{VERSION}"
        ) from None
    return found

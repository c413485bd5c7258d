"""A page that captions photos within the browser: files for any web server, without Python."""

import hashlib
import io
import json
import os
import tarfile
import tempfile
import urllib.request
import zlib
from base64 import b64decode
from http.client import HTTPException
from pathlib import Path

import numpy as np

from captioning.captioner import Captioner
from captioning.captioner.onnx_graphs import write_onnx
from captioning.errors import InputError, reading
from captioning.files import made_folder, written_whole
from captioning.maps import has_evidence
from captioning.search import BeamSearch
from captioning.viewing.html_document import asset
from captioning.web.page import LOCAL, PHOTO_BUTTONS, PHOTOS, page

PROGRAM = ("worker.js", "captions.js", "pixels.js")
GRAPHS = {"encoder": 4095, "remember": 450, "step": 320}
"""The graphs, and the steps from zero to the largest weight of a row that weights are rounded to.

Equal steps change log probabilities 7 times more in the encoder of `photos` than in its decoder.
"""

STEP = 8
"""Weights are rounded to multiples of it, whose two bytes have few values each."""

LEAST_WEIGHTS = 4096
"""Tensors with fewer numbers are not rounded."""

MAX_PHOTO_BYTES = 100_000_000
"""The largest photo."""

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
PACKAGE_SHA512 = (
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
)
"""The checksum of the package's file, as npm publishes it."""

RUNTIME = {
    "onnxruntime.js": "package/dist/ort.wasm.bundle.min.mjs",
    "onnxruntime.wasm": "package/dist/ort-wasm-simd-threaded.wasm",
}
"""The files of the package that a page needs, by their name beside the page."""

TIMEOUT = 60.0  # seconds without a byte

LICENCES = f"""\
onnxruntime.js, onnxruntime.wasm: from the npm package {PACKAGE}.
Copyright (c) Microsoft Corporation. MIT License: https://github.com/microsoft/onnxruntime

index.html, worker.js, captions.js, pixels.js: from captioning. MIT License.

*.packed, captioner.json: the model; its licence is that of whoever trained it.
"""


def write_site(
    captioner: Captioner,
    folder: str | Path,
    name: str,
    runtime: str | Path | None = None,
    examples: bool = False,
) -> None:
    """Write the page with the model and ONNX Runtime.

    Matrices are rounded, and computed with in single precision, so captions are nearly always those
    of `captioner`. Searches other than beam search are replaced by one with the same limits.

    Args:
        captioner: what the page captions with.
        folder: created if missing.
        name: of the model, as the page shows it.
        runtime: as `runtime_files` takes it.
        examples: offer the free photos.

    Raises:
        InputError: as `write_onnx` and `runtime_files`.
    """
    search = captioner.search
    if type(search) is not BeamSearch:
        search = search.replace(BeamSearch)
    with tempfile.TemporaryDirectory() as graphs:
        write_onnx(captioner, graphs)
        files = runtime_files(runtime)
        folder = made_folder(folder)
        files |= {
            f"{graph}.packed": zipped(rounded(Path(graphs, f"{graph}.onnx"), most))
            for graph, most in GRAPHS.items()
        }
        settings = json.loads(Path(graphs, "captioner.json").read_text(encoding="utf-8"))
    settings |= {
        "search": search.config | {"class": "BeamSearch"},
        "calibrated": captioner.has_confidence(search),
        "evidence": has_evidence(captioner.model.decoder),
        "bytes": sum(len(files[f"{graph}.packed"]) for graph in GRAPHS),
    }
    files["captioner.json"] = json.dumps(settings, ensure_ascii=False).encode()
    files |= {program: asset(f"web/{program}").encode() for program in PROGRAM}
    licences = LICENCES
    if examples:
        files |= {f"photos/{photo}": path.read_bytes() for photo, path in PHOTOS.items()}
        licences += "\n" + next(iter(PHOTOS.values())).with_name("README.md").read_text("utf-8")
    files["licences.txt"] = licences.encode()
    buttons = PHOTO_BUTTONS if examples else ""
    # Written last, so that a page has all the files that it needs.
    files["index.html"] = page(name, search, MAX_PHOTO_BYTES, (), LOCAL, buttons).encode()
    for file, data in files.items():
        with written_whole(folder / file) as temporary:
            temporary.write_bytes(data)


def rounded(path: Path, most: int) -> bytes:
    """Round the large matrices and filters of an ONNX graph to integers of 16 bits.

    Each row, the weights of one output, has a scale of its own and becomes multiples of `STEP`, at
    most `most` in either direction. The graph begins with the conversion to single precision, which
    a runtime does once, when it loads the graph.
    """
    import onnx  # an extra
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(path))
    graph = model.graph
    conversions = []
    for tensor in [*graph.initializer]:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < LEAST_WEIGHTS or values.ndim < 2:
            continue
        name, small, cast, scale = (tensor.name + end for end in ("", ".small", ".cast", ".scale"))
        largest = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True)
        scales = np.maximum(largest / most / STEP, np.finfo(np.float32).tiny)
        integers = (np.rint(values / scales / STEP) * STEP).astype(np.int16)
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(integers, small))
        graph.initializer.append(numpy_helper.from_array(scales, scale))
        conversions.append(helper.make_node("Cast", [small], [cast], to=TensorProto.FLOAT))
        conversions.append(helper.make_node("Mul", [cast, scale], [name]))
    nodes = [*conversions, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def zipped(content: bytes) -> bytes:
    """Compress by zlib, with the bytes at even places before those at odd ones.

    High bytes of small integers compress well without low bytes between them. Nothing else repeats,
    except for runs of zeros.
    """
    compressor = zlib.compressobj(strategy=zlib.Z_RLE)
    return compressor.compress(content[::2] + content[1::2]) + compressor.flush()


def runtime_files(package: str | Path | None = None) -> dict[str, bytes]:
    """Return ONNX Runtime for browsers: the files of `RUNTIME`, by their name beside a page.

    Args:
        package: the file that ``npm pack onnxruntime-web`` writes. By default `VERSION` is
            downloaded from npm's registry, or from that of the variable ``NPM_CONFIG_REGISTRY``,
            as npm does, and must have its published checksum.

    Raises:
        InputError: there is no such file, it is no such package, or it cannot be downloaded.
    """
    remedy = f"run npm pack {PACKAGE}@{VERSION} where there is a network, and give --runtime FILE"
    if package is not None:
        with reading(package):
            content = Path(package).read_bytes()
    else:
        registry = os.environ.get("NPM_CONFIG_REGISTRY") or "https://registry.npmjs.org"
        package = f"{registry.rstrip('/')}/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
        try:
            with urllib.request.urlopen(str(package), timeout=TIMEOUT) as answer:
                content = answer.read()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise InputError(f"{package}: cannot be downloaded ({reason}); {remedy}") from error
        if hashlib.sha512(content).digest() != b64decode(PACKAGE_SHA512):
            raise InputError(f"{package}: another file than npm published; {remedy}")
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = {name: archive.extractfile(member) for name, member in RUNTIME.items()}
            return {name: member.read() for name, member in members.items() if member}
    except (KeyError, EOFError, OSError, tarfile.TarError):
        raise InputError(f"{package}: not {PACKAGE} {VERSION}; {remedy}") from None

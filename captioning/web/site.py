"""A page that captions photos within the browser: files for any web server, without Python."""

import json
import tempfile
from pathlib import Path

from captioning.captioner import Captioner
from captioning.captioner.onnx_graphs import write_onnx
from captioning.files import made_folder, written_whole
from captioning.maps import has_evidence
from captioning.search import BeamSearch
from captioning.web.compact import compact
from captioning.web.page import LOCAL, PHOTO_BUTTONS, PHOTOS, asset, page, policy
from captioning.web.runtime import PACKAGE, runtime_files

PROGRAM = ("worker.js", "captions.js", "pixels.js")
GRAPHS = {"encoder.onnx": False, "remember.onnx": True, "step.onnx": True}
"""The graphs, and whether their matrices are kept in 8 bits."""

LARGEST = 100_000_000  # bytes of a photo

LICENCES = f"""\
onnxruntime.js, onnxruntime.wasm: from the npm package {PACKAGE}.
Copyright (c) Microsoft Corporation. MIT License: https://github.com/microsoft/onnxruntime

index.html, worker.js, captions.js, pixels.js: from captioning. MIT License.

*.onnx, captioner.json: the model; its licence is that of whoever trained it.
"""


def write_site(
    captioner: Captioner,
    folder: str | Path,
    name: str,
    runtime: str | Path | None = None,
    examples: bool = False,
) -> None:
    """Write the page with the model, ONNX Runtime, and what else it needs.

    Matrices of the decoder are kept in 8 bits, other weights in half precision, and all are
    computed with in single precision, so captions are nearly always those of `captioner`. Searches
    other than beam search are replaced by one with the same limits.

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
        for graph, in_8_bits in GRAPHS.items():
            with written_whole(folder / graph) as temporary:
                compact(Path(graphs, graph), temporary, in_8_bits)
        about = json.loads(Path(graphs, "captioner.json").read_text(encoding="utf-8"))
    calibration = captioner.calibration
    about |= {
        "search": search.config | {"class": "BeamSearch"},
        "calibration": None if calibration is None else calibration.config,
        "evidence": has_evidence(captioner.model.decoder),
        "bytes": sum((folder / graph).stat().st_size for graph in GRAPHS),
    }
    files["captioner.json"] = json.dumps(about, ensure_ascii=False).encode()
    files |= {program: asset(program).encode() for program in PROGRAM}
    licences = LICENCES
    if examples:
        files |= {f"photos/{photo}": path.read_bytes() for photo, path in PHOTOS.items()}
        licences += "\n" + next(iter(PHOTOS.values())).with_name("README.md").read_text("utf-8")
    files["licences.txt"] = licences.encode()
    # The page may run the program and WebAssembly beside it.
    allowed = policy(LOCAL).replace("script-src", "script-src 'self' 'wasm-unsafe-eval'")
    head = f'<meta http-equiv="Content-Security-Policy" content="{allowed}">\n'
    content = page(
        name, search, LARGEST, (), LOCAL, examples=PHOTO_BUTTONS if examples else "", head=head
    )
    files["index.html"] = content.encode()  # the last one: a page has all that it needs
    for file, data in files.items():
        with written_whole(folder / file) as temporary:
            temporary.write_bytes(data)

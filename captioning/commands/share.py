"""`captioning models`, `export` and `push`: models that one has, and models for others."""

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from captioning.errors import InputError, printable
from captioning.shelf import DEFAULT_MODEL, DOWNLOADED, hub_address, path_of, push, shipped_models


def models() -> None:
    """List the models that come with the package, with their data, scores and terms."""
    for model in shipped_models():
        megabytes = model.file.stat().st_size / 1e6
        is_default = ", the default" if model.name == DEFAULT_MODEL else ""
        print(f"{model.name} ({megabytes:.0f} MB{is_default})")
        for title in ("data", "scores", "licence", "card"):
            print(f"  {title + ':':9}{getattr(model, title)}")


def export_model(
    *paths: Annotated[str, Parameter(name="MODEL TARGET")],
    model: str | None = None,
    half: bool = False,
    onnx: bool = False,
    web: bool = False,
    runtime: Path | None = None,
    evaluation: Path | None = None,
    license: str | None = None,
) -> None:
    """Write a model to share: a folder with a model card, a file, ONNX graphs or a web page.

    Args:
        paths: A trained model or the name of one that comes with the package, and a folder to
            write or a file named *.safetensors.
        model: The model, instead of the first argument.
        half: Half precision: half the size, nearly the same captions.
        onnx: Write ONNX graphs, which run without PyTorch.
        web: Write a web page that captions photos within the browser, for any web server.
        runtime: With --web: ONNX Runtime for browsers, as `npm pack onnxruntime-web` writes it;
            by default it is downloaded.
        evaluation: What `captioning evaluate` wrote of this model, for the model card.
        license: Of the data that the model was trained on, for the model card, such as cc-by-4.0.
    """
    from captioning.captioner import export, load

    arguments = [*([] if model is None else [model]), *paths]
    if len(arguments) != 2:
        raise InputError("give one model and where to write it: captioning export MODEL TARGET")
    source, target = arguments
    if half + onnx + web > 1:
        raise InputError("--half, --onnx and --web are different files; give one of them")
    has_card = not (web or target.endswith(".safetensors"))
    if not has_card and (evaluation is not None or license is not None):
        raise InputError("--evaluation and --license are for a folder's model card")
    if runtime is not None and not web:
        raise InputError("--runtime is for --web")
    if not web:
        export(source, target, half, evaluation=evaluation, license=license, onnx=onnx)
        print(printable(target))
        return
    from captioning.web.site import write_site

    name = "/".join(Path(source).parts[-2:]) or "model"  # no whole paths
    write_site(load(source), target, name, runtime, examples=source == DEFAULT_MODEL)
    print(printable(target))
    print(printable(f"python -m http.server -b 127.0.0.1 -d {shlex.quote(target)}"))


def push_model(
    model: str,
    address: str,
    /,
    *,
    private: bool | None = None,
    revision: str | None = None,
) -> None:
    """Upload a model to the Hugging Face Hub.

    Args:
        model: A folder that `captioning export` wrote, or a model.
        address: hf://OWNER/NAME
        private: Make the repository private, if it is new.
        revision: The branch, which is made if missing; by default main.
    """
    from captioning.captioner import export, load
    from captioning.captioner.exporting import CARD

    repository, branch = hub_address(address)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(model)
        if folder.is_dir() and path_of(model) == folder:
            load(folder)  # refuses what cannot be loaded again
        else:
            folder = Path(temporary) / "model"
            export(model, folder)
        # Only now is it known where the model can be loaded from.
        text = (folder / CARD).read_text(encoding="utf-8")
        card = Path(temporary) / CARD
        card.write_text(text.replace("hf://OWNER/NAME", f"hf://{repository}"), encoding="utf-8")
        files = [card, *(folder / name for name in DOWNLOADED)]
        message = "Upload a model of captioning"
        print(
            printable(
                push(repository, revision or branch, files=files, message=message, private=private)
            )
        )

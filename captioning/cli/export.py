"""`captioning export`: a model to share: without the state of its training, or as a web page."""

import argparse
import shlex
from pathlib import Path

from captioning.cli.options import add_imports
from captioning.errors import UsageError
from captioning.terminal import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "given",
        nargs="?",
        metavar="MODEL",
        help="a trained model, or the name of one that comes with the package",
    )
    parser.add_argument(
        "target", metavar="TARGET", help="a folder to write, or a file named *.safetensors"
    )
    parser.add_argument("--model", metavar="MODEL", help="the model, instead of the first argument")
    parser.add_argument(
        "--half",
        action="store_true",
        help="half precision: half the size, nearly the same captions",
    )
    parser.add_argument(
        "--onnx", action="store_true", help="write ONNX graphs, which run without PyTorch"
    )
    parser.add_argument(
        "--web",
        action="store_true",
        help="write a web page that captions photos within the browser, for any web server",
    )
    parser.add_argument(
        "--runtime",
        metavar="FILE",
        help="with --web: ONNX Runtime for browsers, as `npm pack onnxruntime-web` writes it "
        "(default: download it)",
    )
    parser.add_argument(
        "--evaluation",
        metavar="DIR",
        help="what `captioning evaluate` wrote of this model, for the model card of the folder",
    )
    parser.add_argument(
        "--license",
        metavar="TEXT",
        help="of the data that the model was trained on, for the model card, such as cc-by-4.0",
    )
    add_imports(parser)


def run(options: argparse.Namespace) -> int:
    """Write the folder or the file."""
    if (options.given is None) == (options.model is None):
        raise UsageError("give one model: captioning export MODEL TARGET")
    for_card = options.evaluation is not None or options.license is not None
    is_file = options.target.endswith(".safetensors")
    if for_card and (options.onnx or options.web or is_file):
        raise UsageError("--evaluation and --license are for a folder's model card")
    if options.half + options.onnx + options.web > 1:
        raise UsageError("--half, --onnx and --web are different files; give one of them")
    if options.runtime is not None and not options.web:
        raise UsageError("--runtime is for --web")
    if options.web:
        _write_site(options.given or options.model, options.target, options.runtime)
        return 0
    from captioning.captioner import export

    export(
        options.given or options.model,
        options.target,
        options.half,
        evaluation=options.evaluation,
        license=options.license,
        onnx=options.onnx,
    )
    print(printable(options.target))
    return 0


def _write_site(model: str, folder: str, runtime: str | None) -> None:
    """Write the page of a model, with the free photos if it is the one of the package."""
    from captioning.captioner import load
    from captioning.shelf import DEFAULT
    from captioning.web.site import write_site

    name = "/".join(Path(model).parts[-2:]) or "model"  # no whole paths
    write_site(load(model), folder, name, runtime, examples=model == DEFAULT)
    print(printable(folder))
    print(printable(f"python -m http.server -b 127.0.0.1 -d {shlex.quote(folder)}"))

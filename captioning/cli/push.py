"""`captioning push`: uploads a model to the Hugging Face Hub."""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from captioning import hub
from captioning.cli.options import add_imports
from captioning.errors import InputError, UsageError
from captioning.shelf import path_of
from captioning.terminal import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "model", metavar="MODEL", help="a folder that `captioning export` wrote, or a model"
    )
    parser.add_argument("address", metavar="ADDRESS", help="hf://OWNER/NAME")
    parser.add_argument(
        "--private",
        action="store_true",
        default=None,
        help="make the repository private, if it is new",
    )
    parser.add_argument(
        "--revision", metavar="NAME", help="the branch, which is made if missing (default: main)"
    )
    add_imports(parser)


def run(options: argparse.Namespace) -> int:
    """Upload the model, and print the address of the commit."""
    address = hub.address_in(options.address)
    if address is None:
        raise UsageError(f"{options.address}: not an address; give hf://OWNER/NAME")
    if options.revision is not None:
        address = replace(address, revision=options.revision)
    from captioning.captioner import export, load
    from captioning.captioner.model_card import CARD

    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.model)
        if folder.is_dir() and path_of(options.model) == folder:
            load(folder)  # refuses what cannot be loaded again
        else:
            folder = Path(made) / "model"
            export(options.model, folder)
        files = [folder / name for name in (CARD, *hub.DOWNLOADED)]
        if missing := [file for file in files if not file.exists()]:
            raise InputError(f"{missing[0]}: no such file; export the model to a folder again")
        # Only now is it known where the model can be loaded from.
        card = files[0].read_text(encoding="utf-8")
        files[0] = Path(made) / CARD
        named = card.replace("hf://OWNER/NAME", str(replace(address, revision=None)))
        files[0].write_text(named, encoding="utf-8")
        print(printable(hub.push(address, files, "Upload a model of captioning", options.private)))
    return 0

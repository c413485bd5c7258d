"""`captioning models`: the models that come with the package."""

import argparse

from captioning.shelf import DEFAULT, shipped_models


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command: none."""


def run(options: argparse.Namespace) -> int:
    """Print what each model was trained on, what it reaches, and its terms."""
    for model in shipped_models():
        megabytes = model.file.stat().st_size / 1e6
        is_default = ", the default" if model.name == DEFAULT else ""
        print(f"{model.name} ({megabytes:.0f} MB{is_default})")
        for title in ("data", "scores", "licence"):
            print(f"  {title + ':':9}{getattr(model, title)}")
        print(f"  {'card:':9}{model.card}")
    return 0

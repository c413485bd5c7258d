"""The models that come with the package, by name."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("shipped")
"""Holds for each model NAME.safetensors and its model card NAME.md."""

DEFAULT = "photos"
"""The name of the model that commands use unless one is given."""


@dataclass(frozen=True)
class Shipped:
    """A model that comes with the package; the texts are those of its model card.

    Attributes:
        name: what `load` and ``--model`` take.
        data: what it was trained on.
        scores: what it reaches, and on which data.
        licence: the terms of the model and of its data.
    """

    name: str
    data: str
    scores: str
    licence: str

    @property
    def file(self) -> Path:
        """The model."""
        return FOLDER / f"{self.name}.safetensors"

    @property
    def card(self) -> Path:
        """Its model card."""
        return FOLDER / f"{self.name}.md"


def shipped_models() -> list[Shipped]:
    """The models that come with the package, the default one first."""
    names = sorted(path.stem for path in FOLDER.glob("*.safetensors"))
    return [_shipped(name) for name in sorted(names, key=lambda name: name != DEFAULT)]


def path_of(model: str | Path) -> Path:
    """The file of a shipped model's name; any other text is the path of a model.

    Give ``./photos`` for a file with the name of a shipped model.
    """
    named = FOLDER / f"{model}.safetensors"
    is_name = isinstance(model, str) and model == Path(model).name and named.exists()
    return named if is_name else Path(model)


def _shipped(name: str) -> Shipped:
    """The model of this name, described by the head of its card, YAML between dashes."""
    import yaml  # only here: the command line imports this module for the names

    _, head, _ = (FOLDER / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)
    told = yaml.safe_load(head)
    return Shipped(name, told["data"], told["scores"], told["license"])

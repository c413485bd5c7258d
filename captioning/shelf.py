"""The models and the configurations that come with the package, by name."""

from dataclasses import dataclass
from pathlib import Path

from captioning import hub

FOLDER = Path(__file__).with_name("shipped")
"""Holds for each model NAME.safetensors and its model card NAME.md."""

CONFIGS = next(
    folder
    for folder in (Path(__file__).with_name("configs"), Path(__file__).parents[1] / "configs")
    if folder.is_dir()
)
"""Holds the configurations, NAME.yaml: part of an installed package, beside it in a checkout."""

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
    """The file or the folder of a model: of a shipped model's name, of an address, or of a path.

    Give ``./photos`` for a file with the name of a shipped model. A model of the Hub, of an address
    such as ``hf://owner/name@revision``, is downloaded unless it is in the cache.

    Raises:
        InputError: the model of an address cannot be downloaded.
    """
    if address := hub.address_in(model):
        return hub.downloaded(address)
    named = FOLDER / f"{model}.safetensors"
    is_name = isinstance(model, str) and model == Path(model).name and named.exists()
    return named if is_name else Path(model)


def folder_beside(model: str | Path) -> Path:
    """The folder that a model lies in; the working folder for a name and for an address."""
    return Path() if hub.address_in(model) else Path(model).parent


def config_names() -> list[str]:
    """The names of the configurations that come with the package."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def config_path_of(config: str) -> str:
    """The file of a configuration's name: ``flickr8k``, or ``configs/flickr8k.yaml``.

    A file of this path comes first. Any other text is returned as it is.
    """
    path = Path(config)
    is_name = str(path.parent) in (".", "configs") and path.suffix in ("", ".yaml")
    if is_name and path.stem in config_names() and not path.is_file():
        return str(CONFIGS / f"{path.stem}.yaml")
    return config


def _shipped(name: str) -> Shipped:
    """The model of this name, described by the head of its card, YAML between dashes."""
    import yaml  # only here: the command line imports this module for the names

    _, head, _ = (FOLDER / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)
    told = yaml.safe_load(head)
    return Shipped(name, told["data"], told["scores"], told["license"])

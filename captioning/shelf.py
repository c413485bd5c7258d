"""Models and configurations by name: of the package, and models of the Hugging Face Hub."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.errors import InputError

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

HUB = "hf:/"
"""The beginning of addresses of the Hugging Face Hub; a path made from one has a single slash."""

DOWNLOADED = ("model.safetensors", "config.json")
"""The files of a repository of the Hub that a model is loaded from."""

PROBLEMS = {
    "GatedRepoError": "its owner must let you in; ask at its page, then run hf auth login",
    "RevisionNotFoundError": "no such revision; check the part after @",
    "RepositoryNotFoundError": "no such model, or a private one; check the address, or run hf auth "
    "login",
    "LocalEntryNotFoundError": "not in the cache, and the Hub cannot be reached; check the "
    "connection",
    "OfflineModeIsEnabled": "the Hub is switched off here; unset HF_HUB_OFFLINE",
    "HFValidationError": "not an address of the Hub; give hf://OWNER/NAME",
    "LocalTokenNotFoundError": "nobody has logged in; run hf auth login",
}
"""What to do about errors of huggingface_hub, by the names of their classes."""


@dataclass(frozen=True)
class Shipped:
    """A model that comes with the package; the texts are those of its model card.

    Attributes:
        name: what `load` and ``--model`` take.
        data: what it was trained on.
        scores: what it reaches, and on which data.
        licence: the terms of the model and of its data.
        file: the model.
        card: its model card.
    """

    name: str
    data: str
    scores: str
    licence: str
    file: Path
    card: Path


def shipped_models() -> list[Shipped]:
    """The models that come with the package, the default one first."""
    import yaml  # only here: the command line imports this module for the names

    found = []
    for file in sorted(FOLDER.glob("*.safetensors"), key=lambda file: (file.stem != DEFAULT, file)):
        card = file.with_suffix(".md")
        _, head, _ = card.read_text(encoding="utf-8").split("---\n", 2)
        told = yaml.safe_load(head)
        texts = told["data"], told["scores"], told["license"]
        found.append(Shipped(file.stem, *texts, file, card))
    return found


def path_of(model: str | Path) -> Path:
    """The file or folder of a model's name, address or path.

    Give ``./photos`` for a file with the name of a shipped model. A model of the Hub, of an address
    such as ``hf://owner/name@revision``, is downloaded unless it is in the cache.

    Raises:
        InputError: the model of an address cannot be downloaded.
    """
    if str(model).startswith(HUB):
        return downloaded(Address.of(model))
    named = FOLDER / f"{model}.safetensors"
    is_name = isinstance(model, str) and model == Path(model).name and named.exists()
    return named if is_name else Path(model)


def folder_beside(model: str | Path) -> Path:
    """The folder that a model lies in; the working folder for a name and for an address."""
    return Path() if str(model).startswith(HUB) else Path(model).parent


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


@dataclass(frozen=True)
class Address:
    """Where a model is on the Hub.

    Attributes:
        repository: its owner and its name, ``owner/name``.
        revision: a branch, a tag or a commit; None for the main branch.
    """

    repository: str
    revision: str | None = None

    @classmethod
    def of(cls, text: str | Path) -> "Address":
        """The address in ``hf://owner/name@revision``."""
        parts = re.fullmatch(r"hf:/{1,2}([\w.-]+/[\w.-]+)(?:@(.+))?", str(text), re.ASCII)
        if not parts:
            raise InputError(f"{text}: give hf://OWNER/NAME, or hf://OWNER/NAME@REVISION")
        return cls(*parts.groups())

    def __str__(self) -> str:
        return f"hf://{self.repository}" + (f"@{self.revision}" if self.revision else "")


def downloaded(address: Address) -> Path:
    """The folder of a model's files in the Hub's cache, downloaded unless they are there.

    Raises:
        InputError: the extra is missing, the Hub cannot be reached, or it has no such model.
    """
    with _one_line(address) as hub:
        folder = hub.snapshot_download(
            address.repository, revision=address.revision, allow_patterns=list(DOWNLOADED)
        )
    return Path(folder)


def push(address: Address, files: Sequence[Path], message: str, private: bool | None = None) -> str:
    """Upload files to the root of a repository, which is made if it is missing, in one commit.

    Args:
        address: of the repository; a revision is a branch, made if it is missing.
        files: what to upload.
        message: of the commit.
        private: whether a new repository is private; None for the owner's default.

    Returns:
        The address of the commit, for people.

    Raises:
        InputError: the extra is missing, nobody has logged in, or the Hub refuses.
    """
    with _one_line(address) as hub:
        api = hub.HfApi()
        api.create_repo(address.repository, private=private, exist_ok=True)
        if address.revision:
            api.create_branch(address.repository, branch=address.revision, exist_ok=True)
        operations = [hub.CommitOperationAdd(file.name, file) for file in files]
        commit = api.create_commit(
            address.repository, operations, commit_message=message, revision=address.revision
        )
    return str(commit.commit_url)


@contextmanager
def _one_line(address: Address) -> Iterator[Any]:
    """The Hub's library, whose errors within the block become lines with a remedy."""
    try:
        import huggingface_hub
        from huggingface_hub import constants, utils
    except ImportError:
        raise InputError(
            f"{address}: needs the extra hub; run pip install 'captioning[hub]'"
        ) from None
    if not sys.stderr.isatty() and constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        utils.disable_progress_bars()
    try:
        yield huggingface_hub
    except Exception as error:  # of the Hub's library or of those that it uses for its requests
        kinds = (kind.__name__ for kind in type(error).__mro__)
        problem = next((PROBLEMS[kind] for kind in kinds if kind in PROBLEMS), "")
        status = getattr(getattr(error, "response", None), "status_code", None)
        if not problem and status in (401, 403):
            problem = f"the Hub refused ({status}); run hf auth login with a token that may do this"
        elif not problem and status:
            problem = f"the Hub answered {status}; try again later"
        cause = error.__cause__ or error  # an upload's error is wrapped
        problem = problem or f"the Hub cannot be reached ({cause}); check the connection"
        raise InputError(f"{address}: {problem}") from None

"""Finds models and configurations by name, and models and data sets on the Hugging Face Hub."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.errors import InputError

FOLDER = Path(__file__).with_name("shipped")
"""Folder of NAME.safetensors and the model card NAME.md for each model."""

CONFIGS = next(
    folder
    for folder in (Path(__file__).with_name("configs"), Path(__file__).parents[1] / "configs")
    if folder.is_dir()
)
"""Folder of configurations NAME.yaml, within an installed package or beside it in a checkout."""

DEFAULT_MODEL = "photos"
"""Name of the model that commands use by default."""

HUB_PREFIX = "hf:/"
"""Prefix of addresses of the Hugging Face Hub; pathlib turns ``hf://`` into ``hf:/``."""

DATA_SET_PREFIX = "datasets/"
"""Prefix of the owner in addresses of data sets."""

DOWNLOADED = ("model.safetensors", "config.json")
"""Files of a model in a repository of the Hub."""

REFUSALS = {
    "GatedRepoError": "its owner must let you in; ask at its page, then run hf auth login",
    "RevisionNotFoundError": "no such revision; check the part after @",
    "RepositoryNotFoundError": "no such model or data set, or a private one; check it, or run hf "
    "auth login",
    "LocalEntryNotFoundError": "not in the cache, and the Hub cannot be reached",
    "LocalTokenNotFoundError": "nobody has logged in; run hf auth login",
}
"""Messages for errors of huggingface_hub, by the names of their classes."""


@dataclass(frozen=True)
class ShippedModel:
    """A model that comes with the package, with entries of its model card."""

    name: str
    data: str
    scores: str
    licence: str
    file: Path
    card: Path


def shipped_models() -> list[ShippedModel]:
    """The models that come with the package, the default one first."""
    import yaml  # only here: the command line imports this module for the names

    models = []
    for file in sorted(
        FOLDER.glob("*.safetensors"), key=lambda file: (file.stem != DEFAULT_MODEL, file)
    ):
        card = file.with_suffix(".md")
        _, head, _ = card.read_text(encoding="utf-8").split("---\n", 2)
        entries = yaml.safe_load(head)
        model = ShippedModel(
            name=file.stem,
            data=entries["data"],
            scores=entries["scores"],
            licence=entries["license"],
            file=file,
            card=card,
        )
        models.append(model)
    return models


def path_of(model: str | Path) -> Path:
    """Resolve a model's name, address or path to its file or folder.

    Give ``./photos`` for a file with the name of a shipped model. A model of the Hub, of an address
    such as ``hf://owner/name@revision``, is downloaded unless it is in the cache.

    Raises:
        InputError: the extra is missing, the Hub cannot be reached, or it has no such model.
    """
    if str(model).startswith(HUB_PREFIX):
        repository, revision = hub_address(model)
        with _hub(model) as hub:
            folder = hub.snapshot_download(
                repository, revision=revision, allow_patterns=list(DOWNLOADED)
            )
            return Path(folder)
    shipped_file = FOLDER / f"{model}.safetensors"
    is_name = isinstance(model, str) and model == Path(model).name and shipped_file.exists()
    return shipped_file if is_name else Path(model)


def data_path(data: str | Path) -> Path:
    """Resolve a data set's path, or its address on the Hub, to its file or folder.

    The files of an address such as ``hf://datasets/owner/name@revision`` are downloaded unless they
    are in the cache. Raises InputError as `path_of` does.
    """
    if not str(data).startswith(HUB_PREFIX):
        return Path(data)
    repository, revision = hub_address(data, DATA_SET_PREFIX)
    with _hub(data) as hub:
        return Path(hub.snapshot_download(repository, repo_type="dataset", revision=revision))


def absolute_address(data: str | Path) -> str:
    """The absolute path of a data set, or its unchanged address on the Hub."""
    return str(data if str(data).startswith(HUB_PREFIX) else Path(data).resolve())


def folder_beside(model: str | Path) -> Path:
    """The folder of a model's file; the working folder for a name and for an address."""
    return Path() if str(model).startswith(HUB_PREFIX) else Path(model).parent


def config_names() -> list[str]:
    """The names of the configurations that come with the package."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def config_path_of(config: str) -> str:
    """Resolve a configuration's name, ``flickr8k`` or ``configs/flickr8k.yaml``, to its file.

    An existing file of this path comes first. Any other text is returned unchanged.
    """
    path = Path(config)
    shipped_file = CONFIGS / f"{path.stem}.yaml"
    is_name = str(path.parent) in (".", "configs") and path.suffix in ("", ".yaml")
    is_shipped = is_name and shipped_file.is_file() and not path.is_file()
    return str(shipped_file) if is_shipped else config


def hub_address(text: str | Path, prefix: str = "") -> tuple[str, str | None]:
    """Parse the repository and the revision, or None, of ``hf://owner/name@revision``.

    The address has `prefix` before the owner.
    """
    parts = re.fullmatch(rf"hf:/{{1,2}}{prefix}([\w.-]+/[\w.-]+)(?:@(.+))?", str(text), re.ASCII)
    if not parts:
        address = f"hf://{prefix}OWNER/NAME"
        raise InputError(f"{text}: give {address}, or {address}@REVISION")
    return parts[1], parts[2]


def push(
    repository: str,
    revision: str | None,
    *,
    files: Sequence[Path],
    message: str,
    private: bool | None = None,
) -> str:
    """Upload files to the root of a repository in one commit, and return the commit's address.

    Args:
        repository: owner and name; created if missing.
        revision: a branch, created if missing; None for the main branch.
        files: the files to upload.
        message: of the commit.
        private: whether a new repository is private; None for the owner's default.

    Raises:
        InputError: the extra is missing, nobody has logged in, or the Hub refuses.
    """
    with _hub(f"hf://{repository}") as hub:
        api = hub.HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        if revision:
            api.create_branch(repository, branch=revision, exist_ok=True)
        operations = [hub.CommitOperationAdd(file.name, file) for file in files]
        commit = api.create_commit(
            repository, operations, commit_message=message, revision=revision
        )
    return str(commit.commit_url)


@contextmanager
def _hub(address: str | Path) -> Iterator[Any]:
    """Import the Hub's library; its errors within the block become an InputError with a remedy."""
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError:
        raise InputError(
            f"{address}: needs the extra hub; run pip install 'captioning[hub]'"
        ) from None
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield huggingface_hub
    except Exception as error:  # of the Hub's library or of its HTTP library
        class_names = [error_class.__name__ for error_class in type(error).__mro__]
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = next((REFUSALS[name] for name in class_names if name in REFUSALS), None)
        if status in (401, 403):
            reason = reason or f"the Hub refused ({status}); run hf auth login"
        cause = error.__cause__ or error  # an upload's error is wrapped
        reason = reason or f"the Hub cannot be reached ({cause}); check the connection"
        raise InputError(f"{address}: {reason}") from None

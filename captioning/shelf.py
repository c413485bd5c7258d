"""Models and configurations by name, and models and data sets of the Hugging Face Hub."""

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

DATA = "datasets/"
"""What addresses of data sets have before the owner."""

DOWNLOADED = ("model.safetensors", "config.json")
"""The files of a repository of the Hub that a model is loaded from."""

REFUSALS = {
    "GatedRepoError": "its owner must let you in; ask at its page, then run hf auth login",
    "RevisionNotFoundError": "no such revision; check the part after @",
    "RepositoryNotFoundError": "no such model or data set, or a private one; check it, or run hf "
    "auth login",
    "LocalEntryNotFoundError": "not in the cache, and the Hub cannot be reached",
    "LocalTokenNotFoundError": "nobody has logged in; run hf auth login",
}
"""What errors of huggingface_hub mean, by the names of their classes."""


@dataclass(frozen=True)
class Shipped:
    """A model that comes with the package, and what its model card says of it."""

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
        InputError: the extra is missing, the Hub cannot be reached, or it has no such model.
    """
    if str(model).startswith(HUB):
        repository, revision = hub_address(model)
        with _hub(model) as hub:
            wanted = list(DOWNLOADED)
            return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=wanted))
    named = FOLDER / f"{model}.safetensors"
    is_name = isinstance(model, str) and model == Path(model).name and named.exists()
    return named if is_name else Path(model)


def data_path(data: str | Path) -> Path:
    """The file or folder of a data set's path, or of its address on the Hub.

    The files of an address such as ``hf://datasets/owner/name@revision`` are downloaded unless they
    are in the cache. Raises as `path_of`.
    """
    if not str(data).startswith(HUB):
        return Path(data)
    repository, revision = hub_address(data, DATA)
    with _hub(data) as hub:
        return Path(hub.snapshot_download(repository, repo_type="dataset", revision=revision))


def resolved(data: str | Path) -> str:
    """The absolute path of a data set, or its address as it is."""
    return str(data if str(data).startswith(HUB) else Path(data).resolve())


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
    path, ours = Path(config), CONFIGS / f"{Path(config).stem}.yaml"
    is_name = str(path.parent) in (".", "configs") and path.suffix in ("", ".yaml")
    return str(ours) if is_name and ours.is_file() and not path.is_file() else config


def hub_address(text: str | Path, kind: str = "") -> tuple[str, str | None]:
    """The repository and the revision in ``hf://owner/name@revision``; None for the main branch.

    `kind` stands before the owner.
    """
    parts = re.fullmatch(rf"hf:/{{1,2}}{kind}([\w.-]+/[\w.-]+)(?:@(.+))?", str(text), re.ASCII)
    if not parts:
        address = f"hf://{kind}OWNER/NAME"
        raise InputError(f"{text}: give {address}, or {address}@REVISION")
    return parts[1], parts[2]


def push(
    repository: str,
    revision: str | None,
    files: Sequence[Path],
    message: str,
    private: bool | None = None,
) -> str:
    """Upload files to the root of a repository in one commit; returns the commit's address.

    Args:
        repository: owner and name; it is made if missing.
        revision: a branch, made if it is missing; None for the main branch.
        files: what to upload.
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
        added = [hub.CommitOperationAdd(file.name, file) for file in files]
        commit = api.create_commit(repository, added, commit_message=message, revision=revision)
    return str(commit.commit_url)


@contextmanager
def _hub(address: str | Path) -> Iterator[Any]:
    """The Hub's library, whose errors within the block become lines with a remedy."""
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
    except Exception as error:  # of the Hub's library or of those that it uses for its requests
        kinds = [kind.__name__ for kind in type(error).__mro__]
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = next((REFUSALS[kind] for kind in kinds if kind in REFUSALS), None)
        if status in (401, 403):
            reason = reason or f"the Hub refused ({status}); run hf auth login"
        cause = error.__cause__ or error  # an upload's error is wrapped
        reason = reason or f"the Hub cannot be reached ({cause}); check the connection"
        raise InputError(f"{address}: {reason}") from None

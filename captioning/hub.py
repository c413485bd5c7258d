"""Models on the Hugging Face Hub: ``hf://owner/name@revision``; needs the extra ``hub``."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.errors import InputError

DOWNLOADED = ("model.safetensors", "config.json")
"""The files of a repository that a model is loaded from."""

LIBRARIES = ("httpx", "httpx2", "huggingface_hub", "requests")
"""Whose errors are about the Hub; it has used each of the others for its requests."""


@dataclass(frozen=True)
class Address:
    """Where a model is on the Hub.

    Attributes:
        repository: its owner and its name, ``owner/name``.
        revision: a branch, a tag or a commit; None for the main branch.
    """

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf://{self.repository}" + (f"@{self.revision}" if self.revision else "")


def address_in(model: str | Path) -> Address | None:
    """The ``hf://`` address in a text or a path; None for any other text.

    A path made from an address has one slash after the colon instead of two.

    Raises:
        InputError: it begins with ``hf://``, but does not go on with an owner and a name.
    """
    found = re.match(r"hf:/{1,2}", str(model))
    if not found:
        return None
    rest = str(model)[found.end() :]
    parts = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@(.+))?", rest, re.ASCII)
    if not parts:
        raise InputError(f"hf://{rest}: give hf://OWNER/NAME, or hf://OWNER/NAME@REVISION")
    return Address(*parts.groups())


def downloaded(address: Address) -> Path:
    """The folder of a model's files in the Hub's cache, downloaded unless they are there.

    Raises:
        InputError: the extra is missing, the Hub cannot be reached, or it has no such model.
    """
    with _one_line(address) as library:
        folder = library.snapshot_download(
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
    with _one_line(address) as library:
        api = library.HfApi()
        api.create_repo(address.repository, private=private, exist_ok=True)
        if address.revision:
            api.create_branch(address.repository, branch=address.revision, exist_ok=True)
        operations = [library.CommitOperationAdd(file.name, file) for file in files]
        commit = api.create_commit(
            address.repository, operations, commit_message=message, revision=address.revision
        )
    return str(commit.commit_url)


@contextmanager
def _one_line(address: Address) -> Iterator[Any]:
    """The library, whose errors within the block become lines with a remedy."""
    try:
        import huggingface_hub
        from huggingface_hub import constants, errors
        from huggingface_hub.utils import disable_progress_bars
    except ImportError:
        raise InputError(
            f"{address}: needs the extra hub; run pip install 'captioning[hub]'"
        ) from None
    if not sys.stderr.isatty() and constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        disable_progress_bars()
    try:
        yield huggingface_hub
    except errors.GatedRepoError:
        problem = "its owner must let you in; ask at its page, then run hf auth login"
    except errors.RevisionNotFoundError:
        problem = "no such revision; check the part after @"
    except errors.RepositoryNotFoundError:
        problem = "no such model, or a private one; check the address, or run hf auth login"
    except errors.LocalEntryNotFoundError:
        problem = "not in the cache, and the Hub cannot be reached; check the connection"
    except errors.OfflineModeIsEnabled:
        problem = "the Hub is switched off here; unset HF_HUB_OFFLINE"
    except errors.LocalTokenNotFoundError:
        problem = "nobody has logged in; run hf auth login"
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        problem = f"the Hub answered {status}; try again later"
        if status in (401, 403):
            problem = f"the Hub refused ({status}); run hf auth login with a token that may do this"
    except errors.HFValidationError as error:
        problem = f"not an address of the Hub ({error})"
    except Exception as error:
        causes = (error.__cause__, error)  # an upload's error is wrapped
        cause = next((one for one in causes if _of_the_hub(one)), None)
        if cause is None:
            raise
        problem = f"the Hub cannot be reached ({cause}); check the connection"
    else:
        return
    raise InputError(f"{address}: {problem}")


def _of_the_hub(error: BaseException | None) -> bool:
    """Whether one of the Hub's libraries has raised it."""
    return type(error).__module__.partition(".")[0] in LIBRARIES

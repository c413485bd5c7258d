"""Weights of backbones: downloaded, or from a file of the user's own."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor, nn

from captioning.errors import InputError
from captioning.integrity import check_archive, check_finite
from captioning.untrusted import opened

DEFAULT = "DEFAULT"
"""Stands for the weights that a backbone's library downloads."""


def load_weights(
    model: nn.Module, name: str, weights: str | None, download: Callable[[], dict[str, Tensor]]
) -> None:
    """Give a network its weights.

    Args:
        model: gets the weights.
        name: what an error calls the network.
        weights: ``DEFAULT``, the path of a file, or none to keep the random start.
        download: gives the state dict of ``DEFAULT``.

    Raises:
        InputError: the weights cannot be had or do not fit.
    """
    if weights is None:
        return
    state = download() if weights == DEFAULT else read_weights(Path(weights))
    try:
        model.load_state_dict(state)  # of any version: early ones hold fewer statistics
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{weights}: not the state dict of a {name}; give the weights of that backbone"
        ) from None
    check_finite(Path(weights), model.state_dict())


def downloaded(address: str, download: Callable[[], Any]) -> Any:
    """What `download` gives.

    Args:
        address: what an error names.
        download: reaches for the network.

    Raises:
        InputError: it fails, for whatever reason.
    """
    try:
        return download()
    except Exception as error:  # of the network, of the disk, or of a file that is cut short
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        reason = " ".join(str(error).split())
        raise InputError(
            f"{address}: cannot be downloaded ({reason}); "
            "fetch it elsewhere and give the file as the encoder's weights"
        ) from None


def read_weights(path: Path) -> Any:
    """What a file of weights holds.

    Raises:
        InputError: it cannot be read, or is not of `torch.save`.
    """
    with opened(path) as file:
        if zipfile.is_zipfile(file):  # older versions of torch wrote no archives
            check_archive(path, whole=True)
        file.seek(0)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception:  # torch.load raises a dozen kinds for a file that holds no weights
            raise InputError(f"{path}: not a file of weights saved by torch.save") from None

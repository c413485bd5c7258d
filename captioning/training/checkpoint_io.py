"""How a training's checkpoints reach the disk."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from captioning.files import written_whole


class WholeCheckpoints(TorchCheckpointIO):
    """Writes checkpoints beside their place and renames them, as all other files are.

    Lightning's own go through the system's temporary folder and are copied where that is on another
    file system: a disk that is full by then keeps half a checkpoint in place of the earlier one.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint, whole or not at all.

        Raises:
            InputError: the file cannot be written; an earlier one is still there.
        """
        with written_whole(path) as temporary:
            try:
                # To a file of Python's: torch's own writer does not say what the system said.
                with temporary.open("wb") as file:
                    torch.save(checkpoint, file)
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

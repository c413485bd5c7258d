"""Encoders that OpenVINO runs on a CPU: the same annotation vectors in less time.

A network is converted once, compared with PyTorch's, and kept in the user's cache folder.

Shapes: B images, S x S pixels, L regions, D annotation width.
"""

import hashlib
import json
import logging
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from captioning.errors import InputError
from captioning.kernels.convolutions import folded
from captioning.models.encoder import Encoder

log = logging.getLogger(__name__)

Network = TypeVar("Network", bound=nn.Module)

Engine = Literal["auto", "torch", "openvino"]
"""What runs encoders; auto is OpenVINO if it is installed, on a CPU."""

SWITCH = "CAPTIONING_ENGINE"
"""The environment variable that stands for auto."""

TOLERANCE = 1e-4
"""The largest difference of an annotation vector's number, as a share of the largest number."""

PIXELS_AT_ONCE = 2**20
"""Pixels of images that are encoded at once: 10 of 320 x 320."""


def fast_encoder(network: Network, size: int, engine: Engine = "auto") -> Network:
    """A network that gives the same output for images (B, 3, S, S) in less time; see `folded`.

    Args:
        network: frozen, in evaluation mode, from uint8 images to annotation vectors or features.
        size: S.
        engine: what runs it.

    Raises:
        InputError: OpenVINO is asked for, but is not installed or cannot run this network.
    """
    fast = folded(network)
    chosen = os.environ.get(SWITCH, "auto") if engine == "auto" else engine
    if chosen == "torch" or (chosen == "auto" and next(fast.parameters()).device.type != "cpu"):
        return fast
    try:
        import openvino
    except ImportError:
        if chosen == "auto":
            return fast
        raise InputError(
            "the engine openvino needs the extra openvino; run pip install 'captioning[openvino]'"
        ) from None
    try:
        encoder = OpenVINOEncoder(fast, size)
    except Exception as error:  # of a library that is given a network of any kind
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if chosen == "auto":
            log.info("OpenVINO cannot run this encoder, so PyTorch does: %s", reason)
            return fast
        raise InputError(f"OpenVINO cannot run this encoder: {reason}") from None
    log.info("OpenVINO %s runs the encoder", openvino.__version__.partition("-")[0])
    return cast("Network", encoder)


class OpenVINOEncoder(Encoder):
    """Equals an encoder or its frozen stages within `TOLERANCE`, for images of one size on a CPU.

    PyTorch encodes all others.

    Args:
        network: as for `fast_encoder`.
        size: S, side of the images in pixels.

    Raises:
        RuntimeError: the network cannot be converted, or gives other numbers then.
    """

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network = network
        self.size = size
        self.annotation_dim = getattr(network, "annotation_dim", 0)  # which only encoders have
        self._compiled = self._compile()

    def forward(self, images: UInt8[Tensor, "B 3 H W"]) -> Float[Tensor, "B L D"]:
        """What the network gives."""
        if images.shape[2:] != (self.size, self.size) or images.device.type != "cpu":
            return cast("Tensor", self.network(images))
        if self._compiled is None:
            self._compiled = self._compile()
        parts = images.split(max(1, PIXELS_AT_ONCE // self.size**2))
        found = [torch.from_numpy(self._compiled(part.numpy())[0].copy()) for part in parts]
        return torch.cat(found) if len(found) > 1 else found[0]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the regions of an image of so many pixels."""
        return cast("Encoder", self.network).grid(height, width)

    def completed(self, features: Float[Tensor, "B P C"]) -> Float[Tensor, "B L D"]:
        """Annotation vectors from cached features, by PyTorch."""
        return cast("Encoder", self.network).completed(features)

    def __getstate__(self) -> dict[str, Any]:
        """Without what OpenVINO has compiled, which each process does for itself."""
        return {**self.__dict__, "_compiled": None}

    def _compile(self) -> Any:
        import openvino

        settings = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,  # or several processes would share a core
        }
        core = openvino.Core()
        file = cache_folder() / _key(self.network, self.size) / "encoder.xml"
        model = None
        if not file.exists():
            model = _converted(self.network, self.size)
            _compare(core.compile_model(model, "CPU", settings), self.network, self.size)
            _keep(model, file)
        if file.exists():  # now or earlier: its last digits may differ from the model's
            model = core.read_model(file)
        return core.compile_model(model, "CPU", settings)


def cache_folder() -> Path:
    """Where converted networks are kept; it may be removed at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "captioning" / "openvino"


def _key(network: nn.Module, size: int) -> str:
    """A text that only this network has, for this size and version of OpenVINO."""
    import openvino

    digest = hashlib.sha256()
    described = [openvino.__version__, torch.__version__, size, str(network)]
    digest.update(json.dumps(described).encode())
    for name, value in network.state_dict().items():
        digest.update(f"{name} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def _converted(network: nn.Module, size: int) -> Any:
    # Not by openvino.convert_model, which reports its use to Intel.
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    example = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        decoder = TorchScriptPythonDecoder(network, example_input=(example,))
        frontend = FrontEndManager().load_by_framework("pytorch")
        model = frontend.convert(frontend.load(decoder))
    model.reshape([-1, 3, size, size])
    return model


def _compare(compiled: Any, network: nn.Module, size: int) -> None:
    """Raise RuntimeError if the numbers are not those of PyTorch, also for another batch size."""
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 3, size, size), generator=random, dtype=torch.uint8)
    with torch.no_grad():
        expected = network(images)
    found = torch.from_numpy(compiled(images.numpy())[0])
    if found.shape != expected.shape:
        raise RuntimeError("its output has another shape")
    difference = (found - expected).abs().max() / expected.abs().max()
    if not difference <= TOLERANCE:  # also NaN
        raise RuntimeError(f"its numbers differ by {difference:.1e} of the largest")


def _keep(model: Any, file: Path) -> None:
    """Write a converted network, if the cache folder can be written to."""
    import openvino

    with suppress(OSError, RuntimeError):
        file.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent.parent) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            openvino.save_model(model, made / file.name, compress_to_fp16=False)
            made.rename(file.parent)  # fails if another process was first

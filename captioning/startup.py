"""What makes a model load quickly: nothing is imported or computed that a loaded model lacks."""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

COMPILER = "torch._dynamo.utils"
"""A part of torch's compiler that torchvision imports for one function of one operator."""

DRAWS: set[Callable[..., Any]] = {
    Tensor.normal_,
    Tensor.uniform_,
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.kaiming_uniform_,
}
"""How parameters are filled by chance: what torch announces to a `TorchFunctionMode`."""


def torchvision_models() -> Any:
    """The module `torchvision.models`, in a tenth of the time of `import torchvision.models`.

    torchvision imports torch's whole compiler, SymPy with it, for an operator of object detection
    that asks whether it may be compiled. It gets that module only when it asks.
    """
    if COMPILER in sys.modules or "torchvision" in sys.modules:
        return import_module("torchvision.models")
    late = _Late(COMPILER)
    sys.modules[COMPILER] = late
    try:
        return import_module("torchvision.models")
    finally:
        late.give_way()


class _Late(ModuleType):
    """Stands for a module that is imported when anything but `is_compile_supported` is read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for a module's own attributes
            raise AttributeError(name)
        return getattr(self._real(), name)

    def is_compile_supported(self, device: Any) -> Any:
        return self._real().is_compile_supported(device)

    def give_way(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def _real(self) -> ModuleType:
        self.give_way()
        return import_module(self.__name__)


class WithoutRandomStart(TorchFunctionMode):
    """Modules built inside keep their parameters as memory came; for those that are loaded next.

    Drawing the hundred million random numbers of a VGG takes seconds. All else is computed as
    ever, so that what a module makes of other values is right.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function, unless it would fill a parameter by chance."""
        kwargs = kwargs or {}
        if function in DRAWS:
            tensor = args[0] if args else kwargs["tensor"]
            # No other tensor: there are functions that draw until they like what they have got.
            if isinstance(tensor, nn.Parameter):
                return tensor
        return function(*args, **kwargs)

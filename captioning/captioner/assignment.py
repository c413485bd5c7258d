"""Builds modules without initialising them, and assigns a checkpoint's tensors.

Drawing a VGG's hundred million random numbers takes seconds, and a checkpoint replaces all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def built_without_numbers(build: Callable[[], AnyModule]) -> AnyModule | None:
    """The module that `build` makes, with all tensors on the device "meta".

    Returns:
        None if the module's constructor computes with values.
    """
    try:
        with torch.device("meta"), _NothingDrawn():
            return build()
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        return None


def assign(module: nn.Module, tensors: Mapping[str, Tensor]) -> bool:
    """Assign copies of tensors to a module; tied parameters stay tied.

    Args:
        module: built on the device "meta".
        tensors: its state dict.

    Returns:
        False if the module holds further tensors, which are still on the device "meta".
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    wanted = module.state_dict()
    copies = {name: value.to(wanted[name].dtype, copy=True) for name, value in tensors.items()}
    module.load_state_dict(copies, assign=True)
    for first, *others in names.values():
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, module.get_parameter(first))
    return not any(
        isinstance(value, Tensor) and value.is_meta
        for part in module.modules()
        for held in (vars(part), part._parameters, part._buffers)
        for value in held.values()
    )


class _NothingDrawn(TorchFunctionMode):
    """Skips random initialisation of tensors on the device "meta".

    They have no values to fill, and PyTorch would import its compiler to find that out.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function, unless it would fill a tensor on the device "meta"."""
        kwargs = kwargs or {}
        fills = function in (Tensor.normal_, Tensor.uniform_)
        if fills or getattr(function, "__module__", None) == "torch.nn.init":
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return function(*args, **kwargs)

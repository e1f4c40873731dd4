"""`Linear` for torch.nn.Linear, and the function that puts it into a model."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from gen.api.views import element
from gen.torch.functions import linear


class Linear(nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear, multiplied by gen's kernels: same arguments, parameters and state_dict."""

    def forward(self, input: Tensor) -> Tensor:
        """x @ weight.T + bias; see `gen.torch.linear`."""
        return linear(input, self.weight, self.bias)


class Replaced(NamedTuple):
    """What `replace_linear` did: names of modules as model.named_modules() has them.

    `left`: those that are linear, too, and stay as they were, each with the reason.
    """

    swapped: list[str]
    left: dict[str, str]


def replace_linear(model: nn.Module) -> Replaced:
    """Makes each torch.nn.Linear of a model, or the model itself, a `Linear`, in place.

    The modules stay the objects that they are: parameters, optimizers that have them, tied weights,
    hooks and modes are not touched, and neither are the names in a state_dict. Subclasses of
    nn.Linear stay as they are, since they may multiply otherwise, and so do modules whose type no
    kernel has. Code that reads `weight` and multiplies by itself, such as nn.MultiheadAttention, is
    not affected.
    """
    done = Replaced([], {})
    for name, module in model.named_modules():
        if isinstance(module, Linear) or not isinstance(module, nn.Linear):
            continue
        if type(module) is not nn.Linear:
            done.left[name] = f"{type(module).__name__}, a subclass of Linear"
        elif "forward" in vars(module):
            done.left[name] = "it has a forward of its own"
        elif element(module.weight.dtype) is None:
            done.left[name] = f"no kernel has {module.weight.dtype}"
        else:
            module.__class__ = Linear
            done.swapped.append(name)
    return done

"""`Linear` for torch.nn.Linear, and the function that puts it into a model."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, fx, nn

from gen.api.views import element
from gen.errors import UsageError
from gen.torch.functions import check_invariant, linear

fx.wrap("linear")  # which torch.fx.symbolic_trace would look into


class Linear(nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear, multiplied by gen's kernels: same arguments, parameters and state_dict.

    invariant: "rows" for rows of the result whose bits do not depend on other rows.
    """

    invariant: str | None = None

    def __init__(self, *args: Any, invariant: str | None = None, **kwargs: Any) -> None:
        check_invariant(invariant)
        super().__init__(*args, **kwargs)
        self.invariant = invariant

    def forward(self, input: Tensor) -> Tensor:
        """x @ weight.T + bias; see `gen.torch.linear`."""
        return linear(input, self.weight, self.bias, invariant=self.invariant)

    def extra_repr(self) -> str:
        """The arguments."""
        more = f", invariant={self.invariant!r}" if self.invariant else ""
        return f"{super().extra_repr()}{more}"


class Replaced(NamedTuple):
    """What `replace_linear` did: names of modules as model.named_modules() has them.

    `left`: those that are linear, too, and stay as they were, each with the reason.
    """

    swapped: list[str]
    left: dict[str, str]


def replace_linear(model: nn.Module, *, invariant: str | None = None) -> Replaced:
    """Makes each torch.nn.Linear of a model, or the model itself, a `Linear`, in place.

    invariant: as `Linear` has it; those that are one already are left as they are.

    The modules stay the objects that they are: parameters, optimizers that have them, tied weights,
    hooks and modes are not touched, and neither are the names in a state_dict. Subclasses of
    nn.Linear stay as they are, since they may multiply otherwise, and so do modules whose type no
    kernel has. Code that reads `weight` and multiplies by itself, such as nn.MultiheadAttention, is
    not affected.

    Raises UsageError for what is no module.
    """
    check_invariant(invariant)
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
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
            module.invariant = invariant
            done.swapped.append(name)
    return done

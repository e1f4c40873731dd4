"""`gen.torch.Linear` and `replace_linear`."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gen.torch as gt  # noqa: E402
from gen.errors import UsageError  # noqa: E402
from tests.torch.test_functions import ints, same  # noqa: E402


def test_linear_is_made_as_pytorchs() -> None:
    for bias in (True, False):
        torch.manual_seed(3)
        ours = gt.Linear(6, 4, bias=bias)
        torch.manual_seed(3)
        theirs = nn.Linear(6, 4, bias=bias)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        same(ours.weight, theirs.weight)
        theirs.load_state_dict(ours.state_dict())
        x = torch.randn(3, 6)
        torch.testing.assert_close(ours(x), theirs(x))


def test_linear_may_be_invariant() -> None:
    model = nn.Sequential(nn.Linear(6, 4))
    gt.replace_linear(model, invariant="rows")
    x = torch.randn(20, 6)
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(one(x)[3:5], one(x[3:5]))
        assert "invariant='rows'" in repr(one)
    with pytest.raises(UsageError, match="did you mean rows"):
        gt.Linear(6, 4, invariant="row")


def test_a_model_is_traced_and_exported() -> None:
    model = nn.Sequential(gt.Linear(8, 4), nn.ReLU())
    x, dynamic = ints(3, 8), ({0: torch.export.Dim("n")},)
    for one in (
        torch.fx.symbolic_trace(model),
        torch.export.export(model, (x,), dynamic_shapes=dynamic).module(),
    ):
        for rows in (x, ints(5, 8)):
            torch.testing.assert_close(one(rows), model(rows))
    meta = gt.Linear(8, 4, device="meta")(x.to("meta"))
    assert (meta.shape, meta.device.type) == ((3, 4), "meta")


class Special(nn.Linear):
    """A subclass, which may do anything."""


def test_a_model_is_swapped_in_place() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "special": Special(4, 4)})
    model["again"] = model["a"]  # one module in two places
    model["b"].weight = model["a"].weight  # tied weights
    model["own"] = nn.Linear(4, 4)
    model["own"].forward = lambda x: x
    model["complex"] = nn.Linear(4, 4, dtype=torch.complex64)
    calls: list[int] = []
    model["a"].register_forward_hook(lambda *_: calls.append(1))
    before, names = list(model.parameters()), list(model.state_dict())
    done = gt.replace_linear(model)
    assert done.swapped == ["a", "b"]
    assert done.left == {
        "special": "Special, a subclass of Linear",
        "own": "it has a forward of its own",
        "complex": "no kernel has torch.complex64",
    }
    assert all(one is other for one, other in zip(model.parameters(), before, strict=True))
    assert list(model.state_dict()) == names
    assert model["again"] is model["a"]
    assert model["b"].weight is model["a"].weight
    x = ints(3, 4)
    torch.testing.assert_close(model["a"](x), nn.functional.linear(x, *before[:2]))
    assert calls == [1]
    assert gt.replace_linear(model) == gt.Replaced([], done.left)


def test_a_model_may_be_a_linear_layer() -> None:
    model = nn.Linear(4, 4)
    assert gt.replace_linear(model).swapped == [""]
    assert type(model) is gt.Linear
    for wrong in ([model], None):
        with pytest.raises(UsageError, match="; pass a "):
            gt.replace_linear(wrong)

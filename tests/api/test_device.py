"""`gen.matmul` and `gen.Kernel` as a GPU sees them: launches on a stand-in for one, or on one."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gen
from gen.api import frameworks, kernel
from gen.api.frameworks import foreign
from gen.errors import CheckError, GenError, SpecError, UsageError
from gen.kernels.registry import make_spec
from gen.source.render import render
from tests.api.test_matmul import exact, ints
from tests.support.fake_torch import FakeGpu, Tensor, install
from tests.support.slow import slow


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return install(monkeypatch)


def halves(*shape: int, seed: int = 0) -> np.ndarray:
    return ints(*shape, dtype=np.float16, seed=seed)


# -- a stand-in: what is launched, where and with what --------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "launches"),
    [
        ((3, 9, 10), (3, 10, 11), 1),
        ((3, 9, 10), (10, 11), 1),
        ((2, 1, 9, 10), (3, 10, 11), 2),
    ],
)
def test_batches(
    fake: FakeGpu, left: tuple[int, ...], right: tuple[int, ...], launches: int
) -> None:
    a, b = ints(*left), ints(*right)
    for _ in range(2):  # the second call is prepared
        fake.log.clear()
        got = gen.matmul(Tensor.of(a), Tensor.of(b), variant="tiles")
        np.testing.assert_array_equal(got.numpy(), a @ b)
        assert sum("gemm" in name for name in fake.log) == launches


def test_a_product_on_the_current_stream(fake: FakeGpu) -> None:
    a, b = ints(9, 10), ints(10, 11)
    got = gen.matmul(Tensor.of(a), Tensor.of(b))
    np.testing.assert_array_equal(got.numpy(), exact(a, b))
    assert fake.streams == [40]  # the one that the stand-in says is current
    assert got.dtype == "torch.float32"


def test_the_second_call_only_launches(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = gen.Kernel("tiles", tile=4)
    for seed in range(3):
        a, b, c = (ints(*s, seed=seed) for s in ((5, 6), (6, 7), (5, 7)))
        got = multiply(Tensor.of(a), Tensor.of(b), Tensor.of(c), alpha=seed, beta=2 - seed / 2)
        np.testing.assert_array_equal(got.numpy(), seed * exact(a, b) + (2 - seed / 2) * c)
        monkeypatch.setattr(kernel, "fitted", None)  # nobody asks again
    assert len(multiply._prepared) == 1


def test_alpha_beyond_its_type_is_infinite(fake: FakeGpu) -> None:
    a = Tensor.of(np.ones((4, 4), np.float32))
    for alpha, value in ((np.float64(2), 8), (1e300, np.inf), (-np.inf, -np.inf)):
        assert (gen.matmul(a, a, alpha=alpha).numpy() == value).all()
    ones = Tensor.of(np.ones((4, 4), np.int8))
    for alpha in (2, 2.0, np.int64(2)):
        assert (gen.matmul(ones, ones, alpha=alpha).numpy() == 8).all()
    for alpha, said in ((2.5, "alpha=2.5 is no integer"), (1 << 31, "does not fit into 32 bits")):
        with pytest.raises(GenError, match=said):
            gen.matmul(ones, ones, alpha=alpha)


def test_calls_at_once_have_memory_of_their_own(fake: FakeGpu) -> None:
    """As threads make them: the second begins and ends while the driver has the first."""
    multiply = gen.Kernel("tiles", tile=4)
    arrays = [[ints(*s, seed=i) for s in ((5, 6), (6, 7))] for i in range(3)]
    pairs = [[Tensor.of(x) for x in pair] for pair in arrays]
    launch, others = fake.driver.cuLaunchKernelEx, [*pairs[1:]]
    found: list[Any] = []

    def meanwhile(*args: Any) -> Any:
        if others:
            found.append(multiply(*others.pop(), alpha=3, stream=7))
        return launch(*args)

    fake.driver.cuLaunchKernelEx = meanwhile
    found.append(multiply(*pairs[0]))
    for got, (a, b), alpha in zip(found, arrays[1:] + arrays[:1], (3, 3, 1), strict=True):
        np.testing.assert_array_equal(got.numpy(), alpha * exact(a, b))
    assert fake.streams == [7, 7, 40]


def test_operands_of_ones_own_by_any_name(fake: FakeGpu) -> None:
    """One is called as a kernel's own bias is."""
    a, b, up, bias = (ints(*s, seed=i) for i, s in enumerate(((5, 6), (6, 7), (5, 7), (7,))))
    operands = {"up": Tensor.of(up), "bias": Tensor.of(bias), "gain": 2}
    text = "x * up[row, col] + bias[col] - gain"
    got = gen.matmul(Tensor.of(a), Tensor.of(b), epilogue=text, operands=operands)
    np.testing.assert_array_equal(got.numpy(), exact(a, b) * up + bias - 2)


def test_a_view_with_the_other_sign_is_refused(fake: FakeGpu) -> None:
    """Also where the same call without the sign is prepared: z.conj().imag after z.imag."""
    multiply, a = gen.Kernel("tiles"), Tensor.of(ints(4, 8))
    imaginary = Tensor.of(ints(8, 2))[:, 1:]
    for _ in range(2):
        got = multiply(a, imaginary).numpy()
        np.testing.assert_array_equal(got, a.numpy() @ imaginary.numpy())
    imaginary.negated = True
    with pytest.raises(UsageError, match="B is a view of numbers with the other sign"):
        multiply(a, imaginary)


def test_numbers_are_told_apart_by_their_bits(fake: FakeGpu) -> None:
    """-0.0 is equal to 0.0, and NaN is not equal to itself."""
    multiply, ones = gen.Kernel("tiles", epilogue="x / s"), Tensor.of(np.ones((2, 2), np.float32))
    for value in (-0.0, 0.0, np.float32(-0.0), float("nan"), float("nan")):
        got = multiply(ones, ones, operands={"s": value}).numpy()
        np.testing.assert_array_equal(got, np.copysign(np.inf, value) if value == 0 else np.nan)
    assert len(multiply._prepared) == 3


@slow
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_views_are_not_copied(dtype: str, fake: FakeGpu) -> None:
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    a, b, c = (ints(*s, dtype=kind) for s in ((30, 40), (30, 20), (20, 40)))
    ta, tb, tc = map(Tensor.of, (a, b, c))
    out = Tensor.of(np.zeros((32, 40), kind))
    for x, y, d in (
        (ta.t(), tb, None),
        (ta[:, :20], tc, None),
        (ta[3:9, 8:28], tc[:, 4:12], out[1:7, 8:16]),
        (tb.t(), ta, out[:20, :]),
        (tc, ta.t(), out[:30, :20].t()),
    ):
        want = exact(x.numpy(), y.numpy())
        launches = len(fake.buffers) + (d is None)
        got = gen.matmul(x, y, out=d)
        np.testing.assert_array_equal(got.numpy(), want)
        assert len(fake.buffers) == launches  # the result alone is new
    assert not fake.spaces


@pytest.mark.parametrize(("variant", "arch"), [("mma", "sm_80"), ("mma_tma", "sm_90a")])
@pytest.mark.slow
def test_a_workspace_comes_and_goes_with_the_call(
    variant: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(monkeypatch, arch)
    fake.driver.cuMemAllocFromPoolAsync = None  # PyTorch is asked, so that it knows of all memory
    multiply = gen.Kernel(variant, threadblock="64x64x" + ("64" if variant == "mma_tma" else "32"),
                          warp="32x32", split_k=2)  # fmt: skip
    for seed in range(2):
        # Lines of A are no whole units of 16 bytes.
        a, b = halves(20, 131, seed=seed), halves(131, 24, seed=seed)
        got = multiply(Tensor.of(a), Tensor.of(b))
        np.testing.assert_array_equal(got.numpy(), exact(a, b).astype(np.float16))
    names = [entry.rpartition("_")[2] for entry in fake.log]
    assert names == ["allocate", "pack", "sk2", "reduce", "free"] * 2
    assert not fake.spaces


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tensor_maps_follow_their_matrices(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, arch)
    for seed in range(3):
        a, b = halves(64, 64, seed=seed), halves(64, 64, seed=seed + 9)
        np.testing.assert_array_equal(gen.matmul(Tensor.of(a), Tensor.of(b)).numpy(), exact(a, b))


def test_streams(fake: FakeGpu) -> None:
    a, b, out = (Tensor.of(ints(4, 4)) for _ in range(3))
    for stream in (
        77,
        SimpleNamespace(cuda_stream=77),
        SimpleNamespace(ptr=77),
        SimpleNamespace(__cuda_stream__=lambda: (0, 77)),
    ):
        gen.matmul(a, b, out=out, stream=stream)
    assert fake.streams == [77] * 4


def test_a_result_for_another_stream_is_allocated_there(fake: FakeGpu) -> None:
    used: list[Any] = []

    class On:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            used.append(self.stream)

        def __exit__(self, *_: object) -> None:
            pass

    sys.modules["torch"].cuda = SimpleNamespace(
        stream=On,
        ExternalStream=lambda handle, device: (handle, device),
        default_stream=lambda device: ("default", device),
    )
    a = Tensor.of(ints(4, 4))
    for stream in (77, 0, 40):
        gen.matmul(a, a, stream=stream)
    assert used == [(77, 0), ("default", 0)]  # 40 is current


def test_gradients_are_not_lost_silently(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a = Tensor.of(ints(4, 4))
    a.requires_grad = True
    with pytest.raises(UsageError, match=r"A requires a gradient.*x.detach\(\)"):
        gen.matmul(a, a)
    monkeypatch.setattr(sys.modules["torch"], "is_grad_enabled", lambda: False)
    gen.matmul(a, a)


def test_a_file_for_another_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "sm_90a")
    path = tmp_path / "mine.cu"
    path.write_text(render(make_spec("tiles", arch="sm_75", tile=4)).text)
    a, b = ints(5, 6), ints(6, 7)
    for made in (gen.Kernel(path), gen.Kernel(make_spec("tiles", arch="sm_75", tile=4))):
        np.testing.assert_array_equal(made(Tensor.of(a), Tensor.of(b)).numpy(), exact(a, b))
    install(monkeypatch, "sm_100a")
    with pytest.raises(SpecError, match="mma_tma needs sm_90a, not sm_100a"):
        gen.Kernel(make_spec("mma_tma"))(Tensor.of(halves(8, 8)), Tensor.of(halves(8, 8)))


def test_an_empty_result_is_not_launched(fake: FakeGpu) -> None:
    a, b = Tensor.of(np.empty((0, 4), np.float32)), Tensor.of(ints(4, 4))
    assert gen.matmul(a, b).shape == (0, 4)
    assert fake.log == []


def test_what_a_gpu_refuses(fake: FakeGpu) -> None:
    a, numpy = Tensor.of(ints(4, 4)), ints(4, 4)
    with pytest.raises(UsageError, match="A is on GPU 0 and B in host memory"):
        gen.matmul(a, numpy)
    with pytest.raises(UsageError, match=r"A and B are of different frameworks.*pass stream"):
        gen.matmul(a, Plain(a))
    with pytest.raises(UsageError, match="device='cpu' is for arrays of the host"):
        gen.matmul(a, a, device="cpu")
    for bad in ("1", None):
        with pytest.raises(UsageError, match=r"alpha=.* number"):
            gen.matmul(a, a, alpha=bad)
    gen.matmul(a, a)
    with pytest.raises(UsageError, match=r"alpha='1'.* number"):
        gen.matmul(a, a, alpha="1")
    with pytest.raises(UsageError, match="A is a Plain in host memory; pass a NumPy array"):
        foreign.Foreign().on_host(Plain(a), "A")
    fake.driver.cuLaunchKernelEx = lambda *_: (700,)
    fake.driver.CUresult = lambda status: SimpleNamespace(name=f"ERROR_{status}")
    with pytest.raises(CheckError, match="cuLaunchKernelEx failed: ERROR_700"):
        gen.matmul(a, a, a, beta=1)


def test_another_gpu_is_made_current_for_the_launch(fake: FakeGpu) -> None:
    depth = [0]

    def move(by: int) -> tuple[int]:
        depth[0] += by
        return (0,)

    fake.driver.cuCtxGetCurrent = lambda: (0, 2)
    fake.driver.cuCtxPushCurrent = lambda _: move(1)
    fake.driver.cuCtxPopCurrent = lambda: (*move(-1), None)
    launch = fake.driver.cuLaunchKernelEx
    seen = []
    fake.driver.cuLaunchKernelEx = lambda *args: (seen.append(depth[0]), launch(*args))[1]
    a = Tensor.of(ints(4, 4))
    gen.matmul(a, a)
    assert (seen, depth) == ([1], [0])


@pytest.mark.parametrize("k", [4, 131])  # without and with a workspace
def test_a_stream_of_another_gpu_is_refused(k: int, fake: FakeGpu) -> None:
    fake.driver.cuLaunchKernelEx = lambda *_: (400,)
    fake.driver.CUresult = lambda status: SimpleNamespace(name=f"ERROR_{status}")
    fake.driver.cuStreamGetCtx = lambda stream: (0, 2 if stream == 77 else 1)
    a, b, out = (Tensor.of(halves(*s)) for s in ((8, k), (k, 8), (8, 8)))
    with pytest.raises(UsageError, match=r"stream is of another GPU .* on GPU 0"):
        gen.matmul(a, b, out=out, stream=77)
    assert not fake.spaces
    with pytest.raises(CheckError, match="ERROR_400"):
        gen.matmul(a, b, out=out, stream=78)


def test_prepared_calls_do_not_pile_up(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST_PREPARED", 3)
    multiply = gen.Kernel("naive")
    for n in range(1, 9):
        multiply(Tensor.of(ints(2, 3)), Tensor.of(ints(3, n)))
    assert len(multiply._prepared) <= 3


# -- other arrays: DLPack and __cuda_array_interface__ ---------------------------------------------


class Plain:
    """An array that only says what it is, as cuda.core would find it."""

    __cuda_array_interface__: Any = None

    def __init__(self, tensor: Tensor, readonly: bool = False) -> None:
        self.tensor, self.readonly, self.dtype = tensor, readonly, tensor.numpy_dtype

    def described(self) -> Any:
        t = self.tensor
        contiguous = t.stride() == (t.shape[1], 1)
        return SimpleNamespace(
            ptr=t.data_ptr(), shape=t.shape, strides=None if contiguous else t.stride(),
            dtype=self.dtype, device_id=0, is_device_accessible=True, readonly=self.readonly,
        )  # fmt: skip


class Namespaced(Plain):
    """An array of the array API."""

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=lambda array: ("taken over", array))


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replaces StridedMemoryView; the streams that it was asked for."""
    from cuda.core import utils

    streams: list[int] = []

    def view(array: Plain, stream: int) -> Any:
        streams.append(stream)
        return array.described()

    monkeypatch.setattr(utils, "StridedMemoryView", SimpleNamespace(from_any_interface=view))
    return streams


def test_any_array_into_out(fake: FakeGpu, views: list[int]) -> None:
    a, b = ints(6, 8), ints(10, 8)
    out = Tensor.of(np.zeros((6, 10), np.float32))
    waited: list[int] = []
    fake.synchronize = waited.append  # type: ignore[method-assign,assignment]
    x, y, d = Plain(Tensor.of(a)), Plain(Tensor.of(b).t()), Plain(out)
    assert gen.matmul(x, y, out=d) is d
    np.testing.assert_array_equal(out.numpy(), exact(a, b.T))
    assert (set(views), fake.streams, waited) == ({-1, 1}, [1], [1])  # -1: which GPU is it on?
    gen.matmul(x, y, out=d, stream=9)
    assert (views[-1], fake.streams[-1], waited) == (9, 9, [1])  # the caller's own order
    with pytest.raises(
        UsageError, match="Plain has no way to make another array like it; pass out"
    ):
        gen.matmul(x, y)
    with pytest.raises(UsageError, match="out is read-only"):
        gen.matmul(x, y, out=Plain(out, readonly=True))


def test_the_arrays_gpu_is_current_while_streams_are_ordered(
    fake: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle of the default stream means the current GPU's."""
    from cuda.core import utils

    asked: list[tuple[int, bool]] = []
    current = [0]

    def move(by: int) -> tuple[int, None]:
        current[0] += by
        return 0, None

    def view(array: Plain, stream: int) -> Any:
        asked.append((stream, current[0] > 0))
        return array.described()

    fake.driver.cuCtxPushCurrent = lambda _: move(1)[:1]
    fake.driver.cuCtxPopCurrent = lambda: move(-1)
    monkeypatch.setattr(utils, "StridedMemoryView", SimpleNamespace(from_any_interface=view))
    frameworks.Foreign().describe(Plain(Tensor.of(ints(4, 4))), "A", None)
    assert (asked, current) == ([(-1, False), (1, True)], [0])


def test_a_framework_takes_over_the_result(
    fake: FakeGpu, views: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Tensor] = []

    def array(_: FakeGpu, shape: Any, kind: str, row_major: bool, stream: int) -> Any:
        made.append(Tensor.of(np.zeros(shape, np.float32)))
        return Plain(made[-1]).described()

    monkeypatch.setattr(foreign, "new_array", array)
    fake.synchronize = lambda stream: None  # type: ignore[method-assign]
    a = ints(6, 6)
    got = gen.matmul(Namespaced(Tensor.of(a)), Namespaced(Tensor.of(a)))
    assert got[0] == "taken over"
    np.testing.assert_array_equal(made[0].numpy(), exact(a, a))


def test_an_array_that_cannot_be_viewed(fake: FakeGpu) -> None:
    class Broken:
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("it is elsewhere")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(UsageError, match="A cannot be read as an array on a GPU: it is elsewhere"):
        gen.matmul(Broken(), Broken())


# -- a GPU ----------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    return found


def drawn(torch: Any, *shape: int, dtype: str = "float16") -> Any:
    """Small integers, exact in any type."""
    return torch.randint(-4, 5, shape, device="cuda").to(getattr(torch, dtype))


def right(torch: Any, got: Any, a: Any, b: Any) -> bool:
    want = (a.double() @ b.double()).to(got.dtype)
    return bool(torch.equal(got, want))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32"])
def test_torch_types_and_views(dtype: str, torch: Any) -> None:
    a, b = drawn(torch, 96, 200, dtype=dtype), drawn(torch, 200, 130, dtype=dtype)
    square = drawn(torch, 200, 200, dtype=dtype)
    for x, y in (
        (a, b),
        (b.t(), a.t()),
        (a[:, 8:72], b[8:72, 16:]),
        (a[1:, 1:64], square[1:64, 3:]),
        (square.t(), b),
        (a[3], b),
        (a, b[:, 5]),
        (a[:0], b),
        (a[:, :0], b[:0]),
    ):
        got = gen.matmul(x, y)
        assert got.device == a.device
        assert right(torch, got, x, y), (x.shape, x.stride(), y.shape, y.stride())


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["mma", "mma_tma", "rec_tiles", "naive"])
def test_torch_out_c_and_bias(variant: str, torch: Any) -> None:
    if variant == "mma_tma" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("mma_tma needs sm_90")
    a, b, c = drawn(torch, 96, 200), drawn(torch, 200, 130), drawn(torch, 96, 130)
    multiply = gen.Kernel(variant)
    for out in (torch.empty_like(c), torch.empty(130, 96, device="cuda", dtype=c.dtype).t()):
        source = torch.empty_like(out).copy_(c) if out.is_contiguous() else c.t().contiguous().t()
        assert multiply(a, b, source, alpha=2, beta=-1, out=out) is out
        want = (2 * (a.double() @ b.double()) - c.double()).half()
        assert torch.equal(out, want)
    if variant.startswith("mma"):
        got = gen.matmul(a, b, bias=c[0], variant=variant, epilogue="linear_bias_relu")
        assert torch.equal(got, (a.double() @ b.double() + c[0].double()).relu().half())


@pytest.mark.gpu
def test_torch_streams(torch: Any) -> None:
    a, b = drawn(torch, 2048, 2048), drawn(torch, 2048, 2048)
    gen.matmul(a, b)  # compiles, which takes longer than the kernels below
    own = torch.cuda.Stream()
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        torch.cuda._sleep(50_000_000)
        late = (b * 0).copy_(b)
        got = gen.matmul(a, late)  # wrong where it does not come after that
    given = gen.matmul(a, b, stream=own)
    own.synchronize()
    torch.cuda.current_stream().wait_stream(own)
    assert right(torch, got, a, b)
    assert right(torch, given, a, b)


@pytest.mark.gpu
def test_torch_results_are_tensors_as_pytorchs(torch: Any) -> None:
    class Own(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    a, b, c = drawn(torch, 96, 200), drawn(torch, 200, 130), drawn(torch, 130, 96).t()
    for x in (a, torch.nn.Parameter(a, requires_grad=False), a.as_subclass(Own)):
        for got in (gen.matmul(x, b), gen.matmul(x, b, c, beta=1)):
            assert type(got) is type(torch.matmul(x, b))
        assert got.stride() == (1, 96)
    with torch.inference_mode():
        assert gen.matmul(a, b).is_inference()
    assert not gen.matmul(a, b).is_inference()
    del got
    used = torch.cuda.memory_allocated()
    got = gen.matmul(a, b)
    assert torch.cuda.memory_allocated() >= used + got.nbytes
    del got
    assert torch.cuda.memory_allocated() == used


@pytest.mark.gpu
@pytest.mark.parametrize("k", [64, 4099])  # without and with a workspace
def test_torch_graph_capture(k: int, torch: Any) -> None:
    a, b = drawn(torch, 256, k), drawn(torch, k, 256)
    out = torch.empty(256, 256, device="cuda", dtype=a.dtype)
    gen.matmul(a, b, out=out)  # compiled, loaded and prepared before
    gen.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gen.matmul(a, b, out=out)
        kept = gen.matmul(a, b)
    for _ in range(3):
        a.copy_(drawn(torch, 256, k))
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert right(torch, out, a, b)
        assert right(torch, kept, a, b)


@pytest.mark.gpu
def test_torch_threads(torch: Any) -> None:
    wrong: list[int] = []
    multiply = gen.Kernel("mma", split_k=2)

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(50):
                a, b = drawn(torch, 128, 515 + seed), drawn(torch, 515 + seed, 128)
                if not right(torch, multiply(a, b), a, b):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture
def torch_on_two(torch: Any) -> Any:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    return torch


# Of one launch, of several with a workspace, with tensor maps; what is left to `auto`.
KERNELS: dict[str, dict[str, Any]] = {
    "naive": {},
    "tiles": {},
    "rec_tiles": {"tile": 32, "coarsen": 8},
    "mma": {"split_k": 2},
    "mma_tma": {},
    "auto": {},
}


def on_both(torch: Any, variant: str) -> gen.Kernel:
    """The kernel, or the test is skipped where not both GPUs have it."""
    if variant == "mma_tma" and any(torch.cuda.get_device_capability(i) != (9, 0) for i in (0, 1)):
        pytest.skip("mma_tma needs sm_90")
    return gen.Kernel(variant, **KERNELS[variant])


@pytest.mark.gpu
@pytest.mark.parametrize("variant", KERNELS)
@pytest.mark.parametrize("k", [256, 131])  # 131: rows of A are no whole units of 16 bytes
def test_torch_two_gpus(variant: str, k: int, torch_on_two: Any) -> None:
    torch, multiply = torch_on_two, on_both(torch_on_two, variant)
    a, b = drawn(torch, 200, k), drawn(torch, k, 136)
    for device in (1, 0, 1, 0):
        x, y = a.to(f"cuda:{device}"), b.to(f"cuda:{device}")
        got = multiply(x, y)
        assert got.device == x.device
        assert right(torch, got, x, y)
        assert torch.cuda.current_device() == 0
    with pytest.raises(UsageError, match="A is on GPU 0 and B on GPU 1"):
        multiply(a, b.to("cuda:1"))


@pytest.mark.gpu
def test_torch_the_current_stream_of_the_second_gpu(torch_on_two: Any) -> None:
    torch = torch_on_two
    a = drawn(torch, 512, 512).to("cuda:1")
    gen.matmul(a, a)
    torch.cuda.synchronize(1)
    own = torch.cuda.Stream(1)
    with torch.cuda.stream(own):
        torch.cuda._sleep(50_000_000)
        late = (a * 0).copy_(a)
        with torch.cuda.device(0):  # which has another current stream
            got = gen.matmul(late, late)
    own.synchronize()
    assert right(torch, got, a, a)
    out = torch.empty_like(a)
    for handle in (0, 1, 2):  # the default stream, the legacy one, the thread's
        out.zero_()
        torch.cuda.synchronize(1)
        gen.matmul(a, a, out=out, stream=handle)
        torch.cuda.synchronize(1)
        assert right(torch, out, a, a)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", KERNELS)
def test_torch_a_stream_of_another_gpu_is_refused(variant: str, torch_on_two: Any) -> None:
    torch, multiply = torch_on_two, on_both(torch_on_two, variant)
    a, b = drawn(torch, 200, 131), drawn(torch, 131, 136)
    out = torch.full((200, 136), 99, device="cuda", dtype=a.dtype)
    other = torch.cuda.Stream(1)
    for result in (out, None):
        with pytest.raises(UsageError, match=r"stream is of another GPU .* on GPU 0"):
            multiply(a, b, out=result, stream=other)
    for device in (0, 1):
        torch.cuda.synchronize(device)
    assert (out == 99).all()
    assert torch.cuda.current_device() == 0
    for device in (0, 1):  # both GPUs are as before
        x, y = a.to(f"cuda:{device}"), b.to(f"cuda:{device}")
        assert right(torch, multiply(x, y), x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["naive", "mma", "mma_tma"])
def test_torch_graph_capture_on_the_second_gpu(variant: str, torch_on_two: Any) -> None:
    torch, multiply = torch_on_two, on_both(torch_on_two, variant)
    for device in (1, 0):
        with torch.cuda.device(device):
            a, b = drawn(torch, 200, 131), drawn(torch, 131, 136)
            out = torch.empty(200, 136, device="cuda", dtype=a.dtype)
            multiply(a, b, out=out)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # else one GPU's for all
                multiply(a, b, out=out)
        for _ in range(2):  # with GPU 0 as the current one
            a.copy_(drawn(torch, 200, 131))
            out.zero_()
            torch.cuda.synchronize(0)
            torch.cuda.synchronize(device)
            graph.replay()
            torch.cuda.synchronize(device)
            assert right(torch, out, a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", KERNELS)
def test_torch_a_thread_for_each_gpu(variant: str, torch_on_two: Any) -> None:
    torch, multiply = torch_on_two, on_both(torch_on_two, variant)  # one kernel for both
    done: list[bool] = []

    def work(device: int) -> None:
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            for i in range(30):
                a, b = drawn(torch, 128, 131 + i % 3), drawn(torch, 131 + i % 3, 128)
                done.append(right(torch, multiply(a, b), a, b))

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 120


@pytest.mark.gpu
def test_cupy_two_gpus(torch_on_two: Any) -> None:
    torch, cupy = torch_on_two, pytest.importorskip("cupy")
    for device in (1, 0):
        tensors = [drawn(torch, *s).to(f"cuda:{device}") for s in ((96, 200), (200, 130))]
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(device)
        with cupy.cuda.Device(device):
            a, b = map(cupy.from_dlpack, tensors)
            own = cupy.cuda.Stream(non_blocking=True)
            with own:
                inside = gen.matmul(a, b)
        with cupy.cuda.Device(1 - device), cupy.cuda.Stream(non_blocking=True):
            outside = gen.matmul(a, b)  # on the stream that is current on the arrays' GPU
            given = gen.matmul(a, b, stream=own)
        torch.cuda.synchronize(device)
        for got in (inside, outside, given):
            assert got.device.id == device
            assert right(torch, torch.from_dlpack(got), *tensors)


class Other:
    """A tensor behind DLPack, without PyTorch's methods."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        torch = sys.modules["torch"]
        return SimpleNamespace(from_dlpack=lambda x: Other(torch.from_dlpack(x)))


class OnlyInterface:
    """A tensor behind version 3 of __cuda_array_interface__, where PyTorch has version 2."""

    def __init__(self, tensor: Any, stream: int | None = None) -> None:
        more = {"version": 3, "stream": stream}
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **more}


@pytest.mark.gpu
def test_torch_as_any_other_array(torch: Any) -> None:
    a, b = drawn(torch, 96, 200), drawn(torch, 200, 130)
    assert right(torch, gen.matmul(Other(a), Other(b)).tensor, a, b)
    out = torch.empty(96, 130, device="cuda", dtype=a.dtype)
    torch.cuda.synchronize()
    gen.matmul(OnlyInterface(a), OnlyInterface(b.t().contiguous().t()), out=OnlyInterface(out))
    assert right(torch, out, a, b)


def is_waited_for(torch: Any, gpu: int) -> None:
    """What its own stream makes of an array comes first, though the first GPU is current."""
    a = drawn(torch, 512, 512).to(f"cuda:{gpu}")
    gen.matmul(a, a)
    torch.cuda.synchronize(gpu)
    own = torch.cuda.Stream(gpu)
    for wrap in (Other, lambda x: OnlyInterface(x, own.cuda_stream)):
        out = torch.zeros_like(a)
        with torch.cuda.stream(own):
            torch.cuda._sleep(50_000_000)
            late = (a * 0).copy_(a)
            with torch.cuda.device(0):
                gen.matmul(wrap(late), wrap(late), out=wrap(out))
        torch.cuda.synchronize(gpu)
        assert right(torch, out, a, a)
    got = gen.matmul(Other(a), Other(a)).tensor
    assert got.device == a.device
    assert right(torch, got, a, a)


@pytest.mark.gpu
def test_torch_as_any_other_array_is_waited_for(torch: Any) -> None:
    is_waited_for(torch, 0)


@pytest.mark.gpu
def test_torch_as_any_other_array_on_the_second_gpu(torch_on_two: Any) -> None:
    is_waited_for(torch_on_two, 1)


@pytest.mark.gpu
def test_numpy_goes_to_the_gpu_and_back() -> None:
    a, b = halves(70, 33), halves(33, 50)
    for device in ("auto", "gpu"):
        got = gen.matmul(a, b.T.copy().T, device=device)
        np.testing.assert_array_equal(got, exact(a, b).astype(np.float16))


@pytest.mark.gpu
def test_a_specification_for_another_gpu_is_compiled_for_this_one(torch: Any) -> None:
    a, b = drawn(torch, 70, 33), drawn(torch, 33, 50)
    assert right(torch, gen.Kernel(make_spec("tiles", dtype="f16", arch="sm_75"))(a, b), a, b)

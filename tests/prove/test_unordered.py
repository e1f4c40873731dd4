"""Floats that atomics add up."""

from gen.compile.nvrtc import compile_cuda
from gen.kernels.registry import VARIANTS, make_spec
from gen.prove.unordered import unordered
from gen.source.render import render
from tests.support.slow import slow

SOURCE = """
extern "C" __global__ void sums(float* total, int* count, double* other) {
  atomicAdd(count, 1);
  atomicAdd(total, 1.5f);
  other[0] = atomicAdd(other + 1, 0.5);
}
"""


def test_sums_of_floats_by_atomics() -> None:
    module = compile_cuda(SOURCE, name="sums.cu", arch="sm_80")
    found = list(unordered(module))
    assert [finding.file_line for finding in found] == [4, 5]
    assert found[0].source == "  atomicAdd(total, 1.5f);"
    assert "from run to run" in str(found[0])


@slow
def test_no_kernel_has_them() -> None:
    for name in VARIANTS:
        spec = make_spec(name)
        module = compile_cuda(render(spec).text, name="kernel.cu", arch=spec.arch)
        assert not list(unordered(module))

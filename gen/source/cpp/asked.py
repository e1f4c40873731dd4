"""What `gen emit --best` and CMake's `gen_add_bundle(... AUTO)` ask for -> `Best`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gen.device.gpus import GpuModel
from gen.dispatch.folders import Places, places
from gen.dispatch.products import Operands, products_of
from gen.source.cpp.best import Best, make_best, name_of, with_batch
from gen.spec.dtypes import DTypes, parse_dtype
from gen.spec.kernel import option_of
from gen.spec.problem import Layouts, parse_layout


@dataclass(frozen=True)
class Asked:
    """Shapes, types and GPUs that kernels are chosen for; all but the GPUs as the user wrote them.

    lie: where operands do. tuned: the table of measured times. tunables: what every kernel has.
    """

    shapes: Sequence[str]
    gpus: Sequence[GpuModel]
    dtype: str = "f32"
    layout: str = "rrr"
    batch: str | None = None
    lie: Operands = field(default_factory=Operands)
    tuned: str | None = None
    name: str | None = None
    embed: str | None = None
    tunables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command that emits the same files, but for `--header`."""
        words = [f"gen emit --best --dtype {self.dtype} --layout {self.layout}"]
        words += [f"--gpu {','.join(gpu.name for gpu in self.gpus)}"]
        words += [f"--shape {shape}" for shape in self.shapes]
        words += [f"--batch {self.batch}"] if self.batch else []
        for name, lines in (("lda", self.lie.lda), ("ldb", self.lie.ldb)):
            words += [f"--{name} {','.join(map(str, lines))}"] if lines else []
        words += ["--unaligned"] if self.lie.unaligned else []
        words += [f"--tuned {shlex.quote(self.tuned)}"] if self.tuned else []
        given = {key: value for key, value in self.tunables.items() if key != "batched"}
        words += [option_of(key, value) for key, value in given.items()]
        words += [f"--name {self.name}"] if self.name else []
        return " ".join([*words, *([f"--embed {self.embed}"] if self.embed else [])])

    @property
    def usual_name(self) -> str:
        """What the files are called by default, whichever kernels there are. Raises GenError."""
        return name_of(self._dtypes, self._layouts, bool(self.batch))

    def best(self) -> Best:
        """The kernels and what each costs. Raises GenError."""
        tunables = with_batch(self.tunables, self.batch)
        products = products_of(self.shapes, self._dtypes, self._layouts, self.batch, self.lie)
        return make_best(products, self.gpus, tunables, self.name, self.command, self._tables)

    def read(self) -> list[Path]:
        """The files with measured times that the choice rests on."""
        return [file for gpu in self.gpus for file in self._tables.files(gpu, self._dtypes)]

    @property
    def _dtypes(self) -> DTypes:
        return parse_dtype(self.dtype)

    @property
    def _layouts(self) -> Layouts:
        return parse_layout(self.layout)

    @property
    def _tables(self) -> Places:
        return places(self.tuned)

"""Shared libraries of this machine's C++ compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from gen.compile import host
from gen.errors import CompileError, MissingError
from tests.support.programs import need


def test_a_library_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("g++")
    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path))
    files = {"n.h": "#define N 7\n", "n.cpp": '#include "n.h"\nextern "C" int n() { return N; }\n'}
    path = host.library(files)
    assert path.parent == tmp_path / "c++"
    assert ctypes.CDLL(str(path)).n() == 7
    before = path.stat().st_mtime_ns
    assert host.library(files) == path
    assert path.stat().st_mtime_ns == before
    assert host.library(files, known_by="another version") != path
    assert [p.suffix for p in path.parent.iterdir()] == [".so", ".so"]  # nothing else
    with pytest.raises(CompileError, match=r"n\.h:1.* no good"):
        host.library({**files, "n.h": "#error no good\n"})


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "COMPILERS", ())
    with pytest.raises(MissingError, match=r"no C\+\+ compiler .* install one, such as g\+\+"):
        host.library({})

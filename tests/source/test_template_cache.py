"""Compiled templates on disk: kept, and not missed where there are none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jinja2 import Environment
from jinja2.bccache import Bucket, FileSystemBytecodeCache

from gen.kernels.registry import make_spec
from gen.source.render import render
from gen.source.template_cache import template_cache
from tests import ROOT

RENDER = """
from gen.kernels.registry import make_spec
from gen.source.render import render
print(render(make_spec("naive")).text, end="")
"""


def rendered(cache: Path) -> str:
    """By another process."""
    env = {**os.environ, "GEN_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", RENDER],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout


@pytest.fixture
def text() -> str:
    return render(make_spec("naive")).text


def test_templates_are_compiled_once(tmp_path: Path, text: str) -> None:
    assert rendered(tmp_path) == text
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "templates").iterdir()}
    assert len(kept) > 3
    assert rendered(tmp_path) == text
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_damaged_ones_are_compiled_again(tmp_path: Path, text: str) -> None:
    rendered(tmp_path)
    for i, path in enumerate(sorted((tmp_path / "templates").iterdir())):
        whole = path.read_bytes()
        path.write_bytes((whole[: len(whole) // 2], b"", b"no code", whole[:40])[i % 4])
    assert rendered(tmp_path) == text


def test_a_file_in_the_folders_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "templates").write_bytes(b"")
    assert rendered(tmp_path) == text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk")
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: FileSystemBytecodeCache, bucket: Bucket) -> None:
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"code")

    monkeypatch.setenv("GEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(FileSystemBytecodeCache, "dump_bytecode", full)
    cache = template_cache()
    assert cache is not None
    cache.dump_bytecode(cache.get_bucket(Environment(), "name", None, "source"))

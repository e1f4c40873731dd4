"""The kernel of docs/adding-a-kernel.md, added to a copy of the package as the page says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "adding-a-kernel.md"


def test_the_pages_kernel_works(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (template,) = (content for language, content, _ in blocks(text) if language == "jinja")
    function, row, *_ = (content for language, content, _ in blocks(text) if language == "py")
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("gen", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)

    place = re.search(r"`(templates/\S+)`", text)
    assert place
    (tmp_path / place[1]).write_text(template, encoding="utf-8")
    rows = tmp_path / "gen" / "kernels" / "cuda_cores.py"
    source = rows.read_text(encoding="utf-8")
    start, end = (
        source.index("\n_THREADS = "),
        source.index("_VARIANTS = (\n") + len("_VARIANTS = (\n"),
    )
    source = f"{source[:start]}\n{function}{source[start:end]}{row}{source[end:]}"
    rows.write_text(source, encoding="utf-8")

    verify = "verify --device cpu --variant strip --strip 3 --threads 32 --layout rcr --dtype f32"
    for command in (verify, "check --variant strip --threads 32 --shape 17x99x5"):
        done = subprocess.run(
            [sys.executable, "-m", "gen", *command.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

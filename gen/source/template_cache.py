"""The disk cache of what Jinja makes of templates, which takes it longer than rendering them."""

from __future__ import annotations

from contextlib import suppress

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket

from gen.compile.cache import cache_dir


class _Cache(FileSystemBytecodeCache):
    """Jinja's own, which notices other templates and versions; here, damage is no error either."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """See FileSystemBytecodeCache."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # of any kind has pickle where a file ends early
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """See FileSystemBytecodeCache."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


def template_cache() -> FileSystemBytecodeCache | None:
    """In the folder of compiled kernels; None where there can be none."""
    with suppress(OSError, RuntimeError):
        folder = cache_dir() / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        return _Cache(str(folder))
    return None

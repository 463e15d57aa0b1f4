"""A folder of a model that appears at its place whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vidvec_msg.runs import umask


@contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """An empty folder beside ``out`` that takes its place when the block ends well.

    What is written into it can be opened and checked there. If the block fails, nothing is left of it and
    ``out`` is as it was; an earlier ``out`` is replaced.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    earlier = temporary.with_suffix(".replaced")
    try:
        yield temporary
        for path in (temporary, *temporary.rglob("*")):  # mkdtemp and safetensors make private ones
            path.chmod((0o777 if path.is_dir() else 0o666) & ~umask())
        try:
            if out.exists():
                out.replace(earlier)
            temporary.replace(out)
        except BaseException:
            if earlier.exists() and not out.exists():
                earlier.replace(out)
            raise
        shutil.rmtree(earlier, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

"""Whether there is a file to read at all, said the same way for pictures, clips and sounds."""

from __future__ import annotations

from pathlib import Path


def file_problem(path: Path) -> str:
    """Why nothing can be read from here, in one line that names the path; empty if something may be."""
    if path.is_dir():
        return f"a folder, not a file: {path}"
    if not path.exists():
        broken = f" (a link to {path.readlink()}, which is not there)" if path.is_symlink() else ""
        return f"no such file: {path}{broken}"
    if not path.is_file():
        return f"neither a file nor a folder, but a pipe or device: {path}"
    try:
        str(path).encode()
    except UnicodeEncodeError:  # bytes of another encoding; no library below takes them
        return f"its name is not UTF-8, rename it: {str(path)!a}"
    return "" if path.stat().st_size else f"empty file: {path}"

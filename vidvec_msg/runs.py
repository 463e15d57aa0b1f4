"""Output folders: checked first, written under a temporary name, complete when their manifest is there."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest

log = logging.getLogger(__name__)

_CHUNK = 1 << 20  # bytes read at once while hashing
WRITER_LOCK = ".writer.lock"
WRITER = ".writer.json"  # who holds the lock; beside it, since taking a lock may empty the file

VERSIONED = (
    "vidvec-msg",
    "torch",
    "transformers",
    "peft",
    "sentence-transformers",
    "faiss-cpu",
    "faiss-gpu",
    "numpy",
)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends well.

    A reader sees the old file or the new one, never a part. The name is unique, so two writers cannot
    write into each other's file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        # mkstemp makes private files; an artefact is as readable as the user's umask says
        temporary.chmod(0o666 & ~umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def set_aside(path: Path, *, suffix: str | None = None) -> Path:
    """Gives a file that somebody else has written or changed a name that no file has.

    Args:
        path: the file, whose place is needed.
        suffix: of the new name; the file's own if not given.

    Returns:
        where it is now.
    """
    names = (path.with_name(f"{path.stem}_{number}{suffix or path.suffix}") for number in count(1))
    free = next(one for one in names if not one.exists())
    return path.rename(free)


def umask() -> int:
    """The permissions that the user's new files do not get; the system tells them only when they are set."""
    found = os.umask(0)
    os.umask(found)
    return found


def write_text(path: Path, text: str) -> None:
    """Writes a text (UTF-8) in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Writes JSON (UTF-8, keys in the given order, NaN refused) in one step."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a JSON object a line (UTF-8, keys in the given order) in one step."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_json(path: Path, *, what: str, made_by: str) -> dict[str, Any]:
    """Reads the manifest of an artefact.

    Args:
        path: the manifest; its presence means that the artefact is complete.
        what: the artefact's name, for the error.
        made_by: the command that makes it, for the error.

    Raises:
        RefusedRequest: it is missing or is not a JSON object.
    """
    if not path.is_file():
        state = "is incomplete or was interrupted" if path.parent.is_dir() else "does not exist"
        raise RefusedRequest(
            f"{what} {path.parent} {state}: {path.name} is missing. Run `{made_by}` (again: it resumes)."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RefusedRequest(
            f"{what} {path.parent}: {path.name} is not JSON ({error}). Make it again: `{made_by}`."
        ) from error
    if not isinstance(content, dict):
        found = type(content).__name__
        raise RefusedRequest(f"{what} {path.parent}: {path.name} holds a {found}, not an object.")
    return content


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def digest_of(content: Any) -> str:
    """SHA-256 of a JSON-like value, in hex; equal values give equal digests whatever their key order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def software_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a vector."""
    return dict(_software_versions())


@cache
def _software_versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in VERSIONED:
        try:
            found[package] = version(package)  # parses the package's whole metadata, 8 ms
        except PackageNotFoundError:
            continue
    return found


def require_new(out: Path, *, option: str, resumable: str | None = None) -> None:
    """Refuses an output folder that already holds something.

    Args:
        out: the folder.
        option: the option to change, for the message.
        resumable: name of a file whose presence means that this job began the folder and may go on.

    Raises:
        RefusedRequest: ``out`` is a file, cannot be created, or holds files of another job.
    """
    refuse_unwritable(out, option=option)
    if out.is_file():
        raise RefusedRequest(f"{option} {out} is a file; give a folder that is new or empty.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if resumable is not None and (out / resumable).exists():
        return
    raise RefusedRequest(f"{option} {out} already holds files; give another folder, or remove it first.")


def refuse_unwritable(folder: Path, *, option: str) -> None:
    """Refuses a folder that cannot be created, or into which nothing can be written; nothing is.

    Args:
        folder: which need not exist; one that is a file is left to those who say what else it may be.
        option: the option to change, for the message.

    Raises:
        RefusedRequest: the message names the place that is in the way.
    """
    # os.path: a place behind a folder that cannot be read is none, where Path.exists raises
    place = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    wrong = f"{place} is no folder" if not place.is_dir() else ""
    if not wrong and not os.access(place, os.W_OK | os.X_OK):
        wrong = f"{place} cannot be written by this user"
    if wrong and (place != folder or place.is_dir()):
        done = "written" if place == folder else "created"
        raise RefusedRequest(f"{option} {folder} cannot be {done}: {wrong}; give a folder elsewhere.")


@contextmanager
def only_writer(
    folder: Path, *, what: str, file: str = "", wait: float = 0, otherwise: str = "or give another folder"
) -> Iterator[None]:
    """Lets one process at a time write into a folder, or into a file of it, and says which one does.

    The lock is the operating system's: it goes with its process, however that ends, so a kill leaves none
    behind. Readers do not ask for it.

    Args:
        folder: the folder, which exists.
        file: name of the file that alone is meant; those who write other files beside it are let in.
        what: what is being written, for the message: "--out V".
        wait: seconds to wait for the one that writes.
        otherwise: what can be done instead of waiting, for the message.

    Raises:
        RefusedRequest: another process is writing and did not end in time; the message says who it is.
    """
    from filelock import FileLock, Timeout

    writer = folder / f"{f'.{file}' if file else ''}{WRITER}"
    lock = FileLock(folder / f"{f'.{file}' if file else ''}{WRITER_LOCK}")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if wait > 0:
            log.info("waiting up to %g s: another process is writing into %s%s", wait, what, _holder(writer))
        try:
            lock.acquire(timeout=max(wait, 0))
        except Timeout:
            raise RefusedRequest(
                f"another process is writing into {what}; wait until it ends, {otherwise}.{_holder(writer)}"
            ) from None
    try:
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(writer, holder)
        yield
    finally:
        writer.unlink(missing_ok=True)
        lock.release()


def _holder(writer: Path) -> str:
    """Who writes, as a sentence; nothing if it has not said so yet."""
    try:
        holder = json.loads(writer.read_text(encoding="utf-8"))
        return (
            f" It is `{holder['command']}` (process {holder['pid']} on {holder['host']}, "
            f"since {holder['since']})."
        )
    except (OSError, ValueError, KeyError):
        return ""

"""Names of models: what they stand for, and a digest of their weights."""

from __future__ import annotations

import hashlib
import os
import re
from importlib.resources import files
from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import file_digest

TINYWORLD = "tinyworld"

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_digests: dict[tuple[str, int, int], str] = {}


def resolve_model(name: str) -> str:
    """What ``from_pretrained`` is given for a name.

    Args:
        name: ``tinyworld`` (the model inside this package), a folder, or a hub name ``org/name``.

    Returns:
        a folder's path, or the hub name.

    Raises:
        RefusedRequest: none of the three.
    """
    if name == TINYWORLD:
        folder = Path(str(files("vidvec_msg"))) / "tinyworld" / "weights"
        if not (folder / "config.json").is_file():
            raise RefusedRequest(
                "the tinyworld weights are missing from this installation; install vidvec-msg from a wheel, "
                "or give a folder with a checkpoint or a hub name `org/name`"
            )
        return str(folder)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise RefusedRequest(
                f"{name} holds no config.json; a model folder is what save_pretrained writes"
            )
        return str(path)
    if path.is_absolute() or name.startswith((".", "~")) or not _HUB_NAME.fullmatch(name):
        raise RefusedRequest(
            f"no model {name!r}: accepted are `tinyworld`, an existing folder with a checkpoint, "
            "or a hub name of the form `org/name`"
        )
    return name


def local_folder(model: str, *, revision: str | None = None) -> Path | None:
    """The folder that holds a model's files: itself, or the hub cache's snapshot; None if it is not there."""
    if Path(model).is_dir():
        return Path(model)
    from transformers.utils import cached_file

    found = cached_file(
        model,
        "config.json",
        revision=revision,
        local_files_only=True,
        _raise_exceptions_for_missing_entries=False,
    )
    return Path(found).parent if found else None


def weights_digest(folder: Path) -> str:
    """SHA-256, in hex, over name and content of a folder's safetensors files.

    Files are hashed once per process (by path, size and time of change). In the hub's cache a file's own
    name is its SHA-256, which saves reading gigabytes.

    Raises:
        RefusedRequest: no safetensors file; pickled weights are never opened.
    """
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        pickled = sorted(path.name for path in folder.glob("*") if path.suffix in _PICKLED)
        seen = f"; {', '.join(pickled)} would have to be unpickled, which runs code" if pickled else ""
        raise RefusedRequest(
            f"{folder} holds no .safetensors file{seen}. Save the model with safetensors: "
            "`model.save_pretrained(folder)` in a current transformers does."
        )
    digest = hashlib.sha256()
    for path in found:
        digest.update(f"{path.name}\0{_content_digest(path)}\0".encode())
    return digest.hexdigest()


def combined_digest(*digests: str) -> str:
    """One digest for a base model and what was put onto it; a single one stays itself."""
    present = [digest for digest in digests if digest]
    return present[0] if len(present) == 1 else hashlib.sha256("\0".join(present).encode()).hexdigest()


def _content_digest(path: Path) -> str:
    blob = Path(os.path.realpath(path)).name
    if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", blob):
        return blob
    state = path.stat()
    key = (str(path.resolve()), state.st_size, state.st_mtime_ns)
    if key not in _digests:
        _digests[key] = file_digest(path)
    return _digests[key]

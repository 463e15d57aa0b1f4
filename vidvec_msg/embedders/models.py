"""Names of models: what they stand for, and a digest of their weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import digest_of, file_digest, read_json

TINYWORLD = "tinyworld"

# Beside the weights, what decides how a model reads: with another chat template or image size the same
# weights give other vectors. Only files that the Auto classes always fetch, so that a hub cache has them all.
_READING = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
_ADAPTER = "adapter_config.json"
_OF_PLACE = ("base_model_name_or_path", "revision", "peft_version", "inference_mode")

_PLACES = ("model", "embedder", "adapter", "checkpoint", "snapshots")  # names of folders that name no model
_COMMIT = re.compile(r"[0-9a-f]{40}")
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


def local_folder(model: str, *, revision: str | None = None, file: str = "config.json") -> Path | None:
    """The folder that holds a model's files: itself, or the hub cache's snapshot, which is found by a file
    at its top; None if it is not there."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    from transformers.utils import cached_file

    try:
        found = cached_file(
            model,
            file,
            revision=revision,
            local_files_only=True,
            _raise_exceptions_for_missing_entries=False,
        )
    except OSError:  # no name that the hub could have
        return None
    return Path(found).parent if found else None


def remote_code_refusal(
    model: str, error: Exception, *, revision: str | None = None, trusted: bool = False, form: str = "mllm"
) -> RefusedRequest | None:
    """The refusal of a model that brings its own Python files; None if it failed for another reason.

    Args:
        model: folder or hub name.
        error: of ``from_pretrained``.
        revision: commit of a hub model.
        trusted: whether the files were allowed to run.
        form: the short form of the spec that allows it.
    """
    if trusted or not ("trust_remote_code" in str(error) or _is_foreign(model, revision)):
        return None
    return RefusedRequest(
        f"model {model!r} needs Python files that come with its checkpoint (auto_map in its config.json). "
        "They are not run unless you say so: read them, then give trust_remote_code=true, in a spec "
        f"`{form}:{model}?trust_remote_code=true`. The files then run on this machine with your rights; pin "
        "the revision of a hub model, so that they stay those that you read."
    )


def refuse_missing_weights(report: Mapping[str, Any], model: str, hint: str = "") -> None:
    """Refuses a model of which parts would stay random.

    Args:
        report: what ``from_pretrained(output_loading_info=True)`` says.
        model: for the message.
        hint: what it may be instead, for the message.
    """
    if missing := sorted(report["missing_keys"]):
        raise RefusedRequest(
            f"model {model!r}: {len(missing)} parameters are missing from the checkpoint and would stay "
            f"random, for example {missing[0]}{hint}"
        )


def _is_foreign(model: str, revision: str | None) -> bool:
    """Whether a model is of a type that its own files define and transformers does not know. Looking for a
    processor, transformers gives up on such a model without saying why."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    folder = local_folder(model, revision=revision)
    if folder is None:
        return False
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "auto_map" in config and config.get("model_type") not in CONFIG_MAPPING_NAMES


def weights_digest(folder: Path) -> str:
    """SHA-256, in hex, over a folder's safetensors files and the files that decide how the model reads.

    Of an adapter's configuration everything counts (rank, alpha, targets) but the names of its base model.
    Files are hashed once per process (by path, size and time of change). In the hub's cache a weights file's
    own name is its SHA-256, which saves reading gigabytes.

    Raises:
        RefusedRequest: no safetensors file; pickled weights are never opened.
    """
    found = weights_files(folder)
    digest = hashlib.sha256()
    reading = [folder / name for name in _READING if (folder / name).is_file()]
    for path in [*found, *reading]:
        digest.update(f"{path.name}\0{_content_digest(path)}\0".encode())
    if (folder / _ADAPTER).is_file():
        config = read_json(folder / _ADAPTER, what="adapter", made_by="vidvec-msg fit")
        kept = {key: value for key, value in config.items() if key not in _OF_PLACE}
        digest.update(f"{_ADAPTER}\0{digest_of(kept)}\0".encode())
    return digest.hexdigest()


def weights_files(folder: Path) -> list[Path]:
    """A folder's safetensors files, by name.

    Raises:
        RefusedRequest: there is none; pickled weights are never opened.
    """
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        pickled = sorted(path.name for path in folder.glob("*") if path.suffix in _PICKLED)
        seen = f"; {', '.join(pickled)} would have to be unpickled, which runs code" if pickled else ""
        raise RefusedRequest(
            f"{folder} holds no .safetensors file{seen}. Save the model with safetensors: "
            "`model.save_pretrained(folder)` in a current transformers does."
        )
    return found


def digest_of_loaded(source: str, *, revision: str | None = None, adapter: str | Path | None = None) -> str:
    """:func:`weights_digest` of a model that was loaded, and of the adapter that was put onto it.

    Raises:
        RefusedRequest: its files are nowhere; without a digest, caches would take it for any other model.
    """
    folder = local_folder(source, revision=revision)
    if folder is None:
        raise RefusedRequest(f"model {source!r} was loaded, but its files cannot be found for their digest")
    return combined_digest(weights_digest(folder), weights_digest(Path(adapter)) if adapter else "")


def short_name(model: str, adapter: str | Path | None = None) -> str:
    """A model's name for tables, and its adapter's.

    A folder is called by its own name, or by that of a folder around it where its own says what lies in it
    and not which one it is: ``minilm/model`` is minilm, ``runs/seed0/embedder`` is seed0, a snapshot in the
    hub's cache is the model.
    """
    base = _called(model)
    return base if adapter is None else f"{base}+{_called(adapter)}"


def _called(model: str | Path) -> str:
    if not Path(model).is_dir():
        return Path(model).name
    folder = Path(os.path.abspath(model))  # noqa: PTH100  # links have the names that somebody gave them
    telling = [part for part in folder.parts[1:] if part not in _PLACES and not _COMMIT.fullmatch(part)]
    name = telling[-1] if telling else folder.name
    return name.rpartition("--")[2] if name.startswith("models--") else name  # of the hub's cache


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

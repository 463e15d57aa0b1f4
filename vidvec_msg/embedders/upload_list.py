"""What of a model folder is fit to be published: which files, how large, and whether its weights are good."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open

from vidvec_msg.embedders.adapter import ADAPTER_CONFIG, check_adapter
from vidvec_msg.embedders.contract import CARD_FILE, EXPORT_FILE
from vidvec_msg.embedders.models import TINYWORLD, weights_digest
from vidvec_msg.embedders.saved import holds_weights, read_card
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import read_json

KEPT = (".safetensors", ".json", ".jinja", ".md", ".txt", ".model", ".png", ".jpg", ".svg")
"""Endings of what belongs to a model and its page; licences have none."""

_LICENCES = ("LICENSE", "LICENCE", "NOTICE")
_MODULE = re.compile(r"\d+_\w+")  # a folder of one of sentence-transformers' modules: 1_Pooling
_STATE = re.compile(r"(optimizer|scheduler|rng_state|trainer_state|training_args|global_step)")
_INDEX = "model.safetensors.index.json"
_SUMMARY = "summary.json"
_OF_PAIRS = ("pairs.jsonl", "pairs.parquet", "card.md", "funnel.png", _SUMMARY)  # of data_synth.result


@dataclass(frozen=True, slots=True)
class UploadList:
    """What of a folder is uploaded.

    Args:
        folder: checked.
        files: relative to it, in order; with their sizes in bytes.
        left_out: what lies beside them, with the reason.
        notes: what a publisher should know.
        kind: of the repository.
        renamed: file → its name in the repository, where that is another.
    """

    folder: Path
    files: dict[str, int]
    left_out: dict[str, str]
    notes: tuple[str, ...] = ()
    kind: Literal["model", "dataset"] = "model"
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def published(self) -> dict[str, str]:
        """File → its name in the repository."""
        return {name: self.renamed.get(name, name) for name in self.files}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())


def upload_list(folder: Path) -> UploadList:
    """Lists and checks an embedder folder, with an adapter or whole weights, an exported folder, or pairs.

    Raises:
        RefusedRequest: it is none of them, it is incomplete, or its weights cannot be read or are not finite.
    """
    if (folder / _OF_PAIRS[0]).is_file() and not (folder / CARD_FILE).is_file():
        return _of_pairs(folder)
    _refuse_other_folders(folder)
    files: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(name.startswith(f"{parent}/") for parent in left_out):
            continue
        reason, part = _reason_against(path.relative_to(folder))
        if reason:
            left_out[part] = reason
        else:
            files[name] = path.stat().st_size
    _check_weights(folder, [folder / name for name in files if name.endswith(".safetensors")])
    return UploadList(folder, files, left_out, tuple(_notes(folder)))


def _of_pairs(folder: Path) -> UploadList:
    """Of a folder that synth or filter-pairs wrote: what others train on, and its card as the page."""
    if not (folder / _SUMMARY).is_file():
        raise RefusedRequest(
            f"pairs {folder}: {_SUMMARY} is missing, so the run did not end; run the same command again"
        )
    files, left_out = {}, {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and (name in _OF_PAIRS or name.startswith("splits/")):
            files[name] = path.stat().st_size
        elif path.parent == folder:
            left_out[name] = "not of the pairs themselves"
    note = "the licence of the personas goes on with the pairs: look at the header of card.md"
    return UploadList(folder, files, left_out, (note,), kind="dataset", renamed={"card.md": "README.md"})


def size_told(size: int) -> str:
    """Bytes for people: "793.3 kB"."""
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def _refuse_other_folders(folder: Path) -> None:
    if (folder / CARD_FILE).is_file() or (folder / EXPORT_FILE).is_file():
        return
    accepted = (
        f"push takes an embedder folder (with {CARD_FILE}), what export writes (with {EXPORT_FILE}), and "
        f"pairs of synth (with {_OF_PAIRS[0]})"
    )
    if (folder / "embedder" / CARD_FILE).is_file():
        accepted = f"it is the folder of a fit, and its embedder is {folder / 'embedder'}"
    if not folder.is_dir():
        raise RefusedRequest(f"folder {folder} does not exist; {accepted}")
    raise RefusedRequest(f"folder {folder} holds no {CARD_FILE}: {accepted}")


def _reason_against(path: Path) -> tuple[str, str]:
    """Why a file is not uploaded, and the file or folder that this holds for; no reason for the rest."""
    for depth, part in enumerate(path.parts[:-1], start=1):
        if depth > 1 or not _MODULE.fullmatch(part):
            return "no folder of a model", "/".join(path.parts[:depth])
    name = path.name
    if name.startswith("."):
        return "hidden", path.as_posix()
    if _STATE.match(name):
        return "the state of a training", path.as_posix()
    if path.suffix not in KEPT and name not in _LICENCES:
        return "no file of a model", path.as_posix()
    return "", ""


def _check_weights(folder: Path, weights: list[Path]) -> None:
    if (folder / CARD_FILE).is_file():
        card = read_card(folder)
        if holds_weights(folder) and card.weights and weights_digest(folder) != card.weights:
            raise RefusedRequest(
                f"embedder {folder}: its weights are not those that {CARD_FILE} was written for; make the "
                "folder again"
            )
    if (folder / ADAPTER_CONFIG).is_file():
        check_adapter(folder)
        return
    if not weights:
        raise RefusedRequest(f"folder {folder} holds no .safetensors file; there is nothing to publish")
    if (folder / _INDEX).is_file():
        named = read_json(folder / _INDEX, what="model", made_by="vidvec-msg merge").get("weight_map", {})
        if missing := sorted({*named.values()} - {path.name for path in weights}):
            raise RefusedRequest(f"folder {folder}: {_INDEX} names {missing[0]}, which is not there")
    for path in weights:
        _refuse_bad_tensors(path)


def _refuse_bad_tensors(path: Path) -> None:
    """Reads one tensor after the other: memory holds the largest."""
    try:
        with safe_open(path, framework="pt") as opened:
            names = list(opened.keys())
            for name in names:
                tensor = opened.get_tensor(name)
                if tensor.numel() == 0 or not bool(torch.isfinite(tensor).all()):
                    what = "empty" if tensor.numel() == 0 else "not finite"
                    raise RefusedRequest(f"{path}: {name} is {what}; such weights are not published")
    except (SafetensorError, OSError) as error:
        raise RefusedRequest(f"{path} ({path.stat().st_size} bytes) cannot be read: {error}") from error
    if not names:
        raise RefusedRequest(f"{path} holds no tensors")


def _notes(folder: Path) -> Iterator[str]:
    if not (folder / CARD_FILE).is_file():
        return
    base = read_card(folder).base_model
    if base != TINYWORLD and Path(base).is_absolute():
        ending = (
            "it is only told there"
            if holds_weights(folder)
            else "whoever downloads the adapter has to say where the base model lies (?model=FOLDER). "
            "`vidvec-msg merge` makes a folder that needs none"
        )
        yield f"{CARD_FILE} names the base model as a folder of this machine, {base}: {ending}"
    if not (folder / "README.md").is_file():
        yield "there is no README.md: the repository will have no model card"

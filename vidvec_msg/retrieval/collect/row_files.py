"""The collection's files."""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.media.facts import MediaFacts, Medium
from vidvec_msg.retrieval.collect.candidates import Candidate, LeftOut, relative
from vidvec_msg.retrieval.collect.earlier import Earlier
from vidvec_msg.retrieval.collect.joining import Found
from vidvec_msg.retrieval.collect.probing import Probe
from vidvec_msg.retrieval.collect.shared_files import JUDGED, QUERIES, write_lines
from vidvec_msg.retrieval.collect.sidecars import SidecarError, Words, read_words
from vidvec_msg.retrieval.collect.windows import windows
from vidvec_msg.runs import replacing

LEFT_OUT = "left_out.jsonl"


def unpack(rows: Iterable[Candidate], out: Path) -> None:
    """Media that sources hold inside themselves become files."""
    for row in rows:
        for medium, (suffix, content) in row.unpack.items():
            path = _place(out, row, medium, suffix or _DEFAULT_SUFFIX[medium])
            if not (path.is_file() and path.read_bytes() == content):
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as temporary:
                    temporary.write_bytes(content)
            row.media[medium] = path.resolve()


_DEFAULT_SUFFIX: dict[Medium, str] = {"video": ".mp4", "image": ".png", "audio": ".wav"}


def _place(out: Path, row: Candidate, medium: Medium, suffix: str) -> Path:
    """Where a copied file of the row lies: another place for every id, and never one outside the folder."""
    parts = [part.replace("%", "%25") for part in row.id.split("/")]
    parts = [part if part not in ("", ".", "..") else part.replace(".", "%2E") or "%" for part in parts]
    several = len(row.media.keys() | row.unpack.keys()) > 1
    name = f"{parts[-1]}.{medium}{suffix}" if several else f"{parts[-1]}{suffix}"
    return out / "media" / Path(*parts[:-1]) / name


def usable(found: Found, probes: dict[Path, Probe]) -> list[Candidate]:
    """The rows whose media can be used; the others are left out with their reason."""
    rows = []
    for row in found.rows:
        faults = (_fault(path, medium, probes) for medium, path in row.media.items())
        reason = next((why for why in faults if why), None)
        if reason is None:
            rows.append(row)
        else:
            found.left_out.append(LeftOut(row.where, reason, broken=True))
    return rows


def _fault(path: Path, medium: Medium, probes: dict[Path, Probe]) -> str | None:
    if not path.is_file():
        return f"no such file: {path}"
    if path.stat().st_size == 0:
        return f"empty file: {path}"
    if path not in probes:
        return None
    facts = probes[path].facts
    if medium == "video" and facts is not None and facts.medium == "audio":
        return f"it holds sound and no pictures, whatever its suffix {path.suffix!r} says"
    return probes[path].reason or None


def write_rows(
    rows: Sequence[Candidate],
    found: Found,
    probes: dict[Path, Probe],
    out: Path,
    *,
    window: float,
    overlap: float,
    media: str,
    earlier: Earlier,
    has_changed: Callable[[Path], bool],
) -> tuple[int, int]:
    """Writes both sides, the judgements and what was left out; what others added to the folder stays.

    Returns:
        rows of the corpus, and how many of them have a transcript.
    """
    root = out.resolve()
    parts: dict[str, list[str]] = {}  # id of a clip → ids of its segments
    written = spoken = 0
    lines = []
    for row in rows:
        if media == "copy":
            _copy(row, out)
        content: dict[str, str] = {name: relative(path, root) for name, path in row.media.items()}
        said = _words(row, found.left_out)
        for start, end in _segments(row, probes, window, overlap):
            identity = row.id if start is None else f"{row.id}#t={start:g},{end:g}"
            parts.setdefault(row.id, []).append(identity)
            fields = dict(row.fields)
            if start is not None:
                fields |= {"start": start, "end": end}
            if said is not None and "transcript" not in fields:
                text = said.text if start is None else said.between(start, end or 0.0)
                fields |= {"transcript": text} if text else {}
            groups = {"groups": row.groups} if row.groups else {}
            told: dict[str, Any] = {"_id": identity, **content, **fields, **groups}
            told |= earlier.recognised(told, row.media.values(), has_changed)
            lines.append(json.dumps(told, ensure_ascii=False))
            written += 1
            spoken += "transcript" in told
    files = {f"qrels/{split}.tsv": _judged(judged, parts) for split, judged in found.qrels.items()}
    if found.queries:
        asked = [
            {name: relative(value, root) if isinstance(value, Path) else value for name, value in row.items()}
            for row in found.queries
        ]
        files[QUERIES] = [json.dumps(row, ensure_ascii=False) for row in asked]
    earlier.files.write(files)
    reasons = [
        json.dumps({"where": one.where, "reason": one.reason, "broken": one.broken}, ensure_ascii=False)
        for one in found.left_out
    ]
    write_lines(out / LEFT_OUT, reasons)
    write_lines(out / "corpus.jsonl", lines)
    return written, spoken


def _segments(
    row: Candidate, probes: dict[Path, Probe], window: float, overlap: float
) -> list[tuple[float | None, float | None]]:
    """Start and end of each row that a clip becomes; (None, None) leaves it as it is."""
    whole: list[tuple[float | None, float | None]] = [(None, None)]
    path = row.media.get("video") or row.media.get("audio")
    if not window or path is None or "start" in row.fields or "end" in row.fields:
        return whole
    facts: MediaFacts | None = probes[path].facts if path in probes else None
    return [*windows(facts.duration, window, overlap)] or whole if facts is not None else whole


def _words(row: Candidate, left_out: list[LeftOut]) -> Words | None:
    if row.sidecar is None:
        return None
    try:
        return read_words(row.sidecar)
    except SidecarError as error:
        left_out.append(LeftOut(str(row.sidecar), str(error).removeprefix(f"{row.sidecar}: ")))
        return None


def _copy(row: Candidate, out: Path) -> None:
    for medium, path in row.media.items():
        place = _place(out, row, medium, path.suffix).resolve()
        if place == path:
            continue
        if not (place.is_file() and filecmp.cmp(path, place, shallow=False)):
            with replacing(place) as temporary:
                shutil.copyfile(path, temporary)
        row.media[medium] = place


def _judged(judged: dict[str, dict[str, int]], parts: dict[str, list[str]]) -> list[str]:
    """Judgements of a clip are those of each of its segments; those of rows that were left out stay, as
    positives that nobody finds."""
    lines = [JUDGED]
    for query, grades in judged.items():
        for document, grade in grades.items():
            lines += [f"{query}\t{part}\t{grade}" for part in parts.get(document, [document])]
    return lines

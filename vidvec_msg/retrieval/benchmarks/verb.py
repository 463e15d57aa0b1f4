"""A benchmark as its owner has it on disk → a collection; the verb ``import-benchmark``."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.media.facts import medium_of_name
from vidvec_msg.retrieval.benchmarks.clip_files import ClipFiles
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material
from vidvec_msg.retrieval.benchmarks.registry import known_benchmark
from vidvec_msg.retrieval.collect.candidates import clean_id, relative
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.runs import require_new, software_versions, write_json, write_json_lines

log = logging.getLogger(__name__)

MANIFEST = "benchmark.json"  # written last
QUESTIONS = "questions.jsonl"
LEFT_OUT = "left_out.jsonl"
_SHOWN = 5  # missing clips that a message spells out


def import_benchmark(
    name: str,
    source: Path,
    out: Path,
    *,
    clips: Path | None = None,
    part: str | None = None,
    missing: Literal["leave_out", "keep"] = "leave_out",
    max_failures: float = 0,
    json: bool = False,
) -> Path:
    """Makes a collection of a published benchmark whose annotations and clips you have; fetches nothing.

    Compares what it finds with the published sizes and says where they differ. Files stay where they are.

    Args:
        name: vidmsg, drivelhub, vhub, avmeme, msrvtt, msvd, vatex, didemo or activitynet.
        source: folder with its annotations, in the layout that docs/import-benchmark.md describes.
        out: the collection to make.
        clips: folder of its clips, looked through with all folders below; the source by default.
        part: of a benchmark with several, for example "1k-A" or "official" of msrvtt.
        missing: what happens to clips without a file. "leave_out" lists them and leaves them and their
            judgements out; "keep" writes rows for them all the same, for vectors computed elsewhere or clips
            that come later.
        max_failures: clips that may be missing: a count, or a share of all if below 1.
        json: print benchmark.json instead of the table.

    Returns:
        the collection.

    Raises:
        RefusedRequest: no such benchmark or part, or annotations in another layout; nothing was written.
        TooManyFailures: the collection was written, with more clips missing than allowed.
    """
    benchmark = known_benchmark(name)
    chosen = _checked(benchmark, source, out, clips, part, missing, max_failures)
    material = benchmark.read(source, chosen)
    if not material.qrels or not material.clips:
        raise RefusedRequest(f"{benchmark.title}: nothing was found in {source}")
    files = ClipFiles((clips or source).resolve())
    found, lost = _find(material, files, out.resolve())
    if not found and missing == "leave_out":
        raise RefusedRequest(
            f"none of the {len(material.clips):,} clips has a file below {files.folder} ({len(files):,} "
            f"media files there), for example {lost[0].reason}. Give their folder with --clips, or "
            "--missing keep for vectors computed elsewhere."
        )
    kept = set(material.clips) if missing == "keep" else set(found)
    account = _account(benchmark, chosen, material, lost, kept)
    _write(out, material, found, kept, lost, account)
    sys.stdout.write(_text(account, as_json=json))
    log.info("made %s: vidvec-msg evaluate --collection %s --embedder SPEC --out E", out, out)
    _refuse_too_many(lost, allowed_failures(max_failures, len(material.clips)), out)
    return out


def _checked(
    benchmark: Benchmark,
    source: Path,
    out: Path,
    clips: Path | None,
    part: str | None,
    missing: str,
    max_failures: float,
) -> str:
    """The part that is read; refuses what is wrong with the request, all of it at once."""
    problems = Problems(f"cannot import {benchmark.title}")
    for option, folder in (("--source", source), ("--clips", clips)):
        if folder is not None and not folder.is_dir():
            problems.add(f"{option} {folder} is no folder. {benchmark.title} is read from {benchmark.layout}")
    try:
        require_new(out, option="--out")
    except RefusedRequest as refusal:
        problems.add(str(refusal))
    chosen = ""
    try:
        chosen = benchmark.part(part)
    except RefusedRequest as refusal:
        problems.add(str(refusal))
    if missing not in ("leave_out", "keep"):
        problems.add(f"missing is {missing!r}; it is leave_out or keep")
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()
    return chosen


def _find(material: Material, files: ClipFiles, out: Path) -> tuple[dict[str, str], list[Failure]]:
    """Clip id → its file as a row of ``out`` names it; and the clips without one."""
    found: dict[str, str] = {}
    lost = []
    for clip, names in material.names.items():
        path, reason = files.find(names)
        if path is None:
            lost.append(Failure(clip, reason))
        else:
            found[clip] = relative(path, out)
    return found, lost


# --- the folder -------------------------------------------------------------------------------------------


def _write(
    out: Path,
    material: Material,
    found: Mapping[str, str],
    kept: set[str],
    lost: Sequence[Failure],
    account: Mapping[str, Any],
) -> None:
    write_collection(
        out,
        corpus=(
            _row(clip, fields, found, material) for clip, fields in material.clips.items() if clip in kept
        ),
        queries=({"_id": clean_id(text), **row} for text, row in material.texts.items()),
        qrels={split: _reachable(judged, kept) for split, judged in material.qrels.items()},
    )
    if material.questions:
        asked = [{**one, "_id": clean_id(one["_id"]), "clip": clean_id(one["clip"])}
                 for one in material.questions if one["clip"] in kept]  # fmt: skip
        write_json_lines(out / QUESTIONS, asked)
    write_json_lines(out / LEFT_OUT, [asdict(one) for one in lost])
    write_json(out / MANIFEST, account)


def _row(
    clip: str, fields: Mapping[str, Any], found: Mapping[str, str], material: Material
) -> dict[str, Any]:
    """A row of the corpus; a clip that has no file yet is named as it would be called."""
    path = found.get(clip, material.names[clip][0])
    if clip not in found and medium_of_name(Path(path)) is None:
        path += ".mp4"
    medium = "audio" if medium_of_name(Path(path)) == "audio" else "video"
    return {"_id": clean_id(clip), medium: path, **fields}


def _reachable(judged: Qrels, kept: set[str]) -> Qrels:
    """Judgements of the clips that are there; texts that lose all of theirs are left without."""
    rows = {
        clean_id(text): {clean_id(clip): grade for clip, grade in clips.items() if clip in kept}
        for text, clips in judged.items()
    }
    return {text: clips for text, clips in rows.items() if clips}


# --- what is told -----------------------------------------------------------------------------------------


def _account(
    benchmark: Benchmark, part: str, material: Material, lost: Sequence[Failure], kept: set[str]
) -> dict[str, Any]:
    """The content of ``benchmark.json``."""
    published = benchmark.parts[part]
    sizes = {
        what: {"found": count, "published": published.get(what)} for what, count in material.counted.items()
    }
    alone = sum(not clips.keys() & kept for clips in material.qrels["test"].values())
    remarks = list(material.remarks)
    if alone:
        remarks.append(f"{alone:,} texts have no clip left; evaluate lists them as skipped")
    return {
        "name": benchmark.name,
        "title": benchmark.title,
        "part": part,
        "source": benchmark.source,
        "licence": benchmark.licence,
        "looked_up": benchmark.looked_up,
        "layout_published": benchmark.layout_published,
        "sizes": sizes,
        "as_published": material.complete and not lost and all(
            one["published"] in (None, one["found"]) for one in sizes.values()
        ),
        "clips_missing": len(lost),
        "missing": [one.item for one in lost],
        "remarks": remarks,
        "versions": software_versions(),
    }  # fmt: skip


def _text(account: Mapping[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(account, ensure_ascii=False, indent=2) + "\n"
    lines = [
        f"{account['title']}, part {account['part']}",
        f"  from     {account['source']}",
        f"  licence  {account['licence']}",
    ]
    if not account["looked_up"]:
        lines.append("           both, and the published sizes, as we know them: check the owner's page")
    if not account["layout_published"]:
        lines.append(
            "  layout   of this project: the benchmark's authors have published none that we know of"
        )
    width = max(8, *map(len, account["sizes"]))
    for what, size in account["sizes"].items():
        told = f"  {what:<{width}} {size['found']:,}"
        if size["published"] is not None:
            agrees = size["published"] == size["found"]
            told += " (as published)" if agrees else f"  ← DIFFERS: published are {size['published']:,}"
        lines.append(told)
    if account["missing"]:
        shown = ", ".join(account["missing"][:_SHOWN])
        more = f", … {len(account['missing']) - _SHOWN} more" if len(account["missing"]) > _SHOWN else ""
        lines.append(f"  missing  {account['clips_missing']:,} clips have no file: {shown}{more}")
    lines += [f"  note     {remark}" for remark in account["remarks"]]
    if not account["as_published"]:
        lines.append("  Numbers on this collection are not comparable with published ones.")
    return "\n".join(lines) + "\n"


def _refuse_too_many(lost: Sequence[Failure], allowed: int, out: Path) -> None:
    if len(lost) <= allowed:
        return
    raise TooManyFailures(
        f"{len(lost)} clips have no file and {allowed} may (max_failures); the collection holds the others, "
        f"the reasons are in {out / LEFT_OUT}: {first_failures(lost, len(lost))}"
    )

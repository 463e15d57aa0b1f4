"""Where the files of clips are: those that a candidate names, a table that the user wrote, or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vidvec_msg.data_synth.annotation.candidates import Candidate
from vidvec_msg.data_synth.annotation.ratings import table_of
from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.retrieval.benchmarks.clip_files import ClipFiles, file_names

_COLUMNS = ("clip_id", "file")


def clip_files(
    candidates: Sequence[Candidate], source: Path | None, problems: Problems
) -> tuple[dict[str, Path], list[Failure]]:
    """Clip id → its file; and the clips without one, with the reason. Candidates that are texts need none.

    Args:
        candidates: whose clips are wanted.
        source: a table with the columns clip_id and file (paths relative to the table), or a folder in which
            files are called like the clip's id, or like the last part of its address. None: only what
            candidates name themselves is known.
        problems: tables with other columns, and files of it that are not there, are noted here.
    """
    candidates = [one for one in candidates if one.video]
    own = {one.clip_id: one.file for one in candidates if one.file is not None}
    if source is None:
        lost = {one.clip_id: f"only an address: {one.video}" for one in candidates}
        return own, [Failure(name, reason) for name, reason in lost.items() if name not in own]
    if source.is_dir():
        found, lost_clips = _in_folder(candidates, ClipFiles(source.resolve()), own)
    else:
        found, lost_clips = _in_table(candidates, source, own, problems)
    return found, lost_clips


def _in_folder(
    candidates: Sequence[Candidate], files: ClipFiles, own: dict[str, Path]
) -> tuple[dict[str, Path], list[Failure]]:
    found, lost = dict(own), []
    for one in {one.clip_id: one for one in candidates if one.clip_id not in own}.values():
        path, reason = files.find((one.clip_id, *file_names(one.video)))
        if path is None:
            lost.append(Failure(one.clip_id, reason))
        else:
            found[one.clip_id] = path
    return found, lost


def _in_table(
    candidates: Sequence[Candidate], source: Path, own: dict[str, Path], problems: Problems
) -> tuple[dict[str, Path], list[Failure]]:
    try:
        header, rows = table_of(source)
    except RefusedRequest as refusal:
        problems.add(f"files: {refusal}")
        return own, []
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        problems.add(
            f"files {source} has no column {' and no '.join(missing)}; it has: {', '.join(header)}. It maps "
            "clip_id to file, or is a folder of clips"
        )
        return own, []
    clip, file = (header.index(name) for name in _COLUMNS)
    named: dict[str, Path] = {}
    for number, row in rows:
        if len(row) <= max(clip, file):
            problems.add(f"{source.name}, row {number}: fewer cells than the header has")
        elif row[file].strip():
            path = (source.parent / row[file].strip()).resolve()
            if not path.is_file():
                problems.add(f"{source.name}, row {number}: {path} is no file")
            if named.setdefault(row[clip].strip(), path) != path:
                problems.add(
                    f"{source.name}, row {number}: clip {row[clip].strip()!r} has another file above"
                )
    found = {**own, **named}
    wanted = dict.fromkeys(one.clip_id for one in candidates)
    return found, [Failure(name, f"not in {source.name}") for name in wanted if name not in found]

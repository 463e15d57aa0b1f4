"""Other people's files become a collection; the verb ``collect``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.retrieval.collect import tables
from vidvec_msg.retrieval.collect.account import account
from vidvec_msg.retrieval.collect.earlier import earlier_run
from vidvec_msg.retrieval.collect.joining import read_sources, refuse_collisions
from vidvec_msg.retrieval.collect.probing import Probe, ProbeFile, probe_all
from vidvec_msg.retrieval.collect.row_files import LEFT_OUT, unpack, usable, write_rows
from vidvec_msg.retrieval.collect.windows import windows
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.runs import replacing, require_new, software_versions, write_json

log = logging.getLogger(__name__)

MANIFEST = "collect.json"  # written last
PROBES = "probes.jsonl"
_LOCK = ".collect.lock"


def collect(
    source: list[Path],
    out: Path,
    *,
    patterns: list[str] | None = None,
    columns: dict[str, str] | None = None,
    groups: list[str] | None = None,
    queries: str | None = None,
    media_root: Path | None = None,
    split: str | None = None,
    prefix: bool = False,
    window: float = 0.0,
    overlap: float = 0.0,
    media: Literal["reference", "copy"] = "reference",
    probe: Literal["first", "all", "none"] = "first",
    workers: int = 2,
    decode_timeout: float = 60.0,
    update: bool = False,
    max_failures: float = 0,
) -> Path:
    """Makes a collection of a folder of files, a table, a BEIR folder, or a data set on disk.

    Sources are read where they are and not changed. Every media file is looked into once; what cannot be
    used is left out with its reason. An interrupted run goes on where it stopped.

    Args:
        source: folders of media and texts, .jsonl, .csv, .tsv or .parquet files, collections (BEIR folders),
            or folders of datasets.save_to_disk; several are joined.
        out: the collection to make.
        patterns: globs on paths below a folder of files, for example "*.mp4" "2024/*"; all files by default.
        columns: name of a table's column per role (id, text, title, video, image, audio, start, end,
            transcript, ocr) where it differs.
        groups: columns of a table that become groups; of a folder, names for the folders on the way to a
            file, the uppermost first.
        queries: column of a table with texts that ask for the row (a caption, or a list of them); they become
            queries.jsonl and the split "test".
        media_root: folder that a table's relative media paths start from; the table's own by default.
        split: of a Hugging Face data set that has several.
        prefix: put a source's name before its ids, so that those of several sources cannot collide.
        window: cut longer clips into segments of so many seconds; 0 leaves them whole.
        overlap: seconds that neighbouring segments share.
        media: "reference" leaves files where they are; "copy" makes the collection hold them.
        probe: frames of each file that are tried: the "first", or "all" (as slow as decoding); "none" looks
            into no file.
        workers: files that are looked into at once.
        decode_timeout: seconds that one file may take.
        update: go through the sources again for a collection made before; files that have not changed are not
            looked into again.
        max_failures: files or rows that may be broken: a count, or a share of all if below 1 (0.01 is 1%).

    Returns:
        the collection.

    Raises:
        RefusedRequest: something is wrong with the request, ids collide, or nothing was found.
        TooManyFailures: the collection was written, with more left out as broken than allowed.
    """
    _refuse_bad_request(source, window, overlap, probe, workers, max_failures)
    if not (update and (out / MANIFEST).is_file()):
        complete = (out / MANIFEST).is_file()
        require_new(out, option="--out", resumable=None if complete else _LOCK)
    found = read_sources(
        source,
        patterns=patterns or [],
        columns=columns or {},
        groups=groups or [],
        queries=queries,
        media_root=media_root.resolve() if media_root else None,
        split=split,
        prefix=prefix,
    )
    refuse_collisions(found, several=len(source) > 1)
    with _alone(out), earlier_run(out, out / MANIFEST) as earlier:  # incomplete until all is written
        unpack(found.rows, out)
        probes: dict[Path, Probe] = {}
        kept = ProbeFile(out / PROBES, out.resolve(), "first" if probe == "none" else probe)
        if probe != "none":
            files = [path for row in found.rows for path in row.media.values() if path.is_file()]
            probes = probe_all(files, kept, workers=workers, timeout=decode_timeout, name=out.name)
        rows = usable(found, probes)
        written, spoken = write_rows(
            rows, found, probes, out, window=window, overlap=overlap, media=media, earlier=earlier,
            has_changed=kept.has_changed,
        )  # fmt: skip
        if probe != "none":  # after the rows, which go by what was known before
            with replacing(out / PROBES) as temporary:
                lines = [kept.line(path, one) for path, one in probes.items()]
                temporary.write_text("".join(lines), encoding="utf-8")
        facts = [one.facts for one in probes.values() if one.facts is not None]
        told = account(rows, written, spoken, found.left_out, facts, len(found.queries))
        told += earlier.account()
        for line in told:
            log.info("%s", line)
        broken = [Failure(one.where, one.reason) for one in found.left_out if one.broken]
        write_json(
            out / MANIFEST,
            {
                "sources": [str(path.resolve()) for path in source],
                "options": {
                    "patterns": patterns, "columns": columns, "groups": groups, "queries": queries,
                    "split": split, "prefix": prefix, "window": window, "overlap": overlap, "media": media,
                    "probe": probe,
                },
                "rows": written,
                "queries": len(found.queries),
                "splits": sorted(found.qrels),
                "left_out": len(found.left_out),
                "broken": len(broken),
                "account": told,
                "versions": software_versions(),
            },
        )  # fmt: skip
    _refuse_too_many(broken, allowed_failures(max_failures, len(found.rows) + len(broken)), out)
    return out


# --- refusals -------------------------------------------------------------------------------------------


def _refuse_bad_request(
    sources: Sequence[Path],
    window: float,
    overlap: float,
    probe: str,
    workers: int,
    max_failures: float,
) -> None:
    problems = Problems("cannot collect")
    if not sources:
        problems.add("no --source was given")
    known = f"a folder, or a file with one of the suffixes {', '.join(tables.SUFFIXES)}"
    for path in sources:
        if not path.exists():
            problems.add(f"source {path} does not exist; give {known}")
        elif path.is_file() and path.suffix.lower() not in tables.SUFFIXES:
            problems.add(f"source {path} has the suffix {path.suffix or '(none)'!r}; give {known}")
    if window < 0:
        problems.add(f"window is {window}; it must be above 0 s, or 0 to leave clips whole")
    elif window:
        try:
            windows(0.0, window, overlap)
        except ValueError as error:
            problems.add(str(error))
        if probe == "none":
            problems.add("--window needs durations, which --probe none does not look for")
    elif overlap:
        problems.add(f"overlap is {overlap}, and there is no --window that it could be of")
    if workers < 1:
        problems.add(f"workers is {workers}; it must be at least 1")
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()


def _refuse_too_many(broken: Sequence[Failure], allowed: int, out: Path) -> None:
    if len(broken) <= allowed:
        return
    raise TooManyFailures(
        f"{len(broken)} files or rows are broken and {allowed} may be (max_failures); the collection holds "
        f"the others, the reasons are in {out / LEFT_OUT}: {first_failures(broken, len(broken))}"
    )


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """One process at a time; the lock's file also says that an unfinished folder is ours to go on with."""
    out.mkdir(parents=True, exist_ok=True)
    lock = out / _LOCK
    try:
        with FileLock(lock, timeout=0):
            yield
            with suppress(OSError):  # Windows keeps a file that is open; whoever comes next may have it
                lock.unlink()
    except Timeout:
        raise RefusedRequest(f"another process is writing {out}; wait until it ends.") from None

"""A folder of media and texts as a source."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from vidvec_msg.media.facts import medium_of_name
from vidvec_msg.media.files import file_problem
from vidvec_msg.retrieval.collect import sidecars
from vidvec_msg.retrieval.collect.candidates import Candidate, LeftOut, clean_id

TEXTS = (".txt", ".md")
"""Files that are a row of their own where no medium of the same name lies beside them."""

_NOISE = {"thumbs.db", "desktop.ini"}  # what systems leave in folders of media


def read_folder(
    root: Path, *, patterns: Sequence[str] = (), groups: Sequence[str] = ()
) -> Iterator[Candidate | LeftOut]:
    """Every medium and text below a folder, in the order of their paths.

    Ids are paths below the folder without the suffix (with it, where two files differ in nothing else).
    Words beside a clip are files of its name: ``talk.srt``, ``talk.en.vtt``. Hidden files and folders are not
    looked at, links to folders not followed.

    Args:
        root: the folder, absolute.
        patterns: globs on the path below the folder (``*.mp4``, ``2024/*``); all files by default.
        groups: names for the folders on the way: the first for the uppermost.
    """
    files = [path for path in _walk(root) if _wanted(path.relative_to(root).as_posix(), patterns)]
    media = {path: medium for path in files if (medium := medium_of_name(path)) is not None}
    beside_media = {path.with_suffix("") for path in media}
    beside = _sidecars(_walk(root), beside_media)
    taken = {path for found in beside.values() for path in found}
    texts = {path for path in files if path.suffix.lower() in TEXTS} - taken - media.keys()
    texts -= {path for path in texts if path.with_suffix("") in beside_media}
    stems = Counter(path.with_suffix("") for path in (*media, *texts))
    for path in files:
        below = path.relative_to(root)
        if path in taken:
            continue
        where = os.fsencode(path).decode(errors="backslashreplace")
        if where != str(path):  # no JSON line holds it, and no library that reads media takes it
            reason = "its name, or a folder's on the way, is not UTF-8; rename it"
            yield LeftOut(where, reason, broken=path in media or path in texts)
            continue
        alone = stems[path.with_suffix("")] == 1
        name = clean_id((below.with_suffix("") if alone else below).as_posix())
        if path in media:
            words = beside.get(path.with_suffix(""), [])
            yield Candidate(
                id=name,
                where=str(path),
                media={media[path]: path},
                groups=dict(zip(groups, below.parts[:-1], strict=False)),
                sidecar=words[0] if words else None,
            )
            for other in words[1:]:
                yield LeftOut(str(other), f"{words[0].name} is taken for the words of {path.name}")
        elif path in texts:
            yield _text(path, name, dict(zip(groups, below.parts[:-1], strict=False)))
        elif path.suffix.lower() in TEXTS:
            known = ", ".join(sidecars.SUFFIXES)
            yield LeftOut(str(path), f"it lies beside a medium of its name, whose words may be in {known}")
        else:
            yield LeftOut(str(path), f"no medium or text has the suffix {path.suffix or '(none)'!r}")


def _text(path: Path, name: str, groups: dict[str, str]) -> Candidate | LeftOut:
    if problem := file_problem(path):  # a pipe would be read for ever
        return LeftOut(str(path), problem, broken=True)
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        return LeftOut(str(path), f"it cannot be read ({error.strerror}): {path}", broken=True)
    except UnicodeDecodeError as error:
        return LeftOut(str(path), f"it is not UTF-8 ({error.reason} at byte {error.start})", broken=True)
    if not text:
        return LeftOut(str(path), "it is empty", broken=True)
    return Candidate(
        id=name,
        where=str(path),
        fields={"text": text},
        groups=groups,
    )


def _walk(root: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith(".") and name != "__MACOSX")
        for name in sorted(names):
            if not name.startswith(".") and name.lower() not in _NOISE:
                yield Path(folder) / name


def _wanted(below: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch(below, pattern) for pattern in patterns)


def _sidecars(files: Iterator[Path], stems: set[Path]) -> dict[Path, list[Path]]:
    """Words per medium without suffix, the preferred first: those with times, then the shortest name."""
    found: dict[Path, list[Path]] = {}
    for path in files:
        if path.suffix.lower() not in sidecars.SUFFIXES:
            continue
        stem = path.with_suffix("")
        if stem not in stems:
            stem = stem.with_suffix("")  # talk.en.srt
        if stem in stems:
            found.setdefault(stem, []).append(path)
    order = {suffix: number for number, suffix in enumerate(sidecars.SUFFIXES)}
    for paths in found.values():
        paths.sort(key=lambda path: (order[path.suffix.lower()], len(path.name), path.name))
    return found

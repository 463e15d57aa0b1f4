"""Personas from a file of any size: read line by line, sampled by hash, near-duplicates removed.

The sample is the lines with the smallest hashes of seed and text. It does not depend on the order of the
file, and the first n of a larger sample are the sample of n, so that a run can be asked for more later.
Memory holds the sample, not the file.
"""

from __future__ import annotations

import csv
import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from vidvec_msg.data_synth.near_sets import near_sets
from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.near_texts import words_of

SUFFIXES = (".jsonl", ".csv", ".tsv", ".txt")
FIELDS = ("persona", "description", "input persona", "text")
"""Names under which a persona is looked for, in this order; PersonaHub's files have the first."""

NEAR = 0.9  # shared words over all words, as PersonaHub's authors removed them (1-grams, 0.9)
LONGEST_LINE = 32 << 20  # bytes; a longer line is no row of text but a broken file
LONGEST = 1_000  # characters of a persona; beyond, it is a document
_SPARE = 1.2  # of the sample, for what the near-duplicates take away
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Sample:
    """Personas, and what was left out on the way to them.

    Args:
        personas: in the order of their hashes.
        read: rows of the file, blank ones not counted.
        left_out: reason → rows.
        field: where they were found; empty for text files.
    """

    personas: list[str]
    read: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    field: str = ""


def sample_personas(
    path: Path, count: int, *, seed: int = 0, field: str | None = None, near: float = NEAR
) -> Sample:
    """Draws personas from a file.

    Args:
        path: .jsonl, .csv, .tsv (with a header) or .txt (one a line).
        count: how many; fewer are returned if the file holds fewer.
        seed: of the draw.
        field: name of the column; None looks for :data:`FIELDS`, then for the only column of texts.
        near: likeness (shared words over all words) from which one of two personas is left out, the one that
            the draw put later; above 1 keeps all but exact repetitions.

    Raises:
        RefusedRequest: no such file, another suffix, no such column, or not one persona in it.
    """
    size = max(round(count * _SPARE), count + 50)
    while True:
        sample = _smallest(path, size, seed, field)
        exhausted = len(sample.personas) < size
        kept = _without_near(sample.personas, near)
        if len(kept) >= count or exhausted:
            break
        size *= 2  # more near-duplicates than expected; another pass over the file
    near_count = len(sample.personas) - len(kept)
    if near_count:
        sample.left_out["near-duplicates of another one in the sample"] = near_count
    if not kept:
        told = "".join(f"; {number:,} rows {reason}" for reason, number in sample.left_out.items())
        raise RefusedRequest(f"--personas {path}: not one persona in {sample.read:,} rows{told}")
    sample.personas = kept[:count]
    return sample


def _smallest(path: Path, size: int, seed: int, field: str | None) -> Sample:
    """The ``size`` personas of the smallest hashes, each text once."""
    sample = Sample([])
    left_out = Counter[str]()
    heap: list[tuple[int, str]] = []  # negated hashes: the largest of the sample on top
    inside: set[int] = set()
    for text in _texts(path, field, sample, left_out):
        persona = " ".join(text.split())
        if not persona:
            left_out["empty"] += 1
            continue
        if len(persona) > LONGEST:
            left_out[f"longer than {LONGEST:,} characters"] += 1
            continue
        mark = _hash(seed, persona)
        if mark in inside:
            left_out["repeated exactly (of those seen in the sample)"] += 1
        elif len(heap) < size:
            heapq.heappush(heap, (-mark, persona))
            inside.add(mark)
        elif mark < -heap[0][0]:
            inside.remove(-heapq.heapreplace(heap, (-mark, persona))[0])
            inside.add(mark)
    sample.personas = [persona for _, persona in sorted(heap, reverse=True)]
    sample.left_out = dict(left_out)
    return sample


def _hash(seed: int, text: str) -> int:
    return int.from_bytes(blake2b(f"{seed}\0{text}".encode(), digest_size=12).digest(), "big")


def _without_near(personas: list[str], near: float) -> list[str]:
    """Those that are not near an earlier one that stays."""
    if near > 1:
        return personas
    gone: set[int] = set()
    for pair in near_sets([frozenset(words_of(persona)) for persona in personas], least=near):
        if pair.one not in gone:
            gone.add(pair.other)
    return [persona for number, persona in enumerate(personas) if number not in gone]


# --- files --------------------------------------------------------------------------------------------------


def _texts(path: Path, field: str | None, sample: Sample, left_out: Counter[str]) -> Iterator[str]:
    """The personas of a file as they stand there."""
    if not path.is_file():
        siblings = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        raise RefusedRequest(f"--personas {path}: no such file{did_you_mean(path.name, siblings)}")
    if path.suffix not in SUFFIXES:
        raise RefusedRequest(
            f"--personas {path}: unknown format {path.suffix or '(no suffix)'!r}; accepted: "
            f"{', '.join(SUFFIXES)}"
        )
    if path.suffix in (".csv", ".tsv"):
        yield from _of_table(path, field, sample, left_out)
        return
    with path.open("rb") as stream:
        for line in _lines(stream, left_out):
            if not line.strip():
                continue
            sample.read += 1
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                left_out["not UTF-8"] += 1
                continue
            if path.suffix == ".txt":
                yield text
                continue
            yield from _of_json(path, text, field, sample, left_out)


def _of_json(
    path: Path, text: str, field: str | None, sample: Sample, left_out: Counter[str]
) -> Iterator[str]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        left_out["not JSON"] += 1
        return
    if isinstance(row, str):
        yield row
        return
    if not isinstance(row, dict):
        left_out["no object with a persona"] += 1
        return
    if not sample.field:
        sample.field = _field_of(path, row, field)
    value = row.get(sample.field)
    if isinstance(value, str):
        yield value
    else:
        left_out[f"without a text in {sample.field!r}"] += 1


def _of_table(path: Path, field: str | None, sample: Sample, left_out: Counter[str]) -> Iterator[str]:
    csv.field_size_limit(LONGEST_LINE)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ",")
            for row in rows:
                sample.read += 1
                if not sample.field:
                    sample.field = _field_of(path, {name: cell for name, cell in row.items() if name}, field)
                value = row.get(sample.field)
                if isinstance(value, str):
                    yield value
                else:
                    left_out[f"without a text in {sample.field!r}"] += 1
    except UnicodeDecodeError as error:
        raise RefusedRequest(f"--personas {path} is not UTF-8 ({error.reason}); convert it first") from error
    except csv.Error as error:
        raise RefusedRequest(f"--personas {path}, after row {sample.read}: {error}") from error


def _lines(stream: IO[bytes], left_out: Counter[str]) -> Iterator[bytes]:
    """Lines of a file; one that is longer than any row is skipped without being held."""
    first = True
    while line := stream.readline(LONGEST_LINE):
        if first:
            line, first = line.removeprefix(_BOM), False
        if len(line) >= LONGEST_LINE and not line.endswith(b"\n"):
            left_out[f"longer than {LONGEST_LINE >> 20} MB"] += 1
            while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            continue
        yield line


def _field_of(path: Path, row: Mapping[str, Any], field: str | None) -> str:
    if field is not None:
        if field in row:
            return field
        raise RefusedRequest(
            f"--personas {path} has no field {field!r}{did_you_mean(field, row)}; it has: {', '.join(row)}"
        )
    for name in FIELDS:
        if isinstance(row.get(name), str):
            return name
    texts = [name for name, value in row.items() if isinstance(value, str) and len(words_of(value)) > 1]
    if len(texts) == 1:
        return texts[0]
    raise RefusedRequest(
        f"--personas {path}: which of its fields ({', '.join(row)}) is the persona? None is called "
        f"{', '.join(FIELDS[:-1])} or {FIELDS[-1]}; name it with --persona_field"
    )

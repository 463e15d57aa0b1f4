"""What an update leaves: queries and judgements written by hand, and words that ``annotate`` recognised."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.formats.write_back import side_rows
from vidvec_msg.retrieval.collect.shared_files import QUERIES, SharedFiles

RECOGNISED = ("transcript", "ocr")
"""Fields that ``annotate`` writes, each with what it knows about them in a field ``…_info``."""
_BEFORE = "collect.before.json"  # the manifest of the run that is being updated


@dataclass(slots=True)
class Earlier:
    """An earlier run in the same folder.

    Args:
        files: queries and judgements, and which of their lines it wrote.
        rows: id → row of corpus.jsonl, of those with recognised words.
        kept: rows whose recognised words were taken over.
        dropped: rows whose words are of a file that has changed.
    """

    files: SharedFiles
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kept: int = 0
    dropped: int = 0

    def recognised(
        self, row: Mapping[str, Any], media: Iterable[Path], has_changed: Callable[[Path], bool]
    ) -> dict[str, Any]:
        """Recognised words that a row had and that its sources do not give.

        Args:
            row: as it will be written.
            media: the row's files.
            has_changed: whether a file is another one than before.
        """
        before = self.rows.get(row["_id"])
        if before is None or any(before.get(name) != row.get(name) for name in ("start", "end")):
            return {}
        words = {
            name: before[name]
            for kind in RECOGNISED
            if kind not in row and f"{kind}_info" in before
            for name in (kind, f"{kind}_info")
            if name in before  # a person may have taken the words out, and left where they came from
        }
        if words and any(map(has_changed, media)):
            self.dropped += 1
            return {}
        self.kept += bool(words)
        return words

    def account(self) -> list[str]:
        """What is told of it."""
        lines = []
        if self.files.kept:
            lines.append(f"kept {self.files.kept:,} queries and judgements that were added by hand")
        if waiting := len(self.files.waiting):
            lines.append(
                f"{waiting:,} judgements added by hand wait: the sources do not have their queries now, or "
                "say otherwise"
            )
        if self.kept:
            lines.append(f"kept what annotate recognised for {self.kept:,} rows")
        if self.dropped:
            lines.append(
                f"{self.dropped:,} rows have other files than when they were annotated: annotate again"
            )
        return lines


@contextmanager
def earlier_run(out: Path, manifest: Path) -> Iterator[Earlier]:
    """The run that this one updates; its manifest is put aside until the new one is there.

    A run that is killed on the way leaves it aside, so that the next one still knows which files are whose.
    """
    before = out / _BEFORE
    if manifest.is_file():
        manifest.replace(before)
    written = json.loads(before.read_text(encoding="utf-8")) if before.is_file() else {}
    queries = bool(written.get("queries"))
    everything = [path.stem for path in (out / "qrels").glob("*.tsv")] if queries else []
    rows = {}
    if (out / "corpus.jsonl").is_file():
        noted = tuple(f"{kind}_info" for kind in RECOGNISED)
        rows = {
            str(row["_id"]): row for row in side_rows(out, "corpus") if any(name in row for name in noted)
        }
    splits = written.get("splits", everything)
    files = SharedFiles(out, [*[QUERIES] * queries, *(f"qrels/{split}.tsv" for split in splits)])
    yield Earlier(files, rows)
    files.finish()
    before.unlink(missing_ok=True)

"""What the doctor found, as a table for people and as one object for programs."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.retrieval.doctor.finding import VERDICTS, Finding, Verdict, worst

WIDTH = 100  # columns, in a file or a pipe, and on any wider terminal
_COLUMNS = (7, 25)  # of verdict and check; what was found takes the rest

FORMAT = 1
_STYLES: Mapping[Verdict, str] = {
    "ok": "green", "warn": "yellow", "fail": "bold red", "n/a": "dim", "skipped": "cyan",
}  # fmt: skip


def drawn(groups: Mapping[str, Sequence[Finding]], closing: str) -> str:
    """All findings, a heading per group; what to do stands below what was found.

    Args:
        groups: heading → findings.
        closing: the last line.
    """
    terminal = sys.stdout.isatty()
    console = Console() if terminal else Console(file=io.StringIO())
    console.width = min(console.width, WIDTH) if terminal else WIDTH
    with console.capture() as capture:
        for heading, findings in groups.items():
            console.print(Text(heading, style="bold"))
            console.print(_table(findings))
            console.print()
        console.print(Text(closing))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _table(findings: Sequence[Finding]) -> Table:
    table = Table.grid("verdict", "check", "found", padding=(0, 2, 0, 0))
    for column, width in zip(table.columns, _COLUMNS, strict=False):
        column.width = width
    for finding in findings:
        style = _STYLES[finding.verdict]
        quiet = "dim" if finding.verdict == "n/a" else ""
        table.add_row(Text(finding.verdict, style=style), Text(finding.name, style=quiet), _told(finding))
    return table


def _told(finding: Finding) -> Text:
    """What was found, which ones, and what to do."""
    text = Text(finding.found, style="dim" if finding.verdict == "n/a" else "")
    if finding.verdict in ("warn", "fail"):
        # an example that the finding already quotes is not said twice
        for example in finding.examples:
            if example not in finding.found:
                text.append(f"\n· {example}", style="dim")
    if finding.advice:
        text.append(f"\n→ {finding.advice}", style="italic")
    return text


def summary(findings: Sequence[Finding]) -> str:
    """How many of each verdict: "21 ok, 1 warn"."""
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in VERDICTS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def as_object(
    *,
    spec: str,
    card: EmbedderCard,
    checks: Sequence[Finding],
    collection: str | None,
    audited: Sequence[Finding],
    seconds: float,
) -> dict[str, Any]:
    """The content of ``--json``; docs/doctor.md describes it.

    Args:
        spec: what the embedder was loaded from.
        card: of the embedder.
        checks: of the embedder.
        collection: its folder; None without one.
        audited: findings about the collection.
        seconds: that everything took.
    """
    return {
        "format": FORMAT,
        "verdict": worst([*checks, *audited]),
        "seconds": round(seconds, 1),
        "embedder": {
            "spec": spec,
            "name": card.name,
            "fingerprint": card.fingerprint,
            "dim": card.dim,
            "modalities": list(card.modalities),
            "dtype": card.dtype,
            "verdict": worst(checks),
            "checks": [finding.to_dict() for finding in checks],
        },
        "collection": None
        if collection is None
        else {
            "folder": collection,
            "verdict": worst(audited),
            "checks": [finding.to_dict() for finding in audited],
        },
    }

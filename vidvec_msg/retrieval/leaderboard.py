"""The verb ``leaderboard``: many evaluation folders in one table a benchmark."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS, names_apart
from vidvec_msg.retrieval.evaluate import read_report
from vidvec_msg.retrieval.evaluation.directions import NO_POSITIVE, Score
from vidvec_msg.retrieval.metrics import lower_is_better
from vidvec_msg.retrieval.reports.latex import BEST, SECOND, latex_table, marks
from vidvec_msg.retrieval.reports.tables import interval_text, shown
from vidvec_msg.runs import digest_of, require_new, write_json, write_text

log = logging.getLogger(__name__)

FORMAT = 1
_SKIPPED = (
    "Rows with skipped queries are means over the others: the embedder had no vector for these. They are no "
    "match for the other rows, and are not marked as best or second; compare is over queries that all have."
)
_OTHERS = (
    "The same ids showed other clips or texts in these rows than in the others: {}. They are other views of "
    "the same items (frames, captions), or the collection has changed between the evaluations."
)
_COLUMNS = ("recall@1", "recall@10", "hit_rate@1", "mrr", "ndcg@10", "map")  # where no metrics are named


def leaderboard(
    folder: Path,
    *,
    metrics: list[str] | None = None,
    sort: str = "map",
    out: Path | None = None,
    json: bool = False,
) -> Path | None:
    """Gathers all evaluations below a folder into tables, one a benchmark and direction, the best first.

    Evaluations belong to one benchmark if documents, queries, judgements, split, pool and depth agree.
    With --out, writes leaderboard.html, leaderboard.json, leaderboard.md and leaderboard.tex.

    Args:
        folder: where to look, at any depth, for folders that evaluate made.
        metrics: the columns; by default recall@1, recall@10, hit_rate@1, mrr, ndcg@10 and map.
        sort: the metric by which rows are ordered, a direction at a time.
        out: the folder to make; without it the tables are only printed.
        json: print leaderboard.json instead of the tables.

    Returns:
        the folder, if there is one.

    Raises:
        RefusedRequest: no evaluation below the folder, or none that has the metric to sort by.
    """
    if out is not None:
        require_new(out, option="out", resumable="leaderboard.json")
    content = gather(folder, metrics=metrics, sort=sort)
    if out is not None:
        _write(out, content)
        log.info("leaderboard in %s: open %s", out, out / "leaderboard.html")
    text = dumps(content, ensure_ascii=False, indent=2) + "\n" if json else markdown_leaderboard(content)
    if not json and sys.stdout.isatty():
        text = _terminal(content)
    sys.stdout.write(text)
    return out


@dataclass(frozen=True)
class Found:
    """An evaluation below the folder."""

    folder: Path
    report: dict[str, Any]

    @property
    def benchmark(self) -> tuple[str, ...]:
        """What must agree for two rows to stand in one table."""
        data = self.report.get("data") or {"collection": self.report["collection"]}
        settings = (self.report[key] for key in ("split", "pool", "depth", "exclude_self"))
        return (*(f"{key}={value}" for key, value in sorted(data.items())), *map(str, settings))


def gather(folder: Path, *, metrics: Sequence[str] | None = None, sort: str = "map") -> dict[str, Any]:
    """What :func:`leaderboard` does, for programs: the content of ``leaderboard.json``.

    Raises:
        RefusedRequest: as there.
    """
    found, unread = _find(folder)
    if not found:
        raise RefusedRequest(
            f"no evaluation below {folder}: looked for report.json of `vidvec-msg evaluate` at any depth"
            + (f"; could not be read: {'; '.join(unread)}" if unread else "")
        )
    known = list(dict.fromkeys(metric for one in found for metric in one.report["metrics"]))
    for metric in (*(metrics or ()), sort):
        if metric not in known:
            raise RefusedRequest(
                f"no evaluation below {folder} has {metric!r}{did_you_mean(metric, known)}; they have "
                f"{', '.join(known)}"
            )
    chosen = list(metrics) if metrics else [metric for metric in _COLUMNS if metric in known] or known
    if sort not in chosen:
        chosen.append(sort)
    benchmarks: dict[tuple[str, ...], list[Found]] = {}
    for one in found:
        benchmarks.setdefault(one.benchmark, []).append(one)
    return {
        "format": FORMAT,
        "folder": str(folder),
        "metrics": chosen,
        "sort": sort,
        "benchmarks": [_benchmark(group, chosen, sort) for group in benchmarks.values()],
        "unread": unread,
    }


def markdown_leaderboard(content: Mapping[str, Any]) -> str:
    """``leaderboard.md``."""
    lines = []
    around = {BEST: "**", SECOND: "", "": ""}
    metrics = content["metrics"]
    for benchmark in content["benchmarks"]:
        lines += [f"# {_title(benchmark)}", ""]
        for way in WAYS:
            part = benchmark[way]
            lines += [
                f"## {part['label']}",
                "",
                f"{part['queries']:,} queries, {part['candidates']:,} candidates.",
                "",
            ]
            lines += [f"| embedder | {' | '.join(metrics)} |", f"| --- {'| ---: ' * len(metrics)}|"]
            for name, cells in _rows(part, metrics):
                texts = [
                    f"{around[mark]}{'<u>' if mark == SECOND else ''}{text}{'</u>' if mark == SECOND else ''}"
                    f"{around[mark]}" + (f" ({ends})" if ends else "")
                    for text, ends, mark in cells
                ]
                lines.append(f"| {name.replace('|', '&#124;')} | {' | '.join(texts)} |")
            lines += ["", *(f"{legend}\n" for legend in _legends(part))]
    lines += [f"Not read: {text}" for text in content["unread"]]
    return "\n".join(lines) + "\n"


def _find(folder: Path) -> tuple[list[Found], list[str]]:
    """The evaluations below a folder, and what looked like one and could not be read."""
    if not folder.is_dir():
        raise RefusedRequest(f"folder {folder} does not exist; give one that holds evaluations")
    found, unread = [], []
    for path in sorted(folder.rglob("report.json")):
        if not (path.parent / "runs").is_dir():
            continue  # a report of another kind
        try:
            found.append(Found(path.parent, read_report(path.parent)))
        except RefusedRequest as error:
            unread.append(str(error))
    return found, unread


def _benchmark(group: Sequence[Found], metrics: Sequence[str], sort: str) -> dict[str, Any]:
    first = group[0].report
    names = names_apart([one.folder for one in group], [one.report for one in group])
    return {
        "collection": first["collection"],
        "split": first["split"],
        "pool": first["pool"],
        "depth": first["depth"],
        **{way: _direction(group, names, way, metrics, sort) for way in WAYS},
    }


def _direction(
    group: Sequence[Found], names: Sequence[str], way: str, metrics: Sequence[str], sort: str
) -> dict[str, Any]:
    first = group[0].report[way]
    rows = [
        {
            "name": name,
            "folder": str(one.folder),
            "embedder": one.report["embedder"],
            "fingerprint": one.report["model"]["fingerprint"],
            "contents": one.report.get("contents"),
            "skipped": sum(query["reason"] != NO_POSITIVE for query in one.report[way]["skipped"]),
            "metrics": {m: one.report[way]["metrics"][m] for m in metrics if m in one.report[way]["metrics"]},
        }
        for name, one in zip(names, group, strict=True)
    ]
    sign = 1 if lower_is_better(sort) else -1

    def place(row: dict[str, Any]) -> tuple[bool, float, str]:
        value = row["metrics"].get(sort, {}).get("value")
        return (value is None, 0.0 if value is None else sign * value, row["name"])

    chance = {m: one["chance"] for row in rows for m, one in row["metrics"].items()}
    return {
        "label": first["label"],
        "queries": max(one.report[way]["queries"] for one in group),
        "candidates": first["candidates"],
        "chance": {metric: chance.get(metric) for metric in metrics},
        "rows": sorted(rows, key=place),
    }


def _rows(part: Mapping[str, Any], metrics: Sequence[str]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Name and (value, interval, mark) of each row; chance last. A row with skipped queries, whose means are
    over fewer of them, says how many, and neither its values nor their marks count among the best."""
    table = [
        (_called(row), {metric: Score(**score) for metric, score in row["metrics"].items()})
        for row in part["rows"]
    ]
    whole = [not row["skipped"] for row in part["rows"]]
    found = {
        m: marks(
            m,
            [scores[m].value if m in scores and all_of else None
             for (_, scores), all_of in zip(table, whole, strict=True)],
        )
        for m in metrics
    }  # fmt: skip
    rows = [
        (
            name,
            [
                (shown(m, s.value), interval_text(m, s), found[m][place])
                for m in metrics
                for s in [scores.get(m, Score(None))]
            ],
        )
        for place, (name, scores) in enumerate(table)
    ]
    return [*rows, ("chance", [(shown(m, part["chance"][m]), "", "") for m in metrics])]


def _called(row: Mapping[str, Any]) -> str:
    """A row's name, with the number of queries that its means leave out."""
    return f"{row['name']} ({row['skipped']:,} skipped)" if row["skipped"] else str(row["name"])


def _legends(part: Mapping[str, Any]) -> list[str]:
    """What to know of rows with skipped queries, and of rows in which the same ids showed other things."""
    legends = [_SKIPPED] if any(row["skipped"] for row in part["rows"]) else []
    known = [row for row in part["rows"] if row["contents"]]
    usual = Counter(digest_of(row["contents"]) for row in known).most_common(1)
    others = [row["name"] for row in known if digest_of(row["contents"]) != usual[0][0]]
    return [*legends, _OTHERS.format(", ".join(others))] if others else legends


def _title(benchmark: Mapping[str, Any]) -> str:
    name = str(benchmark["collection"]).rstrip("/").rpartition("/")[2]
    return f"{name}, split {benchmark['split']}, pool {benchmark['pool']}"


def _write(out: Path, content: Mapping[str, Any]) -> None:
    for file, text in (
        ("leaderboard.md", markdown_leaderboard(content)),
        ("leaderboard.tex", _latex(content)),
        ("leaderboard.html", _html(content)),
    ):
        write_text(out / file, text)
    write_json(out / "leaderboard.json", content)  # last: its presence means that the folder is complete


def _latex(content: Mapping[str, Any]) -> str:
    tables = []
    for benchmark in content["benchmarks"]:
        for way in WAYS:
            part = benchmark[way]
            rows = {
                _called(row): {metric: score["value"] for metric, score in row["metrics"].items()}
                for row in part["rows"]
            }
            caption = f"{_title(benchmark)}: {part['label']}, {part['queries']:,} queries. In percent."
            rows["chance"] = part["chance"]
            unmarked = ["chance", *(_called(row) for row in part["rows"] if row["skipped"])]
            tables.append(latex_table(caption, rows, content["metrics"], unmarked=unmarked))
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def _html(content: Mapping[str, Any]) -> str:
    from vidvec_msg.retrieval.reports.page_parts import Row, Section, comparison_table, heading, joined, page

    sections = []
    for benchmark in content["benchmarks"]:
        body = []
        for way in WAYS:
            part = benchmark[way]
            rows = [
                Row(
                    _called(row),
                    {metric: Score(**score) for metric, score in row["metrics"].items()},
                    note=f"{row['embedder']} · {row['fingerprint']}",
                    style="partial" if row["skipped"] else "",
                )
                for row in part["rows"]
            ]
            chance = {metric: Score(value) for metric, value in part["chance"].items()}
            rows.append(Row("chance", chance, style="chance"))
            told = f"{part['queries']:,} queries · {part['candidates']:,} candidates"
            body += [
                heading(part["label"], told, _legends(part)),
                comparison_table(rows, content["metrics"], marked=True),
            ]
        sections.append(
            Section(_title(benchmark), joined(*body), f"Ordered by {content['sort']}; in percent.")
        )
    return page(
        "Leaderboard", sections, eyebrow="Retrieval, both ways", facts=[("folder", content["folder"])]
    )


def _terminal(content: Mapping[str, Any]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(force_terminal=True)
    styles = {BEST: "bold", SECOND: "underline", "": "not bold"}
    with console.capture() as capture:
        for benchmark in content["benchmarks"]:
            for way in WAYS:
                part = benchmark[way]
                console.print(f"[bold]{_title(benchmark)}[/]  {part['label']}", highlight=False)
                table = Table(box=SIMPLE_HEAD)
                for name in ("embedder", *content["metrics"]):
                    table.add_column(name, justify="left" if name == "embedder" else "right")
                for name, cells in _rows(part, content["metrics"]):
                    table.add_row(name, *(f"[{styles[mark]}]{text}[/]" for text, _, mark in cells))
                console.print(table)
    return capture.get()

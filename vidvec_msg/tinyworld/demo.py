"""The verb ``demo``: the whole loop on the tiny world, from drawn clips to a report.

It proves the mechanism on its own little world; the model is not one for real videos. Each stage is what a
user would run on data of their own: `fit`, `evaluate`, `index`.
"""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
import time
import warnings
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.relevance import reverse
from vidvec_msg.runs import write_json
from vidvec_msg.tinyworld.collections import write_pairs, write_world

if TYPE_CHECKING:
    from vidvec_msg.retrieval.evaluate import Evaluated
    from vidvec_msg.retrieval.evaluation.directions import Direction

log = logging.getLogger(__name__)

METRICS = ["recall@1", "recall@10", "hit_rate@1", "mrr", "ndcg@10", "map"]
DIRECTIONS = {"t2v": "forward", "v2t": "reverse"}
SUMMARY = "summary.json"
_MARK = "demo.log"  # stands in every folder that a demo made, and in no other

ABOUT = {
    "before": "the tiny multimodal LLM as it was taught to caption",
    "after": "adapted with storyline–message pairs: text alone",
    "control": "adapted with the same texts, paired at random",
}
LIMITS = (
    "This proves the mechanism on its own little world of drawn clips. It is not a model for real videos, "
    "and stories that it never saw do not transfer."
)


def demo(out: Path = Path("runs/demo"), *, seed: int = 0, open_report: bool | None = None) -> Path:
    """Runs the whole loop on the tiny world: draw, fit on text alone, embed, index, evaluate, report.

    A tiny multimodal LLM that was taught to caption small drawn clips is adapted with storyline–message pairs
    (text alone), then searched for clips by message and for messages by clip; beside it stand the untrained
    model, a control adapted on shuffled pairs, and chance. It proves the mechanism and is no model for real
    videos. Takes a few minutes on two cores.

    Args:
        out: folder to make; an earlier demo's folder is replaced.
        seed: of the clips, the pairs, and both fits.
        open_report: open report.html in the browser at the end; by default if a terminal is attached.

    Returns:
        the folder, with report.html, summary.json, the world's collection, both fits, the evaluations and
        an index to search.

    Raises:
        RefusedRequest: ``out`` holds something that no demo made.
    """
    _claim(out)
    seconds: dict[str, float] = {}
    world = out / "world"
    with _stage("draw clips and write pairs", "render", seconds):
        write_world(world, seed=seed)
        write_pairs(world / "pairs.jsonl", seed=seed)
        write_pairs(world / "pairs_shuffled.jsonl", seed=seed, shuffled=True)
    with _stage("fit the adapter on text alone", "fit", seconds):
        after = _fit(out / "fit" / "adapter", world / "pairs.jsonl", seed)
    with _stage("fit the control on shuffled pairs", "fit_control", seconds):
        control = _fit(out / "fit" / "control", world / "pairs_shuffled.jsonl", seed)

    from vidvec_msg.embedders.check import CollapsedSpaceWarning
    from vidvec_msg.retrieval.evaluate import evaluate_collection
    from vidvec_msg.retrieval.index import index

    results: dict[str, Evaluated] = {}
    seconds |= {"embed": 0.0, "evaluate": 0.0}
    for name, embedder in (("before", "tinyworld"), ("after", str(after)), ("control", str(control))):
        log.info("· embed and evaluate: %s …", name)
        with warnings.catch_warnings():
            if name == "control":  # random pairs pull everything together; the table shows it
                warnings.simplefilter("ignore", CollapsedSpaceWarning)
            results[name] = evaluate_collection(
                world, embedder, out / "evaluations" / name, pool="split", metrics=METRICS, seed=seed
            )
        for stage, spent in results[name].seconds.items():
            seconds[stage] += spent
    with _stage("build the index", "index", seconds):
        index(out / "index", vectors=out / "evaluations" / "after" / "vectors" / "corpus")
    with _stage("write the report", "report", seconds):
        _write_report(out / "report.html", results)
    _finish(out, results, seconds, open_report)
    return out


def summary_of(results: Mapping[str, Evaluated], seconds: Mapping[str, float]) -> dict[str, Any]:
    """The content of ``summary.json``: before, after, control, chance and the seconds of each stage."""
    summary: dict[str, Any] = {
        name: {short: _values(result, long, "value") for short, long in DIRECTIONS.items()}
        for name, result in results.items()
    }
    any_result = next(iter(results.values()))
    summary["chance"] = {short: _values(any_result, long, "chance") for short, long in DIRECTIONS.items()}
    summary["seconds"] = {stage: round(value, 1) for stage, value in seconds.items()}
    return summary


def table_of(
    summary: Mapping[str, Any], results: Mapping[str, Evaluated], *, width: int | None = None
) -> str:
    """The summary as two tables, in percent.

    Args:
        summary: as made by :func:`summary_of`.
        results: for the labels and sizes.
        width: columns of the terminal; None asks it.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        for short, long in DIRECTIONS.items():
            direction = _direction(results["after"], long)
            sizes = f"{len(direction.query_ids)} queries, {len(direction.candidate_ids)} candidates"
            table = Table(title=f"{direction.label} ({sizes}; %)", title_justify="left")
            table.add_column("")
            for metric in METRICS:
                table.add_column(metric, justify="right")
            for name in ("before", "after", "control", "chance"):
                cells = [f"{100 * summary[name][short][metric]:.1f}" for metric in METRICS]
                table.add_row(name, *cells, style="bold" if name == "after" else None)
            console.print(table)
    return captured.get()


# --- stages -----------------------------------------------------------------------------------------


def _claim(out: Path) -> None:
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).exists())):
        raise RefusedRequest(f"--out {out} holds files that no demo made; give another folder.")
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / _MARK).write_text("made by `vidvec-msg demo`, which may replace this folder\n", encoding="utf-8")


@contextmanager
def _stage(what: str, name: str, seconds: dict[str, float]) -> Iterator[None]:
    log.info("· %s …", what)
    began = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - began


def _fit(run: Path, pairs: Path, seed: int) -> Path:
    """``vidvec-msg fit`` with the shipped config; returns the embedder folder."""
    from vidvec_msg.train.fit import main as fit

    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # which accelerators there are not
    with as_file(files("vidvec_msg.tinyworld") / "fit.yaml") as config:
        fit([
            "fit", f"--config={config}", f"--trainer.default_root_dir={run}", f"--data.pairs={pairs}",
            f"--seed_everything={seed}",
        ])  # fmt: skip
    return run / "embedder"


def _finish(
    out: Path, results: Mapping[str, Evaluated], seconds: Mapping[str, float], open_report: bool | None
) -> None:
    summary = summary_of(results, seconds)
    width = None if sys.stdout.isatty() else 100
    sys.stdout.write(table_of(summary, results, width=width))
    sys.stdout.write("\n".join(textwrap.wrap(LIMITS, 100)) + "\n")
    message = "Patience outlasts every obstacle."
    sys.stdout.write(f'\nSearch its clips: vidvec-msg search --index {out / "index"} --text "{message}"\n')
    write_json(out / SUMMARY, summary)
    page = (out / "report.html").resolve()
    log.info("report: %s", out / "report.html")
    if sys.stdout.isatty() if open_report is None else open_report:
        webbrowser.open(page.as_uri())


# --- the report -------------------------------------------------------------------------------------


def _write_report(path: Path, results: Mapping[str, Evaluated]) -> None:
    from vidvec_msg.retrieval.reports import report
    from vidvec_msg.retrieval.reports.tables import HOW_TO_READ

    sections = []
    for long in DIRECTIONS.values():
        direction = _direction(results["after"], long)
        rows = [
            report.Row(
                name, _direction(result, long).metrics, ABOUT[name], "marked" if name == "after" else ""
            )
            for name, result in results.items()
        ]
        table = report.comparison_table(
            [*rows, report.chance_row(direction.metrics)],
            METRICS,
            caption=f"{report.counts_text(direction)}. Percent, with 95% bootstrap intervals over queries.",
        )
        sections.append(report.Section(direction.label, table))
    sections.append(
        report.Section(
            "Rank of the best positive",
            report.joined(
                *(_histograms(results, long) for long in DIRECTIONS.values()), report.histogram_key()
            ),
            "Before, after and control.",
        )
    )
    adapted = results["after"]
    for long in DIRECTIONS.values():
        direction = _direction(adapted, long)
        queries = {item.id: item for item in adapted.queries}
        clips = {item.id: item for item in adapted.corpus}
        body = (
            report.examples(direction, queries, clips, adapted.qrels)
            if long == "forward"
            else report.examples(direction, clips, queries, reverse(adapted.qrels))
        )
        sections.append(
            report.Section(f"Queries, {direction.label}", body, "The adapted model's best and worst.")
        )
    text = report.page(
        "A tiny multimodal LLM, adapted with text alone",
        sections,
        eyebrow="vidvec-msg demo",
        facts=[("limits", LIMITS)],
        footer=HOW_TO_READ,
    )
    path.write_text(text, encoding="utf-8")


def _histograms(results: Mapping[str, Evaluated], long: str) -> Any:
    from vidvec_msg.retrieval.reports import report

    directions = {name: _direction(result, long) for name, result in results.items()}
    return report.columns(
        *(report.titled_histogram(f"{d.label}, {name}", d) for name, d in directions.items()), narrow=True
    )


def _direction(result: Evaluated, long: str) -> Direction:
    direction: Direction = getattr(result.evaluation, long)
    return direction


def _values(result: Evaluated, long: str, part: str) -> dict[str, float]:
    return {metric: getattr(score, part) for metric, score in _direction(result, long).metrics.items()}

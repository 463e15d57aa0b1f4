"""What a build tells at its end: the funnel, what was spent, and the summary that is written last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.benchmark.request import Build
from vidvec_msg.data_synth.benchmark.task import REPLIES
from vidvec_msg.data_synth.chat import Tally
from vidvec_msg.data_synth.replies import read_records
from vidvec_msg.runs import software_versions, write_json

SETTINGS, SUMMARY = "build.json", "summary.json"


def write_summary(out: Path, build: Build, *, stopped: str) -> dict[str, Any]:
    """Writes what was left out, and the summary.

    Args:
        out: the folder.
        build: that was carried out.
        stopped: why it ended before its end; empty if it did not.
    """
    build.account.write(out)
    pipeline = build.pipeline
    tasks = [pipeline.writing.task, pipeline.asking.task, pipeline.judging.task]
    if pipeline.refinement is not None:
        tasks += [pipeline.refinement.critique, pipeline.refinement.revision]
    summary = {
        "made_by": "vidvec-msg build-benchmark",
        "messages": len(build.messages),
        "stopped": stopped,
        "funnel": [
            {"stage": one.name, "given": one.given, "left": one.left, "reasons": dict(one.codes)}
            for one in build.account.way()
        ],
        "files": {
            file.path.name: {"rows": sum(map(len, file.units.values())), "edited_by_hand": file.edited()}
            for file in build.files
            if file.path.is_file()
        },
        "models": {"writer": build.writer.model, "judge": pipeline.judging.task.kind.model},
        "templates": {
            task.name: {"version": task.template.version, "sha": task.template.sha} for task in tasks
        },
        "ranking": dict(pipeline.ranking.ranker.settings),
        "providers": [{"name": one.name, **one.settings} for one in build.providers],
        "spent": spent(out),
        "versions": software_versions(),
    }
    write_json(out / SUMMARY, summary)
    return summary


def spent(out: Path) -> dict[str, Any]:
    """Answers, tokens and dollars of all questions in the folder, and the units of providers by day."""
    total = Tally()
    for path in sorted((out / REPLIES).glob("*.jsonl")):
        for record in read_records(path):
            if "in" in record:
                total.add(record["in"], record["out"], record["dollars"])
    return {
        "answers": total.answers,
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "dollars": round(total.dollars, 6),
        "youtube_units": _units(out / REPLIES / "youtube_quota.jsonl"),
    }


def _units(path: Path) -> Mapping[str, int]:
    days: dict[str, int] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").split("\n"):
            try:
                row = json.loads(line)
                days[str(row["day"])] = days.get(str(row["day"]), 0) + int(row["units"])
            except (ValueError, KeyError, TypeError):
                continue
    return days

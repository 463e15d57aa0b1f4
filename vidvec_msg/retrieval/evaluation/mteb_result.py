"""The numbers of a direction in the form of an mteb result file, for tools that read those."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MAIN = ("ndcg@10", "map", "recall@10")  # mteb's main score of retrieval is ndcg@10


def mteb_result(report: Mapping[str, Any], way: str, seconds: float | None = None) -> dict[str, Any]:
    """One direction as mteb writes the result of a task.

    ``mteb_version`` is null: mteb did not compute it. The languages are not known, and the list is empty.

    Args:
        report: content of ``report.json``.
        way: "forward" or "reverse".
        seconds: that embedding and evaluating took.
    """
    metrics = {
        name: score["value"] for name, score in report[way]["metrics"].items() if score["value"] is not None
    }
    main = next((name for name in _MAIN if name in metrics), next(iter(metrics), None))
    scores = {re.sub(r"@(\d+)", r"_at_\1", name): value for name, value in metrics.items()}
    scores |= {
        "main_score": None if main is None else metrics[main],
        "hf_subset": "default",
        "languages": [],
    }
    return {
        "dataset_revision": report["data"]["qrels"],
        "task_name": f"{Path(report['collection']).name}-{way}",
        "mteb_version": None,
        "scores": {report["split"]: [scores]},
        "evaluation_time": seconds,
        "kg_co2_emissions": None,
    }

"""What a mining run found, as a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.mining.choice import Rules
from vidvec_msg.retrieval.mining.rows import Mined
from vidvec_msg.retrieval.mining.texts import Candidates


def account(pairs: Sequence[Pair], found: Sequence[Mined], candidates: Candidates, rules: Rules) -> str:
    """Rows, negatives found, scores of positives and negatives, and what each rule removed."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    counts = [len(one.negatives) for one in found]
    full = sum(count == rules.num_negatives for count in counts)
    none = sum(count == 0 for count in counts)
    anchors = len({pair.anchor for pair in pairs})
    lines = [
        f"{len(pairs):,} pairs, {anchors:,} distinct anchors, {len(candidates.texts):,} candidates",
        f"{sum(counts):,} negatives: {full:,} pairs have {rules.num_negatives}, "
        f"{len(counts) - full - none:,} fewer, {none:,} none",
    ]
    unembedded = sum(one.positive is None for one in found)
    if unembedded:
        lines.append(f"{unembedded:,} pairs could not be embedded")

    scores = Table(box=SIMPLE_HEAD, title="cosine with the anchor", title_justify="left")
    for name in ("", "texts", "least", "25%", "median", "75%", "most", "mean"):
        scores.add_column(name, justify="left" if not name else "right")
    rows = {
        "positives": [one.positive for one in found if one.positive is not None],
        "mined negatives": [score for one in found for score in one.scores],
    }
    for name, values in rows.items():
        if values:
            spread = [*np.quantile(values, (0, 0.25, 0.5, 0.75, 1)), np.mean(values)]
            scores.add_row(name, f"{len(values):,}", *(f"{value:.3f}" for value in spread))

    removed = Counter[str]()
    for one in found:
        removed.update(one.removed or {})
    rules_table = Table(
        box=SIMPLE_HEAD, title=f"candidates of ranks 1 to {rules.range_max}", title_justify="left"
    )
    for name in ("removed by", "candidates", "per pair"):
        rules_table.add_column(name, justify="left" if name == "removed by" else "right")
    for name, count in removed.items():
        value = getattr(rules, name)
        rules_table.add_row(f"{name} {value}", f"{count:,}", f"{count / len(pairs):.1f}")

    parts = (*lines, scores, rules_table) if rules_table.rows else (*lines, scores)
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()

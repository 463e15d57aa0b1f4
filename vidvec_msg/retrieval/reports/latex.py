"""Tables as papers print them: rows of LaTeX, the best value of a column bold, the second underlined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vidvec_msg.retrieval.metrics import lower_is_better
from vidvec_msg.retrieval.reports.tables import shown

BEST, SECOND = "best", "second"

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\rightarrow$", "–": "--",
}  # fmt: skip


def marks(metric: str, values: Sequence[float | None]) -> list[str]:
    """Which of the values of a metric are the "best" and the "second"; "" for the others.

    Values that are printed alike share their mark. A single value has none, and neither have values that are
    all printed alike.
    """
    given = [value for value in values if value is not None]
    order = sorted(set(given), reverse=not lower_is_better(metric))
    printed = list(dict.fromkeys(shown(metric, value) for value in order))
    if len(printed) < 2:
        return [""] * len(values)
    of = dict(zip(printed, (BEST, SECOND), strict=False))
    return ["" if value is None else of.get(shown(metric, value), "") for value in values]


def latex_table(
    caption: str,
    rows: Mapping[str, Mapping[str, float | None]],
    metrics: Sequence[str],
    *,
    unmarked: Sequence[str] = (),
) -> str:
    """A booktabs table, one system a row and one metric a column.

    Args:
        caption: below the table.
        rows: system → metric → value.
        metrics: the columns.
        unmarked: systems that compete for no mark (the level of chance).
    """
    competing = [name for name in rows if name not in unmarked]
    style = {
        m: dict(zip(competing, marks(m, [rows[n].get(m) for n in competing]), strict=True)) for m in metrics
    }
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * len(metrics)}}}",
        r"\toprule",
        " & ".join(["", *(latex_text(metric) for metric in metrics)]) + r" \\",
        r"\midrule",
    ]
    for name, values in rows.items():
        cells = [_cell(metric, values.get(metric), style[metric].get(name, "")) for metric in metrics]
        lines.append(" & ".join([latex_text(name), *cells]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{latex_text(caption)}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return re.sub(r"[\\&%$#_{}~^→–]", lambda match: _SPECIAL[match[0]], text)


def _cell(metric: str, value: float | None, mark: str) -> str:
    text = latex_text(shown(metric, value))
    if mark == BEST:
        return rf"\textbf{{{text}}}"
    return rf"\underline{{{text}}}" if mark == SECOND else text

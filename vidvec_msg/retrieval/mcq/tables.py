"""The numbers of an exam as people read them: Markdown for files, pipes and terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.retrieval.benchmarks.published import MARK
from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP

_LISTED = 20  # guessable questions that the report names

HOW_TO_READ = (
    "Accuracy in percent with Wilson's 95% interval. *Without the clip* is what the words alone give away. "
    "*Rotated* rounds show the same options at other letters; *same option* is the share of questions that "
    "keep their answer. An answer that cannot be read counts as wrong; a question whose clip is broken "
    "counts nowhere. Embedders see no letters: the order of the options cannot matter to them."
)


def markdown_report(report: Mapping[str, Any]) -> str:
    """``report.md``."""
    head = [
        f"# Multiple choice on {report['collection']}",
        "",
        f"Protocol {report['protocol']}, split {report['split']}, seed {report['seed']}: "
        f"{report['questions']:,} questions.",
        "",
    ]
    return "\n".join(head) + tables(report) + f"\n{HOW_TO_READ}\n"


def tables(report: Mapping[str, Any]) -> str:
    """All tables, of all models."""
    models = report["models"]
    lines = [f"> {remark}\n" for remark in report["remarks"]]
    lines += _headline(report)
    for model in models:
        lines += [f"> {model['name']}: {warning}\n" for warning in model["warnings"]]
    lines += _guessable(report)
    lines += _groups(models)
    lines += _letters(models)
    return "\n".join(lines) + "\n"


def _headline(report: Mapping[str, Any]) -> list[str]:
    rotated = any(model["rotated"] for model in report["models"])
    control = any(model["control"] for model in report["models"])
    heads = ["model", "accuracy", "95% interval", "chance", "questions", "unreadable"]
    heads += ["without the clip"] if control else []
    heads += ["of the others"] if report["guessable"] else []
    heads += ["rotated", "same option"] if rotated else []
    rows = []
    for model in report["models"]:
        found = model["accuracy"]
        row = [model["name"], _percent(found["value"]), _interval(found), _percent(found["chance"])]
        row += [f"{found['questions']:,}", f"{model['unreadable']:,}"]
        if control:
            row.append(_percent(model["control"]["value"]) if model["control"] else "–")
        if report["guessable"]:
            row.append(_percent(model["without_guessable"]["value"]))
        if rotated:
            turned = model["rotated"]
            others = list(turned["rounds"].values())[1:] if turned else []
            row.append(", ".join(_percent(one["value"]) for one in others) or "–")
            row.append(_percent(turned["same"]["value"]) if turned else "–")
        rows.append(row)
    rows += [
        [f"{one['model']} *({MARK})*", _percent(one["value"])] + ["–"] * (len(heads) - 2)
        for one in report["published"]
    ]
    return _table(heads, rows)


def _guessable(report: Mapping[str, Any]) -> list[str]:
    if report["guessable"] is None:
        return []
    found, asked = report["guessable"], report["guessers"]
    who = "the one model" if asked == 1 else f"all {asked} models"
    line = (
        f"{len(found):,} of {report['questions']:,} questions are answered right without the clip by {who}; "
        f"blind guesses would be right on {report['guessable_by_chance']:.1f}"
    )
    shown = ", ".join(found[:_LISTED]) + (f", … {len(found) - _LISTED} more" if len(found) > _LISTED else "")
    return [line + (f": {shown}." if found else "."), ""]


def _groups(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table per group: its values, and every model's accuracy on them."""
    lines: list[str] = []
    small = False
    for key in dict.fromkeys(key for model in models for key in model["groups"]):
        rows = []
        for value in sorted({value for model in models for value in model["groups"].get(key, ())}):
            cells = [model["groups"].get(key, {}).get(value) for model in models]
            first = next(cell for cell in cells if cell)
            small |= first["small"]
            row = [
                value + (" †" if first["small"] else ""),
                f"{first['questions']:,}",
                _percent(first["chance"]),
            ]
            row += [f"{_percent(cell['value'])} ({_interval(cell)})" if cell else "–" for cell in cells]
            rows.append(row)
        lines += _table([key, "questions", "chance", *(model["name"] for model in models)], rows)
    return lines + ([f"† fewer than {SMALL_GROUP} questions", ""] if small else [])


def _letters(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the right option stands, and what each model makes of it."""
    letters = list(dict.fromkeys(letter for model in models for letter in model["letters"]))
    rows = []
    for letter in letters:
        cells = [model["letters"].get(letter) for model in models]
        first = next(cell for cell in cells if cell)
        row = [letter, f"{first['right']:,}"]
        row += [
            f"{_percent(cell['accuracy']['value'])}, {cell['chosen']:,}" if cell else "–" for cell in cells
        ]
        rows.append(row)
    heads = ["letter", "right at it", *(f"{model['name']}: accuracy there, times chosen" for model in models)]
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "| --- " + "| ---: " * (len(heads) - 1) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return [*lines, ""]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _interval(found: Mapping[str, Any]) -> str:
    return "–" if found["low"] is None else f"{100 * found['low']:.1f} – {100 * found['high']:.1f}"

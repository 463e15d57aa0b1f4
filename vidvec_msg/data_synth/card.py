"""The data card of a folder of pairs: counts, funnel, lengths, variety, examples, cost, licence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.data_synth.funnel import Stage, markdown_table
from vidvec_msg.formats.pairs import Pair

_EXAMPLES = 5


def page(summary: Mapping[str, Any], pairs: Sequence[Pair], way: Sequence[Stage]) -> str:
    """The text of ``card.md``; its header is the one that dataset hubs read."""
    parts = [
        _header(summary),
        f"# {summary['pairs']:,} pairs of storylines and messages\n",
        "Each row is a dense storyline of a short clip (`anchor`) and the message that the clip conveys "
        "without saying it (`positive`)."
        + (" A language model wrote the texts; no clip exists.\n" if summary.get("personas") else "\n"),
        _origin(summary),
        "## From requests to pairs\n\n"
        f"{markdown_table(way)}\n\n![What is left after each step](funnel.png)\n\n"
        "Every reject stands in `rejects.jsonl` with its reason.\n",
        _shape(summary),
        _variety(summary.get("diversity") or {}),
        _examples(pairs),
        _licence(summary),
    ]
    return "\n".join(part for part in parts if part)


def _header(summary: Mapping[str, Any]) -> str:
    licence = (summary.get("personas") or {}).get("licence") or "unknown"
    size = summary["pairs"]
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
    category = next((name for most, name in bounds if size < most), "n>1M")
    # a list: a hub shows names that it knows, and takes others
    lines = [
        "---",
        f"license: {json.dumps(licence)}",
        "task_categories: [sentence-similarity]",
        "tags: [synthetic, text-to-video-retrieval, implicit-messages]",
        f"size_categories: [{json.dumps(category)}]",
        "configs: [{config_name: default, data_files: pairs.jsonl}]",
        "---\n",
    ]
    return "\n".join(lines)


def _origin(summary: Mapping[str, Any]) -> str:
    rows = [("made by", f"`{summary['made_by']}`")]
    rows += [
        (label, str(summary[name]))
        for name, label in (
            ("model", "model"), ("host", "endpoint"), ("template", "prompt template"),
            ("template_sha", "its hash"), ("source", "source"), ("seed", "seed"),
        )
        if summary.get(name) not in (None, "")
    ]  # fmt: skip
    personas = summary.get("personas")
    if personas:
        rows.append(("personas", f"{personas['used']:,} of {personas['read']:,} in `{personas['file']}`"))
    spent = summary.get("spent")
    if spent:
        dollars = f", ${spent['dollars']:.2f}" if spent.get("priced") else ", price not given"
        rows.append(
            (
                "used",
                f"{spent['answers']:,} answers, {spent['prompt_tokens']:,} + {spent['completion_tokens']:,} "
                f"tokens{dollars}",
            )
        )
    if summary.get("stopped"):
        rows.append(("stopped early", summary["stopped"]))
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in rows) + "\n"


def _shape(summary: Mapping[str, Any]) -> str:
    lines = [
        "## Lengths and groups\n",
        "| words | least | 25% | median | 75% | most | mean |",
        "| --- " * 7 + "|",
    ]
    for name, spread in summary["lengths"].items():
        if spread:
            told = " | ".join(f"{value:g}" for value in spread.values())
            lines.append(f"| {name.replace('_words', '')} | {told} |")
    groups = summary["groups"]
    lines.append(
        f"\n{groups['pairs_in_groups']:,} pairs lie in {groups['groups']:,} groups of near messages (the "
        f"largest has {groups['largest']:,}); rows of one `group` are never each other's negatives."
        if groups["groups"]
        else "\nNo two messages are near enough to share a `group`."
    )
    if summary["validation_pairs"]:
        lines.append(
            f"{summary['validation_pairs']:,} pairs are kept aside (`splits/validation.jsonl`), groups as a "
            "whole."
        )
    return "\n".join(lines) + "\n"


def _variety(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    similarity = found["self_similarity"]
    lines = [
        f"## Variety\n\nOf the first {found['looked_at']:,} pairs.\n",
        "| | distinct-1 | distinct-2 | distinct-3 |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {what} | " + " | ".join(f"{value:.3f}" for value in found[what].values()) + " |"
        for what in ("messages", "storylines")
    ]
    lines.append(
        f"\nMean cosine of a message with its nearest other one {similarity['nearest']:.3f}, with all "
        f"{similarity['mean']:.3f} ({similarity['by']}).\n"
    )
    lines += ["| pairs | entropy over clusters (1 is even) |", "| ---: | ---: |"]
    lines += [f"| {row['pairs']:,} | {row['entropy']:.3f} |" for row in found["entropy"]]
    return "\n".join(lines) + "\n"


def _examples(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return ""
    step = max(1, len(pairs) // _EXAMPLES)
    lines = ["## Examples\n"]
    for pair in pairs[::step][:_EXAMPLES]:
        persona = pair.provenance.get("persona")
        lines.append(f"- **{pair.positive}**" + (f" (persona: {persona})" if persona else ""))
        lines.append(f"  {pair.anchor}")
    return "\n".join(lines) + "\n"


def _licence(summary: Mapping[str, Any]) -> str:
    personas = summary.get("personas") or {}
    note = personas.get("licence_note")
    return f"## Licence\n\n{note}\n" if note else ""

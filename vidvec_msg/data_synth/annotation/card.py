"""The card of a collection made from ratings: counts, funnel, agreement, licence, where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.data_synth.annotation.candidates import Candidate
from vidvec_msg.data_synth.annotation.scale import MEANINGS
from vidvec_msg.data_synth.funnel import Stage, markdown_table

_EXAMPLES = 5
_WHEN = {"all_rated": "all rated", "kept": "those that meet the rule"}


def page(account: Mapping[str, Any], way: Sequence[Stage], kept: Sequence[Candidate]) -> str:
    """The text of ``README.md``; its header is the one that dataset hubs read.

    Args:
        account: content of ``ratings.json``.
        way: the funnel.
        kept: candidates that stay, for examples.
    """
    parts = [
        _header(account),
        f"# {account['title']}\n",
        f"{account['messages']:,} messages × {account['clips']:,} clips, "
        f"{account['clips_of_a_message']['least']} to {account['clips_of_a_message']['most']} clips a "
        f"message (mean {account['clips_of_a_message']['mean']}). Each message was there first; clips were "
        "looked for that imply it, and people rated whether they do.\n",
        _files(account),
        _funnel(account, way),
        _ratings(account),
        _agreement(account),
        _topics(account),
        _examples(kept),
        _licence(account),
        _origin(account),
    ]
    return "\n".join(part for part in parts if part)


def _header(account: Mapping[str, Any]) -> str:
    lines = [
        "---",
        f"license: {json.dumps(account['licence'] or 'unknown')}",
        "task_categories: [text-to-video-retrieval]",
        "tags: [implicit-messages, beir]",
        "---\n",
    ]
    return "\n".join(lines)


def _files(account: Mapping[str, Any]) -> str:
    clips = account["clips"] - account["texts"]
    files = account["clips_with_a_file"]
    if files == clips:
        return ""
    return (
        f"**{clips - files:,} of {clips:,} clips have no file here**: their row holds the clip's title as "
        "text and its address in `metadata`. What an embedder is given of them is the title, so numbers on "
        "them are no numbers of video retrieval.\n"
    )


def _funnel(account: Mapping[str, Any], way: Sequence[Stage]) -> str:
    rule, failed = account["rule"], account["conditions_failed"]
    lines = [
        "## From candidates to clips\n",
        f"A candidate stays if more than {rule['share']:.0%} of its ratings are {rule['high']} or higher, "
        + (f"nobody gave {rule['low']} or lower, " if rule["low"] else "")
        + f"at most {rule['obvious']} found it too obvious, and at least {rule['least_raters']} rated it.\n",
        markdown_table(way),
        "\n![What is left after each step](funnel.png)\n",
        "A candidate counts at the first condition that it fails. Failing each, whatever else: "
        + ", ".join(f"{name} {count:,}" for name, count in failed.items())
        + ".\n",
    ]
    if account["messages_without_a_clip"]:
        names = ", ".join(f"`{name}`" for name in account["messages_without_a_clip"])
        lines.append(f"Messages without a clip, left out: {names}.\n")
    return "\n".join(lines)


def _ratings(account: Mapping[str, Any]) -> str:
    counts = account["ratings"]
    total = sum(counts.values())
    lines = [
        "## Ratings\n",
        f"{total:,} ratings of {len(account['raters']):,} people; {account['cells_without_a_rating']:,} "
        "cells hold none.\n",
        "| rating | meaning | given | share |",
        "| ---: | --- | ---: | ---: |",
    ]
    for rating, meaning in MEANINGS.items():
        given = counts.get(rating, 0)
        lines.append(f"| {rating} | {meaning} | {given:,} | {given / total:.1%} |")
    return "\n".join(lines) + "\n"


def _agreement(account: Mapping[str, Any]) -> str:
    found = account["agreement"]
    by_place = len(account["raters"]) > account["most_ratings_of_a_candidate"]  # a crowd: not all rated all
    heads = ["scale", "candidates", "with two ratings", "kappa", *(["kappa by place"] if by_place else [])]
    heads += ["alpha, ordinal", "alpha, interval", "pairs of raters"]
    lines = [
        "## Agreement\n",
        f"| {' | '.join(heads)} |",
        "| --- | --- " + "| ---: " * (len(heads) - 2) + "|",
    ]
    for scale, named in (("raw", "1 to 6"), ("collapsed", "1–2, 3, 4–6")):
        for when, one in found[scale].items():
            pairs = f"{one['pairs']:,}" + (
                f" ({one['undefined_pairs']:,} undefined)" if one["undefined_pairs"] else ""
            )
            cells = [named, _WHEN[when], f"{one['tasks']:,}", _number(one["kappa"])]
            cells += [_number(one["kappa_by_place"])] if by_place else []
            cells += [_number(one["alpha_ordinal"]), _number(one["alpha_interval"]), pairs]
            lines.append(f"| {' | '.join(cells)} |")
    lines.append(
        "\nKappa is Cohen's with linear weights, its mean over all pairs of raters with a candidate in "
        "common; alpha is Krippendorff's. Undefined: fewer than two ratings, or all alike."
        + (
            " By place: the first rating of each candidate beside the second, and so on, as a crowd's tables "
            "have them."
            if by_place
            else ""
        )
        + " Among those that meet the rule ratings vary less, so that chance explains more of them.\n"
    )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _topics(account: Mapping[str, Any]) -> str:
    if not account["topics"]:
        return ""
    lines = ["## Topics\n", "| topic | pairs of message and clip |", "| --- | ---: |"]
    lines += [f"| {_words(topic)} | {count:,} |" for topic, count in account["topics"].items()]
    if account["clips_of_several_topics"]:
        lines.append(
            f"\n{account['clips_of_several_topics']:,} clips belong to messages of several topics; their "
            "group is that of the first."
        )
    return "\n".join(lines) + "\n"


def _examples(kept: Sequence[Candidate]) -> str:
    step = max(1, len(kept) // _EXAMPLES)
    lines = ["## Examples\n"]
    lines += [
        f"- **{one.message}**: `{one.clip_id}` {one.get('title')}".rstrip()
        for one in kept[::step][:_EXAMPLES]
    ]
    return "\n".join(lines) + "\n"


def _licence(account: Mapping[str, Any]) -> str:
    return (
        "## Licence\n\n"
        f"Messages and ratings: {account['licence'] or 'not stated by who made them'}. Clips belong to their "
        "uploaders and are not part of this folder; a platform's own licence (on YouTube usually the "
        "Standard YouTube License) says what may be done with them, and clips may be taken down at any time. "
        "Titles and descriptions are their uploaders' words. Names of raters in `ratings.jsonl` are personal "
        "data: replace them before you give the folder away.\n"
    )


def _origin(account: Mapping[str, Any]) -> str:
    rows = [("ratings", ", ".join(f"`{name}`" for name in account["files"]))]
    rows += [(name.replace("_", " "), _words(value)) for name, value in account["about"].items() if value]
    return "## Origin\n\n| | |\n| --- | --- |\n" + "\n".join(f"| {a} | {b} |" for a, b in rows) + "\n"


def _words(value: Any) -> str:
    """A fact as a cell of a table."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_words(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return str(value).replace("|", "\\|").replace("\n", " ")

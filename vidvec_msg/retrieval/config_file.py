"""``config.yaml`` beside an output: the options that it was begun with, and goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.runs import require_new, write_text

CONFIG = "config.yaml"


def refuse_other(
    out: Path, settings: Mapping[str, Any], *, what: str, free: tuple[str, ...], keep: str = ""
) -> None:
    """Refuses a folder that is neither new nor begun with the same options.

    Options that only one of the two knows are of another version; where both know some of their own, another
    command has made the folder, and it would be overwritten.

    Args:
        out: the folder.
        settings: all options, as :func:`claim` gets them.
        what: the folder holds, for the message: "evaluation".
        free: options that do not reach the numbers or are checked elsewhere; these may change.
        keep: what of the other one can be used again, and how, for the message.

    Raises:
        RefusedRequest: naming every difference.
    """
    require_new(out, option="--out", resumable=CONFIG)
    if not (out / CONFIG).exists():
        return
    before = yaml.safe_load((out / CONFIG).read_text(encoding="utf-8")) or {}
    if (others := sorted(before.keys() - settings.keys())) and settings.keys() - before.keys():
        raise RefusedRequest(
            f"--out {out} holds no {what}: its {CONFIG} has other options ({', '.join(others[:3])}, …); give "
            "a new folder."
        )
    problems = Problems(f"--out {out} holds another {what}; give a new folder{keep}, or the same options")
    for key, value in settings.items():
        if key not in free and key in before and before[key] != value:
            problems.add(f"{key} was {before[key]!r} and is {value!r} now")
    problems.refuse_if_any()


def claim(out: Path, settings: Mapping[str, Any], report: str) -> None:
    """Marks a folder as that of these options, incomplete until its report is written.

    Args:
        out: the folder.
        settings: all options.
        report: name of the file that is written last; an earlier one is removed.
    """
    (out / report).unlink(missing_ok=True)
    write_text(out / CONFIG, yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))

"""Writes each verb's options into its page, from the signature and docstring that are its command line.

python docs/options.py           rewrite the tables between the markers
python docs/options.py --check   exit 1 if a table is out of date (a test calls this)
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from docstring_parser import parse

from vidvec_msg.cli import VERBS

PAGES = Path(__file__).parent
BEGIN, END = "<!-- options: begin -->", "<!-- options: end -->"


def table(function: Callable[..., Any]) -> str:
    """A Markdown table: option, default, meaning."""
    texts = {
        entry.arg_name: entry.description or "" for entry in parse(inspect.getdoc(function) or "").params
    }
    rows = ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, parameter in inspect.signature(function).parameters.items():
        default = f"`{parameter.default}`" if parameter.default not in (None, "") else "–"
        if parameter.default is inspect.Parameter.empty:
            default = "required"
        meaning = re.sub(r"\s+", " ", texts[name]).replace("|", "\\|")
        rows.append(f"| `--{name}` | {default} | {meaning} |")
    return "\n".join(rows)


def rewritten(page: str, verb: str) -> str:
    module, _, name = VERBS[verb].target.partition(":")
    block = f"{BEGIN}\n{table(getattr(import_module(module), name))}\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: block, page, flags=re.DOTALL)


def main() -> int:
    stale = []
    for verb in (name for name, entry in VERBS.items() if not entry.takes_argv):
        path = PAGES / f"{verb}.md"
        page = path.read_text(encoding="utf-8")
        new = rewritten(page, verb)
        if new != page:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    sys.stdout.write(f"out of date: {', '.join(stale) or 'none'}\n")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())

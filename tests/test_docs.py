"""The documents say what is there: options, paths, commands, pages."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from vidvec_msg.cli import VERBS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("configs/**/*.md")])


def test_every_verb_has_a_page() -> None:
    missing = [verb for verb in VERBS if verb != "validate" and not (ROOT / "docs" / f"{verb}.md").exists()]
    assert missing == []


@pytest.mark.parametrize("program", ["options.py", "file_tree.py", "sizes.py"])
def test_what_is_generated_is_up_to_date(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--check"])
    main = runpy.run_path(str(ROOT / "docs" / program))["main"]
    assert main() == 0, f"run `python docs/{program}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for verb in re.findall(r"^ *vidvec-msg ([a-z]\S*)", text, flags=re.MULTILINE):
        assert verb in VERBS, verb
    for program in re.findall(r"^ *python (\S+\.py)", text, flags=re.MULTILINE):
        assert (ROOT / program).exists(), program
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for target in re.findall(r"^ *make ([a-z]+)", text, flags=re.MULTILINE):
        assert target in targets, target

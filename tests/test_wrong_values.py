"""A wrong value of a verb's option is answered with what was given and what its type takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from vidvec_msg import cli
from vidvec_msg.errors import RefusedRequest


def sample(
    count: int = 1,
    share: float | None = None,
    side: Literal["queries", "corpus"] = "corpus",
    sides: list[Literal["queries", "corpus"]] | None = None,
    seeds: list[int] | None = None,
    files: list[Path] | None = None,
    filters: dict[str, Any] | None = None,
    columns: dict[str, str] | None = None,
    out: Path = Path("out"),
) -> None:
    """A verb for the tests."""


TABLE = (
    ". A table stands in one word (--{0} '{{NAME: VALUE}}'), in several (--{0}.NAME VALUE), or under {0}: in "
    "the YAML file of --config; the name of a file is none"
)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--count x", "--count is 'x'; accepted: a whole number"),
        ("--count", "--count is given without a value; accepted: a whole number"),
        ("--share x", "--share is 'x'; accepted: a number, null"),
        ("--side querys", "--side is 'querys' (did you mean 'queries'?); accepted: queries, corpus"),
        (
            "--sides corpus querys",
            "--sides is ['corpus', 'querys'] (did you mean 'queries'?); accepted: a list of queries or "
            "corpus, null",
        ),
        ("--seeds 1 x", "--seeds is [1, 'x']; accepted: a list of whole numbers, null"),
        (
            "--filters nosuch.yaml",
            "--filters is 'nosuch.yaml'; accepted: a table of names and values, null"
            + TABLE.format("filters"),
        ),
        (
            "--columns x",
            "--columns is 'x'; accepted: a table of names and texts, null" + TABLE.format("columns"),
        ),
        ('--columns {"a":[1]}', "--columns is {'a': [1]}; accepted: a table of names and texts, null"),
        ("--columns.a [1]", "--columns.a is [1]; accepted: a text"),
        ("--count=", "--count is ''; accepted: a whole number"),
        ("--share=", "--share is ''; accepted: a number, null"),
        ("--seeds", "--seeds is given without a value; accepted: a list of whole numbers, null"),
        ("--count.low 1", "--count is no table, and has no --count.NAME; accepted: a whole number"),
        (
            "--seeds.low 1",
            "--seeds is no table, and has no --seeds.NAME; accepted: a list of whole numbers, null",
        ),
        ("--out.low 1", "--out is no table, and has no --out.NAME; accepted: a path"),
    ],
)
def test_on_the_command_line(words: str, told: str) -> None:
    with pytest.raises(RefusedRequest) as refusal:
        cli.run_function(sample, words.split(), program="vidvec-msg sample")
    assert str(refusal.value) == f"{told}\nSee `vidvec-msg sample --help`."


def test_in_a_file(tmp_path: Path) -> None:
    for content, told in (
        ("count: x\n", "--count is 'x'; accepted: a whole number\n"),
        ("filters: [1]\n", "--filters is [1]; accepted: a table of names and values, null\n"),
        (
            "- a\n",
            "the config holds no table of options, but '- a'; give a YAML file of options (`vidvec-msg s",
        ),
        ("count: [1\n", "the config is not YAML: while parsing a flow sequence"),
    ):
        (tmp_path / "mine.yaml").write_text(content)
        with pytest.raises(RefusedRequest) as refusal:
            cli.run_function(sample, ["--config", str(tmp_path / "mine.yaml")], program="vidvec-msg sample")
        assert str(refusal.value).startswith(told)
    with pytest.raises(RefusedRequest) as refusal:
        cli.run_function(sample, ["--config", str(tmp_path / "mien.yaml")], program="vidvec-msg sample")
    assert str(refusal.value) == (
        f"--config {tmp_path / 'mien.yaml'}: there is no such file (did you mean 'mine.yaml'?); give a YAML "
        "file of options (`vidvec-msg sample --print_config` writes one)\nSee `vidvec-msg sample --help`."
    )


@pytest.mark.parametrize("verb", ["synth", "filter-pairs"])
def test_filters_are_no_file(verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = "--personas" if verb == "synth" else "--pairs"
    words = [verb, source, "x", "--out", str(tmp_path / "out"), "--filters", "nosuch.yaml"]
    assert cli.main([*words, *(["--model", "m"] if verb == "synth" else [])]) == 2
    told = capsys.readouterr().err
    assert "--filters is 'nosuch.yaml'; accepted: a table of names and values, null. A table stands" in told
    assert "Union" not in told

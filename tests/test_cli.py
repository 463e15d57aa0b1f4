"""The command line: the overview, options as people type them, refusals and exit codes."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from vidvec_msg import cli
from vidvec_msg.errors import RefusedRequest, TooManyFailures


def sample(
    out: Path,
    *,
    metrics: list[str] | None = None,
    max_failures: float | int = 0,
    pool: Literal["corpus", "split"] = "corpus",
    json: bool = False,
    text: str | None = None,
) -> dict[str, object]:
    """A verb for the tests.

    Args:
        out: a folder.
        metrics: names.
        max_failures: count, or share.
        pool: which documents.
        json: machine-readable.
        text: words.
    """
    return {
        "out": out, "metrics": metrics, "max_failures": max_failures, "pool": pool, "json": json,
        "text": text,
    }  # fmt: skip


def run(*words: str) -> dict[str, object]:
    result = cli.run_function(sample, words, program="vidvec-msg sample")
    assert isinstance(result, dict)
    return result


def test_options_are_typed_by_the_signature() -> None:
    assert run("--out", "a/b", "--max_failures", "0.5", "--pool", "split") == {
        "out": Path("a/b"),
        "metrics": None,
        "max_failures": 0.5,
        "pool": "split",
        "json": False,
        "text": None,
    }


def test_dashes_bare_flags_and_word_lists_are_understood() -> None:
    result = run("--json", "--max-failures=3", "--metrics", "map", "recall@10", "--out", "x")
    assert result["json"] is True
    assert result["max_failures"] == 3
    assert result["metrics"] == ["map", "recall@10"]
    for word in ("false", "False", "no"):
        assert (
            run("--out", "x", "--json", word)["json"] is run("--out", "x", f"--json={word}")["json"] is False
        )
    assert run("--out", "x", "--json", "yes", "--pool", "split")["json"] is True
    assert run("--out", "x", "--metrics=map")["metrics"] == ["map"]
    assert run("--out", "x", "--metrics", "[map, mrr]")["metrics"] == ["map", "mrr"]
    assert run("--out", "x", "--metrics", "map", "--metrics", "a", "b")["metrics"] == ["map", "a", "b"]
    assert run("--out", "x", "--metrics=map", "--metrics=[mrr]")["metrics"] == ["map", "mrr"]
    assert run("--out", "x", "--metrics", "[bold]map")["metrics"] == ["[bold]map"]


@pytest.mark.parametrize(
    "text", ["#hashtag first", "null", "~", "007", "true", "-5 degrees", "-x", "[a, b]", "a: b", "'q'", ""]
)
def test_a_text_stays_the_text_that_was_typed(text: str) -> None:
    """The parser reads values as YAML, where a hashtag is a comment and null is nothing."""
    assert run("--out", "x", "--text", text)["text"] == text
    assert run("--out", "x", f"--text={text}")["text"] == text


def test_a_yaml_file_holds_the_same_options_and_later_words_win(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("out: from_file\npool: split\n")
    assert run("--config", str(config), "--out", "from_words")["out"] == Path("from_words")
    assert run("--config", str(config))["pool"] == "split"


def test_print_config_can_be_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--out", "x", "--pool", "split", "--print_config")
    config = tmp_path / "c.yaml"
    config.write_text(capsys.readouterr().out)
    assert run("--config", str(config))["pool"] == "split"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--out", "x", "--metricz", "map"), "unknown option 'metricz' (did you mean 'metrics'?)"),
        (("--metrics", "map"), "required: out"),
        (("--out", "x", "--pool", "some"), "corpus"),
        (("--out", "x", "-json"), "no option takes '-json': options begin with two dashes"),
        (
            ("--out", "x", "--text", "two", "words"),
            "no option takes 'words': options begin with two dashes, and",
        ),
        (
            ("--out", "x", "--max_failures", "few"),
            "--max_failures is 'few'; accepted: a number, a whole number\n",
        ),
    ],
)
def test_wrong_words_are_refused_with_what_is_accepted(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(RefusedRequest) as refusal:
        run(*words)
    assert told in str(refusal.value)
    assert "vidvec-msg sample --help" in str(refusal.value)


def test_an_unknown_key_of_a_config_is_refused_with_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("out: x\npol: split\n")
    with pytest.raises(RefusedRequest, match=r"unknown option 'pol' \(did you mean 'pool'"):
        run("--config", str(config))


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (RefusedRequest("no such folder"), 2, "vidvec-msg: no such folder"),
        (TooManyFailures("3 of 9 clips failed"), 1, "3 of 9 clips failed"),
        (KeyboardInterrupt(), 130, "interrupted; what was saved goes on with --ckpt_path last"),
        (SystemExit("no room left"), 2, "vidvec-msg: no room left"),
    ],
)
def test_exit_codes(
    error: BaseException,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(words: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli, "_load", lambda target: fail)
    assert cli.main(["fit"]) == code
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_interrupted_a_job_goes_on_by_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_load", lambda target: fail)
    monkeypatch.setattr(cli, "run_function", fail)
    assert cli.main(["embed"]) == 130
    assert "the same command continues from here" in capsys.readouterr().err


def test_lines_of_the_log_go_to_stderr_while_a_verb_runs_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("vidvec_msg.somewhere")
    monkeypatch.setattr(cli, "_load", lambda target: lambda words: logger.info("made in runs/x"))
    assert cli.main(["fit"]) == 0
    assert capsys.readouterr() == ("", "made in runs/x\n")
    logger.info("not of a verb")
    assert capsys.readouterr() == ("", "")


def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluat"]) == 2
    assert "did you mean 'evaluate'?" in capsys.readouterr().err


def test_the_overview_and_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    overview = capsys.readouterr().out
    assert all(verb in overview for verb in cli.VERBS)
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("vidvec-msg 0.")


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_help_with_a_text_for_each_option(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([verb, "--help"]) == 0
    assert "--config" in capsys.readouterr().out


def test_help_of_a_process_of_its_own() -> None:
    words = [sys.executable, "-m", "vidvec_msg.cli", "embed", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--config" in done.stdout


def test_help_is_light() -> None:
    """`import vidvec_msg` and the overview load none of the heavy libraries."""
    code = (
        "import sys, vidvec_msg, vidvec_msg.cli as c; c.main(['--help']);"
        "heavy = {'torch', 'transformers', 'faiss', 'ranx', 'jsonargparse'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

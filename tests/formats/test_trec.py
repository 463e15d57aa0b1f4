"""TREC files: readable by the other tools of the field, ids with spaces included."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.trec import (
    plain_id,
    read_run,
    read_trec_qrels,
    run_writer,
    trec_id,
    write_run,
    write_trec_qrels,
)

RUN = {"my query": {"doc b": 0.5, "doc%20a": 0.25}, "q2": {"d": -1.0}}
QRELS = {"my query": {"doc b": 2, "x": 0}, "q2": {"d": 1}}


def test_round_trip(tmp_path: Path) -> None:
    write_run(tmp_path / "run.trec", RUN, tag="two words")
    write_trec_qrels(tmp_path / "qrels.trec", QRELS)
    assert read_run(tmp_path / "run.trec") == RUN
    assert read_trec_qrels(tmp_path / "qrels.trec") == QRELS
    assert (tmp_path / "run.trec").read_text().splitlines()[0] == "my%20query Q0 doc%20b 1 0.5 two%20words"


@pytest.mark.parametrize("identity", ["a", "a b", "a%20b", "100%", "a\u00a0b", "über/α", "a\u2003%"])
def test_ids(identity: str) -> None:
    assert len(trec_id(identity).split()) == 1
    assert plain_id(trec_id(identity)) == identity


def test_ordinary_ids_stay_as_they_are() -> None:
    assert trec_id("video7020.mp4") == "video7020.mp4"


def test_a_float32_comes_back_bit_for_bit(tmp_path: Path) -> None:
    scores = np.sort(np.random.default_rng(0).normal(size=500).astype(np.float32))[::-1]
    with run_writer(tmp_path / "r", tag="t") as write:
        write("q", [f"d{i}" for i in range(500)], scores.tolist())
    read = np.array(list(read_run(tmp_path / "r")["q"].values()), dtype=np.float32)
    assert np.array_equal(read, scores)


def test_pytrec_eval_reads_them(tmp_path: Path) -> None:
    import pytrec_eval

    write_run(tmp_path / "run.trec", RUN)
    write_trec_qrels(tmp_path / "qrels.trec", QRELS)
    with (tmp_path / "run.trec").open() as run, (tmp_path / "qrels.trec").open() as qrels:
        evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(qrels), {"map"})
        assert evaluator.evaluate(pytrec_eval.parse_run(run))["my%20query"]["map"] == 1.0


@pytest.mark.slow
def test_ranx_reads_them(tmp_path: Path) -> None:
    """In a process of its own, in which ranx runs uncompiled: compiling its dictionaries takes longer."""
    files = [str(tmp_path / "run.trec"), str(tmp_path / "qrels.trec")]
    write_run(tmp_path / "run.trec", RUN)
    write_trec_qrels(tmp_path / "qrels.trec", QRELS)
    program = (
        "import sys; from ranx import Qrels, Run\n"
        "for kind, path in zip((Run, Qrels), sys.argv[1:]):\n"
        "    print(*sorted(kind.from_file(path, kind='trec').keys()))"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    words = [sys.executable, "-c", program, *files]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["my%20query q2"] * 2


@pytest.mark.parametrize("scores", [[0.1, 0.2], [float("nan")], [0.2, float("nan")]])
def test_rising_scores_are_refused_and_nothing_is_written(tmp_path: Path, scores: list[float]) -> None:
    with pytest.raises(RefusedRequest, match=r"query 'q' has the score .* give documents best first"):
        write_run(tmp_path / "r", {"q": {f"d{i}": score for i, score in enumerate(scores)}})
    assert list(tmp_path.iterdir()) == []


def test_faulty_lines_are_listed(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(
        "q Q0 d 1 high t\nq Q0 d d 1 0.5 t\n\nq Q0 e 1 nan t\nq Q0 f 2 0.4 t\nq Q0 f 3 0.3 t\n"
    )
    with pytest.raises(RefusedRequest) as caught:
        read_run(tmp_path / "r")
    assert "r:1: the score is 'high'; it must be a finite number" in str(caught.value)
    assert "r:2: 7 columns; a line is: query Q0 document rank score tag" in str(caught.value)
    assert "r:4: the score is 'nan'; it must be a finite number" in str(caught.value)
    assert "r:6: query 'q' has document 'f' already; keep one line" in str(caught.value)
    (tmp_path / "q").write_text("q 0 d 0.9\n")
    with pytest.raises(RefusedRequest, match=r"the grade is '0.9'; it must be an integer"):
        read_trec_qrels(tmp_path / "q")
    with pytest.raises(RefusedRequest, match="the file is missing"):
        read_run(tmp_path / "none")

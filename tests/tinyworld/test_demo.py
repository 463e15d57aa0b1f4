"""The demo as a newcomer runs it, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vidvec_msg import cli
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.index import VectorIndex
from vidvec_msg.tinyworld.demo import METRICS, demo


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedRequest, match="holds files that no demo made"):
        demo(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(RefusedRequest, match="holds files that no demo made"):
        demo(tmp_path / "thesis.txt")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished demo, and what it printed; in a process of its own, with the command that users type."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    words = [sys.executable, "-m", "vidvec_msg.cli", "demo", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.slow(minutes=4)
@pytest.mark.timeout(1200)
class TestDemo:
    def test_the_summary_has_the_promised_keys_and_says_that_text_alone_did_it(
        self, made: tuple[Path, str]
    ) -> None:
        summary = json.loads((made[0] / "summary.json").read_text())
        assert list(summary) == ["before", "after", "control", "chance", "seconds"]
        for row in ("before", "after", "control", "chance"):
            assert list(summary[row]) == ["t2v", "v2t"]
            assert all(list(values) == METRICS for values in summary[row].values())
        for way in ("t2v", "v2t"):
            hit = {row: summary[row][way]["hit_rate@1"] for row in ("before", "after", "control", "chance")}
            assert hit["after"] >= 0.75
            assert max(hit["before"], hit["control"]) <= 0.15
            assert hit["chance"] == pytest.approx(1 / 32)
        assert all(value >= 0 for value in summary["seconds"].values())
        assert {"render", "fit", "fit_control", "embed", "index", "evaluate", "report"} == set(
            summary["seconds"]
        )

    def test_it_prints_both_directions_and_the_limits(self, made: tuple[Path, str]) -> None:
        printed = made[1]
        assert printed.index("text → video") < printed.index("video → text")
        assert all(metric in printed for metric in METRICS)
        assert "not a model for real videos" in printed

    def test_the_report_is_one_file_with_tables_histograms_and_thumbnails(
        self, made: tuple[Path, str]
    ) -> None:
        page = (made[0] / "report.html").read_text()
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert "https://" not in page
        assert page.count("data:image/jpeg;base64,") >= 20
        assert page.count('class="histogram"') == 6
        assert all(row in page for row in ("before", "after", "control", "chance"))

    def test_the_artefacts_work_on_their_own(
        self, made: tuple[Path, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = made[0]
        assert len(VectorIndex.open(out / "index")) == 256
        assert (out / "fit" / "adapter" / "embedder" / "embedder.json").exists()
        words = ["search", "--index", str(out / "index"), "--json", "--k", "5"]
        assert cli.main([*words, "--text", "Patience outlasts every obstacle."]) == 0
        hits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(hits) == 5
        assert sum("wall_breaks" in hit["id"] for hit in hits) >= 4

    def test_a_second_demo_replaces_the_first(self, made: tuple[Path, str]) -> None:
        from vidvec_msg.tinyworld.demo import _claim

        stale = made[0].parent / "stale"
        stale.mkdir()
        (stale / "demo.log").write_text((made[0] / "demo.log").read_text())
        (stale / "old.txt").write_text("x")
        _claim(stale)
        assert [path.name for path in stale.iterdir()] == ["demo.log"]

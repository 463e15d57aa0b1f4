"""The verb, from an evaluation folder to a reranked one; judged by a fake that a reader can compute."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from retrieval.reranking.judges import Judge, marked

from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats import items as items_module
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.trec import read_run
from vidvec_msg.retrieval import rerank as module
from vidvec_msg.retrieval.compare import compare_runs
from vidvec_msg.retrieval.evaluate import evaluate_collection, read_report
from vidvec_msg.retrieval.fuse import fuse_runs
from vidvec_msg.retrieval.rerank import rerank
from vidvec_msg.retrieval.reranking import second_stage
from vidvec_msg.retrieval.reranking.contract import Group
from vidvec_msg.retrieval.reranking.judgements import Judgements, judge_all

KEYWORD = "fakes:KeywordEmbedder"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """The collection, and an evaluation of each split."""
    root = tmp_path_factory.mktemp("rerank")
    found = {"collection": marked(root / "c")}
    for split in ("test", "dev"):
        found[split] = root / split
        evaluate_collection(
            found["collection"], KEYWORD, found[split], split=split, pool="split", pictures=False
        )
    return found


@pytest.fixture
def judge(monkeypatch):
    """``judge(lift=3)`` is the reranker of whatever spec comes next."""

    def use(**options) -> Judge:
        made = Judge(**options)
        monkeypatch.setattr(module, "load_reranker", lambda _: made)
        monkeypatch.setattr(module, "check_reranker", lambda _: None)
        return made

    return use


def value(section, way, row, metric="map"):
    return section[way]["rows"][row][metric]["value"]


def test_the_judge_s_order_is_the_new_order_in_both_directions(folders, judge, tmp_path, capsys):
    used = judge()
    rerank(folders["test"], "judge", tmp_path / "r", depth=6, pictures=False)
    report = read_report(tmp_path / "r")
    section = report["reranked"]
    for way in ("forward", "reverse"):
        assert value(section, way, "reranked") == 1.0
        assert (
            value(section, way, "single stage")
            == read_report(folders["test"])[way]["metrics"]["map"]["value"]
            < 1
        )
        assert report[way]["metrics"]["map"]["value"] == 1.0
    assert len(set(used.asked)) == len(used.asked)  # no pair twice, though both directions want it
    told = capsys.readouterr().out
    assert "| map |" in told
    assert " | <0.001 |" in told
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Reranked" in page
    assert "<svg xmlns" in page
    assert (tmp_path / "r" / "reliability.svg").read_text().startswith("<svg")


def test_below_the_depth_the_list_is_as_it_was(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "r", depth=2, pictures=False)
    for way in ("forward", "reverse"):
        before = read_run(folders["test"] / "runs" / f"{way}.trec")
        after = read_run(tmp_path / "r" / "runs" / f"{way}.trec")
        assert before.keys() == after.keys()
        for query in before:
            assert list(before[query])[2:] == list(after[query])[2:]
            assert set(list(before[query])[:2]) == set(list(after[query])[:2])
            scores = list(after[query].values())
            assert scores == sorted(scores, reverse=True)


def test_its_scores_are_not_added_up_unless_every_candidate_was_judged(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "top", depth=2, pictures=False)
    rerank(folders["test"], "judge", tmp_path / "whole", depth=18, pictures=False)
    for out, options in (("a", {}), ("b", {"method": "sum", "normalize": "rank"})):
        fuse_runs([folders["test"], tmp_path / "top"], tmp_path / out, pictures=False, **options)
    fuse_runs([folders["test"], tmp_path / "whole"], tmp_path / "c", method="sum", pictures=False)
    told = (
        r"(?s)joins min-max scores, .* --method rrf or --normalize rank.*top: 2 of 18 candidates are judged"
    )
    with pytest.raises(RefusedRequest, match=f"{told} in its forward lists.*2 of 9 .* reverse lists"):
        fuse_runs([folders["test"], tmp_path / "top"], tmp_path / "d", method="max", pictures=False)
    judge(fails=["d-apple-0-0"])
    rerank(folders["test"], "judge", tmp_path / "holes", depth=18, max_failures=99, pictures=False)
    with pytest.raises(RefusedRequest, match="holes: 9 pairs could not be judged"):
        fuse_runs([folders["test"], tmp_path / "holes"], tmp_path / "d", method="mnz", pictures=False)


def test_compare_reads_the_folder(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "r", depth=6, pictures=False)
    rows = compare_runs([folders["test"], tmp_path / "r"])["forward"]["differences"]
    ours = next(row for row in rows if row["metric"] == "map")
    told = read_report(tmp_path / "r")["reranked"]["forward"]["differences"]
    theirs = next(row for row in told if row["metric"] == "map")
    assert ours["difference"] == pytest.approx(theirs["difference"])
    assert ours["p"] == theirs["p"]


def test_a_killed_job_goes_on_and_ends_in_the_same_bytes(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "whole", depth=4, pictures=False)
    command = [
        sys.executable,
        str(Path(__file__).with_name("dying.py")),
        str(folders["test"]),
        str(tmp_path / "r"),
        "3",
    ]
    ended = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended.stderr
    kept = (tmp_path / "r" / "judgements.jsonl").read_bytes()
    assert kept.count(b"\n") == 3
    (tmp_path / "r" / "judgements.jsonl").write_bytes(kept + b'{"reranker": "judge 0.0", "cl')  # torn
    used = judge()
    rerank(folders["test"], "judge", tmp_path / "r", depth=4, pictures=False)
    asked = {tuple(pair) for pair in used.asked}
    assert asked
    for name in ("judgements.jsonl", "runs/forward.trec", "runs/reverse.trec", "rerank.md"):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not asked & {
        (json.loads(line)["clip"], text)
        for line in kept.splitlines()
        for text, *_ in json.loads(line)["judged"]
    }


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT.parent}"}


def test_kept_judgements_serve_another_folder(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "a", depth=4, pictures=False)
    used = judge()
    kept = tmp_path / "a" / "judgements.jsonl"
    rerank(
        folders["test"], "judge", tmp_path / "b", depth=4, score="two-way", judgements=kept, pictures=False
    )
    assert used.asked == []
    deeper = judge()
    rerank(folders["test"], "judge", tmp_path / "c", depth=6, judgements=kept, pictures=False)
    assert deeper.asked
    other = judge(lift=1.0)  # another reranker's judgements are not its own
    rerank(folders["test"], "judge", tmp_path / "d", depth=4, judgements=kept, pictures=False)
    assert len(other.asked) > len(deeper.asked)


def test_clips_that_were_replaced_since_the_evaluation_are_refused(folders, judge, tmp_path):
    root = tmp_path / "c"
    shutil.copytree(folders["collection"], root)
    evaluate_collection(root, KEYWORD, tmp_path / "e", pool="split", pictures=False)
    moved = root.rename(tmp_path / "moved")
    corpus = moved / "corpus.jsonl"
    before = corpus.read_text()
    corpus.write_text(before.replace('"apple apple0"', '"grape apple0"'))
    used = judge()
    told = r"collection .*moved is no longer what .*e was made of \(corpus\): clips or texts were replaced"
    with pytest.raises(RefusedRequest, match=told):
        rerank(tmp_path / "e", "judge", tmp_path / "r", depth=4, collection=moved)
    assert used.asked == []
    assert not (tmp_path / "r").exists()
    corpus.write_text(before.replace('"apple apple0"', '"apple apple0", "transcript": "said since"'))
    rerank(tmp_path / "e", "judge", tmp_path / "r", depth=4, collection=moved, pictures=False)
    assert used.asked


def test_a_judgement_is_of_the_clip_as_it_was(tmp_path, monkeypatch):
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"pixel" * 100_000)
    group = Group(Item("a", video=clip), (Item("t", text="the message"),))

    def asked() -> int:
        with Judgements(tmp_path / "kept.jsonl") as kept:
            return judge_all(Judge(), [group], kept).asked

    assert (asked(), asked()) == (1, 0)
    os.utime(clip, (1, 1))  # a copy of the collection: what was paid for counts there too
    assert asked() == 0
    with monkeypatch.context() as patched:
        patched.setattr(items_module, "_hash_file_ends", None)  # a clip that has not changed is not read
        assert asked() == 0
    clip.write_bytes(b"other" + clip.read_bytes()[5:])
    assert asked() == 1


@pytest.mark.parametrize("torn", [b"", b'{"reranker": "judge 0.0", "cl'])
def test_judgements_that_are_complete_are_read_where_nothing_may_be_written(folders, judge, tmp_path, torn):
    judge()
    rerank(folders["test"], "judge", tmp_path / "a", depth=4, pictures=False)
    kept = tmp_path / "kept" / "judgements.jsonl"
    kept.parent.mkdir()
    before = (tmp_path / "a" / "judgements.jsonl").read_bytes() + torn
    kept.write_bytes(before)
    (kept.parent / f".{kept.name}.writer.lock").mkdir()  # stops root, too, whom no rights stop
    kept.parent.chmod(0o555)
    try:
        rerank(folders["test"], "judge", tmp_path / "b", depth=4, judgements=kept, pictures=False)
        used = judge(lift=1.0)  # another reranker, whose judgements are not there
        with pytest.raises(
            RefusedRequest,
            match=rf"(?s)(\d+) of \1 pairs have no judgement of judge in {kept}, and it cannot be added to .*"
            rf"the folder {kept.parent} .* writable.*a copy of the file elsewhere: --judgements COPY",
        ):
            rerank(folders["test"], "judge", tmp_path / "c", depth=4, judgements=kept, pictures=False)
    finally:
        kept.parent.chmod(0o755)
    assert used.asked == []
    assert kept.read_bytes() == before
    for name in ("runs/forward.trec", "runs/reverse.trec", "rerank.md"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()


def test_one_job_at_a_time_adds_to_a_file_of_judgements(folders, judge, tmp_path):
    """A second one would take the first one's last line, half written, for that of a killed process."""
    shared = tmp_path / "shared" / "kept.jsonl"
    judge()
    options = {"depth": 4, "judgements": shared, "pictures": False}
    holding = (
        "import sys; from pathlib import Path; from vidvec_msg.runs import only_writer\n"
        "with only_writer(Path(sys.argv[1]), what='it', file='kept.jsonl'):\n"
        "    print('held', flush=True); input()"
    )
    shared.parent.mkdir()
    command = [sys.executable, "-c", holding, str(shared.parent)]
    with subprocess.Popen(
        command, cwd=ROOT, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(
            RefusedRequest,
            match=rf"writing into judgements .*kept.jsonl; .*--judgements.*\(process {other.pid} ",
        ):
            rerank(folders["test"], "judge", tmp_path / "a", **options)
        rerank(folders["test"], "judge", tmp_path / "b", depth=4, pictures=False)  # into its own file
        other.communicate("\n")
    rerank(folders["test"], "judge", tmp_path / "a", **options)
    assert shared.read_bytes() == (tmp_path / "b" / "judgements.jsonl").read_bytes()


def test_temperature_weight_and_reliability_come_from_the_validation_queries(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "r", depth=6, validation=folders["dev"], pictures=False)
    section = read_report(tmp_path / "r")["reranked"]
    for way in ("forward", "reverse"):
        assert list(section[way]["rows"]) == ["single stage", "reranked", "fused"]
        assert section[way]["fusion"]["weight"] > 0
        assert value(section, way, "fused") == 1.0
    found = section["calibration"]
    assert "Temperature 0.02 (the end of its range), fitted" in (tmp_path / "r" / "rerank.md").read_text()
    assert found["after"]["log_loss"] < found["before"]["log_loss"]
    assert found["after"]["ece"] < found["before"]["ece"]
    assert found["validation_pairs"] > 0


def test_a_prior_of_the_query_helps_where_a_clip_asks(folders, judge, tmp_path):
    """Every text with an apple is said Yes to, so apples come first for clips of other fruit."""
    judge(lift=5.0)
    rerank(folders["test"], "judge", tmp_path / "r", depth=9, prior="query", pictures=False)
    section = read_report(tmp_path / "r")["reranked"]
    assert value(section, "reverse", "reranked") < 1.0
    assert value(section, "reverse", "less the prior") == 1.0
    assert value(section, "forward", "reranked") == value(section, "forward", "less the prior") == 1.0


def test_the_fingerprint_is_of_what_ranks_and_not_of_what_was_measured(folders, judge, tmp_path):
    """fuse and rerank take a reranked run of other queries for one of the same models by it."""

    def fingerprint(name: str, **options: object) -> str:
        rerank(folders[options.pop("of", "test")], "judge", tmp_path / name, pictures=False, **options)
        return str(read_report(tmp_path / name)["model"]["fingerprint"])

    judge()
    plain = fingerprint("a", depth=4)
    assert fingerprint("b", depth=4, of="dev") == plain
    others = [
        fingerprint("c", depth=3),
        fingerprint("d", depth=4, score="two-way"),
        fingerprint("e", depth=4, validation=folders["dev"]),
        read_report(folders["test"])["model"]["fingerprint"],
    ]
    assert len({plain, *others}) == 5
    section = read_report(tmp_path / "e")["reranked"]
    decided = module._decides(section)
    section["calibration"]["before"]["brier"] = section["calibration"]["after"]["ece"] = 0.5
    section["forward"]["fusion"]["tried"] = {}
    assert module._decides(section) == decided
    section["forward"]["fusion"]["weight"] = 0.7
    assert module._decides(section) != decided


def test_pairs_that_fail_are_listed_and_stand_behind_the_judged(folders, judge, tmp_path):
    judge(fails=["d-apple-0-0"])
    with pytest.raises(TooManyFailures, match=r"6 of \d+ pairs could not be judged and 0 may"):
        rerank(folders["test"], "judge", tmp_path / "r", depth=6, pictures=False)
    rows = [json.loads(line) for line in (tmp_path / "r" / "failures.jsonl").read_text().splitlines()]
    assert {row["clip"] for row in rows} == {"d-apple-0-0"}
    assert rows[0]["reason"] == "cannot be judged"
    run = read_run(tmp_path / "r" / "runs" / "forward.trec")
    for query, listed in run.items():
        if "apple" in query:
            assert list(listed)[5] == "d-apple-0-0"
    judge(fails=["d-apple-0-0"])
    rerank(folders["test"], "judge", tmp_path / "s", depth=6, max_failures=6, pictures=False)


def test_a_run_file_of_one_direction(folders, judge, tmp_path, capsys):
    judge()
    run = folders["test"] / "runs" / "reverse.trec"
    rerank(
        run,
        "judge",
        tmp_path / "r",
        depth=6,
        collection=folders["collection"],
        direction="reverse",
        json=True,
    )
    report = json.loads(capsys.readouterr().out)
    assert value(report["reranked"], "reverse", "reranked") == 1.0
    assert "forward" not in report["reranked"]
    with pytest.raises(RefusedRequest, match="is no evaluation of both directions"):
        read_report(tmp_path / "r")
    assert read_run(tmp_path / "r" / "runs" / "reverse.trec").keys() == read_run(run).keys()


def others(folders, tmp_path):
    """What may be given for a validation."""
    evaluate_collection(
        folders["collection"], "fakes:KeywordEmbedder?bias=1.0", tmp_path / "biased", split="dev",
        pool="split", pictures=False,
    )  # fmt: skip
    return {**folders, "file": folders["dev"] / "runs" / "forward.trec", "other": tmp_path / "biased"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"depth": 100, "short": True},
            r"depth is 100, and the forward run lists 3 of 18 candidates .* smaller --depth",
        ),
        ({"short": True}, r"depth is 100 \(zero-shot\)"),
        ({"depth": 0}, "at least 1 candidate"),
        ({"depth": "deep"}, "a number of candidates, or zero-shot or fitted"),
        ({"score": "best"}, "score is 'best'; it is one of full, two-way, log-odds"),
        ({"prior": "blank"}, "prior is 'blank'"),
        ({"validation": "test"}, "must be chosen on queries that the test does not have"),
        ({"max_failures": -1}, "max_failures is -1"),
        ({"max_failures": 1.5}, r"max_failures is 1.5; it must be a count \(0, 1, 2, …\) or a share below 1"),
        ({"validation": "file"}, "needs evaluation folders on both sides"),
        ({"validation": "other"}, "is of another embedder than"),
        ({"run": "nothing"}, "there is no"),
        ({"run": "file"}, "say with --collection"),
    ],
)
def test_requests_that_are_refused(options, message, folders, judge, tmp_path):
    used = judge()
    options = dict(options)
    run = folders["test"]
    if options.pop("short", False):
        run = tmp_path / "short"
        evaluate_collection(
            folders["collection"], KEYWORD, run, split="test", pool="split", depth=3, pictures=False
        )
    named = options.pop("run", None)
    if named is not None:
        run = folders["test"] / "runs" / "forward.trec" if named == "file" else tmp_path / named
    if "validation" in options:
        options["validation"] = others(folders, tmp_path)[options["validation"]]
    with pytest.raises(RefusedRequest, match=message):
        rerank(run, "judge", tmp_path / "r", **options)
    assert used.asked == []
    assert not (tmp_path / "r").exists()


def test_another_request_for_the_same_folder_is_refused(folders, judge, tmp_path):
    judge()
    rerank(folders["test"], "judge", tmp_path / "r", depth=3, pictures=False)
    with pytest.raises(RefusedRequest, match=r"depth was 3 and is 4 now"):
        rerank(folders["test"], "judge", tmp_path / "r", depth=4, pictures=False)


def test_clips_that_the_reranker_does_not_read_are_refused(folders, judge, tmp_path, monkeypatch):
    used = judge()
    monkeypatch.setattr(used, "modalities", ("video",))
    with pytest.raises(RefusedRequest, match=r"judge reads video, and clips of this collection are text"):
        rerank(folders["test"], "judge", tmp_path / "r", depth=3)


def test_evaluate_reranks_beside_its_own_numbers(folders, tmp_path, monkeypatch):
    used = Judge()
    monkeypatch.setattr(second_stage, "load_reranker", lambda _: used)
    monkeypatch.setattr(second_stage, "check_reranker", lambda _: None)
    done = evaluate_collection(
        folders["collection"], KEYWORD, tmp_path / "e", split="test", pool="split", pictures=False,
        rerank="judge", rerank_depth=6, rerank_validation="dev",
    )  # fmt: skip
    section = done.report["reranked"]
    for way in ("forward", "reverse"):
        assert list(section[way]["rows"]) == ["single stage", "reranked", "fused"]
        assert value(section, way, "single stage") == done.report[way]["metrics"]["map"]["value"]
        assert value(section, way, "reranked") == 1.0
        assert {row["row"] for row in section[way]["differences"]} == {"reranked", "fused"}
    # the lists of this folder are the embedder's, of one scale; those of a reranked one are not
    evaluate_collection(folders["collection"], KEYWORD, tmp_path / "f", pool="split", pictures=False)
    fuse_runs([tmp_path / "e", tmp_path / "f"], tmp_path / "g", method="sum", pictures=False)
    assert "## Reranked" in (tmp_path / "e" / "report.md").read_text()
    assert "Reranked" in (tmp_path / "e" / "report.html").read_text()
    assert (tmp_path / "e" / "reranked" / "judgements.jsonl").is_file()
    done.refuse_too_many_failures()


def test_evaluate_does_not_hide_pairs_that_failed(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(second_stage, "load_reranker", lambda _: Judge(fails=["d-apple-0-0"]))
    monkeypatch.setattr(second_stage, "check_reranker", lambda _: None)
    for allowed, out in ((0, tmp_path / "e"), (6, tmp_path / "f")):
        done = evaluate_collection(
            folders["collection"], KEYWORD, out, split="test", pool="split", pictures=False, rerank="judge",
            rerank_depth=6, max_failures=allowed,
        )  # fmt: skip
        if allowed:
            done.refuse_too_many_failures()
        else:
            with pytest.raises(TooManyFailures, match=r"6 of \d+ pairs could not be judged and 0 may"):
                done.refuse_too_many_failures()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rerank": "tinyworld", "rerank_depth": 30, "depth": 20},
            "rerank_depth is 30 and the lists have 20",
        ),
        ({"rerank": "tinyworld", "rerank_validation": "test"}, "queries that the test does not have"),
        ({"rerank_validation": "dev"}, "none is given: --rerank"),
        ({"rerank": "tinywrld"}, "no reranker 'tinywrld'"),
    ],
)
def test_evaluate_refuses_before_it_embeds(options, message, folders, tmp_path):
    with pytest.raises(RefusedRequest, match=message):
        evaluate_collection(
            folders["collection"], KEYWORD, tmp_path / "e", split="test", pool="split", **options
        )
    assert not (tmp_path / "e").exists()

"""The verb: from a collection and an embedder to the evaluation folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval
import yaml
from fakes import KEYWORDS, KeywordEmbedder

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval import evaluate as module
from vidvec_msg.retrieval.evaluate import evaluate, read_report
from vidvec_msg.retrieval.evaluation import directions
from vidvec_msg.retrieval.evaluation.sides import kind_of

KEYWORD = "fakes:KeywordEmbedder"


class RoleEmbedder(KeywordEmbedder):
    """Worded by role: as a query, an item's dimensions are turned around."""

    def __init__(self) -> None:
        super().__init__()
        self.card = EmbedderCard(
            name="roles", dim=len(KEYWORDS), weights="r", role_prompts={"query": "find: "}
        )

    def encode(self, items: "list[Item]", *, role: Role) -> Vectors:  # type: ignore[override]
        vectors = super().encode(items, role=role)
        return vectors[:, ::-1].copy() if role == "query" else vectors


def collection(root: Path, *, broken: bool = False) -> Path:
    """Four messages, two documents each; the dev split names one more."""
    words = KEYWORDS[:5]
    corpus: list[dict[str, Any]] = [
        {"_id": f"d {word} {i}", "text": f"{word} " * (i + 1) + KEYWORDS[5 + i], "groups": {"part": str(i)}}
        for word in words
        for i in range(2)
    ]
    queries = [{"_id": f"q-{word}", "text": f"the {word}", "groups": {"topic": word[0]}} for word in words]
    qrels = {f"q-{word}": {f"d {word} {i}": 1 + i for i in range(2)} for word in words}
    if broken:
        corpus[0]["text"] = "no word that counts"
        queries[1]["text"] = "nor here"
    splits = {"test": dict(list(qrels.items())[:4]), "dev": dict(list(qrels.items())[4:])}
    write_collection(root, corpus=corpus, queries=queries, qrels=splits)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return collection(tmp_path / "collection")


def test_the_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e")
    files = {
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.is_file() and "vectors" not in path.parts
    }
    assert files == {
        "config.yaml", "mteb/forward.json", "mteb/reverse.json", "per_query.parquet", "qrels/forward.trec",
        "qrels/reverse.trec", "report.html", "report.json", "report.md", "runs/forward.trec",
        "runs/reverse.trec",
    }  # fmt: skip
    assert (out / "vectors/corpus/manifest.json").is_file()
    assert (out / "vectors/queries/manifest.json").is_file()
    printed = capsys.readouterr().out
    assert "## text queries → text corpus" in printed
    assert "| recall@10 |" in printed
    assert "\x1b" not in printed  # plain when it is not a terminal


def test_report_json_has_its_golden_structure(folder: Path, tmp_path: Path) -> None:
    report = read_report(evaluate(folder, KEYWORD, tmp_path / "e", metrics=["recall@1", "mrr"]))
    assert set(report) >= {
        "format", "collection", "embedder", "split", "metrics", "pool", "exclude_self", "unreachable",
        "depth", "seed", "model", "failed", "forward", "reverse", "versions", "data", "interval", "diverging",
        "dual_softmax", "chance_simulated", "confusion",
    }  # fmt: skip
    assert set(report["model"]) == {"name", "dim", "base_model", "fingerprint"}
    for name, queries, candidates in (("forward", 4, 10), ("reverse", 8, 4)):
        direction = report[name]
        assert set(direction) == {
            "label", "queries", "candidates", "skipped", "unreachable", "tied_queries", "tied_at_top",
            "warnings", "metrics", "groups", "separation", "confusion",
        }  # fmt: skip
        assert (direction["queries"], direction["candidates"], direction["skipped"]) == (
            queries,
            candidates,
            [],
        )
        assert list(direction["metrics"]) == ["recall@1", "mrr"]
        for score in direction["metrics"].values():
            assert set(score) == {"value", "low", "high", "chance"}
            assert 0 <= score["low"] <= score["value"] <= score["high"] <= 1
            assert 0 < score["chance"] < score["value"]
    assert report["forward"]["metrics"]["mrr"]["value"] == 1
    assert report["forward"]["metrics"]["recall@1"]["value"] == 0.5
    assert set(report["reverse"]["groups"]) == {"part", "topic"}


def test_trec_files_give_the_same_numbers_in_trec_eval(folder: Path, tmp_path: Path) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e", metrics=["map", "ndcg@10", "mrr"], depth=3)
    report = read_report(out)
    for name in ("forward", "reverse"):
        with (out / f"runs/{name}.trec").open() as run, (out / f"qrels/{name}.trec").open() as qrels:
            evaluator = pytrec_eval.RelevanceEvaluator(
                pytrec_eval.parse_qrel(qrels), {"map", "ndcg_cut.10", "recip_rank"}
            )
            values = evaluator.evaluate(pytrec_eval.parse_run(run)).values()
        assert len(values) == report[name]["queries"]
        for ours, theirs in (("map", "map"), ("ndcg@10", "ndcg_cut_10"), ("mrr", "recip_rank")):
            mean = np.mean([value[theirs] for value in values])
            assert report[name]["metrics"][ours]["value"] == pytest.approx(mean)


def test_per_query_table(folder: Path, tmp_path: Path) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e")
    table = pq.read_table(out / "per_query.parquet").to_pylist()
    assert len(table) == 4 + 8
    first = table[0]
    assert (first["direction"], first["query"], first["positives"], first["best_rank"]) == (
        "forward",
        "q-apple",
        2,
        1,
    )
    assert first["gold_ids"] == ["d apple 1", "d apple 0"]  # best grade first
    assert sorted(first["gold_ranks"]) == [1, 2]
    assert len(first["top_ids"]) == len(first["top_scores"]) == 10
    assert first["top_ids"][first["gold_ranks"][0] - 1] == "d apple 1"
    assert first["gold_scores"][0] == first["top_scores"][first["gold_ranks"][0] - 1]
    assert first["gap"] == pytest.approx(first["top_scores"][0] - first["top_scores"][2])
    assert (first["group:topic"], first["group:part"]) == ("a", None)
    assert (table[4]["query"], table[4]["group:part"]) == ("d apple 0", "0")
    report = read_report(out)
    for name in ("forward", "reverse"):
        mean = np.mean([row["map"] for row in table if row["direction"] == name])
        assert report[name]["metrics"]["map"]["value"] == pytest.approx(mean)


def test_the_result_files_are_mtebs(folder: Path, tmp_path: Path) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e", metrics=["recall@1", "ndcg@10", "map"])
    report = read_report(out)
    for name in ("forward", "reverse"):
        result = json.loads((out / f"mteb/{name}.json").read_text())
        assert set(result) == {
            "dataset_revision", "task_name", "mteb_version", "scores", "evaluation_time", "kg_co2_emissions",
        }  # fmt: skip
        assert (result["task_name"], result["mteb_version"]) == (f"collection-{name}", None)
        (scores,) = result["scores"]["test"]
        assert scores["recall_at_1"] == report[name]["metrics"]["recall@1"]["value"]
        assert scores["main_score"] == scores["ndcg_at_10"] == report[name]["metrics"]["ndcg@10"]["value"]
        assert (scores["hf_subset"], scores["languages"]) == ("default", [])


def test_json_prints_the_report_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e", json=True)
    assert json.loads(capsys.readouterr().out) == read_report(out)


def test_the_resolved_config_reproduces_the_folder(folder: Path, tmp_path: Path) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e", pool="split", seed=3)
    config = yaml.safe_load((out / "config.yaml").read_text())
    config["out"] = str(tmp_path / "again")
    again = evaluate(**{**config, "collection": Path(config["collection"]), "out": Path(config["out"])})
    for file in ("report.json", "report.md", "report.html", "runs/forward.trec", "per_query.parquet"):
        assert (again / file).read_bytes() == (out / file).read_bytes()


def test_options_have_effects(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(name: str, **options: Any) -> dict[str, Any]:
        return read_report(evaluate(folder, KEYWORD, tmp_path / name, **options))

    assert report("split", pool="split")["forward"]["candidates"] == 8
    assert report("dev", split="dev")["forward"]["queries"] == 1
    report("plain")
    assert len((tmp_path / "plain/runs/forward.trec").read_text().splitlines()) == 40
    report("depth", depth=2)
    assert len((tmp_path / "depth/runs/forward.trec").read_text().splitlines()) == 8
    seeds = []
    monkeypatch.setattr(directions, "bootstrap_intervals", lambda _, *, seed, **__: seeds.append(seed) or {})
    report("seed", seed=9)
    assert seeds == [9, 9]


def test_interrupted_it_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = evaluate(folder, KEYWORD, tmp_path / "whole")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "score_sides", stop)
        with pytest.raises(KeyboardInterrupt):
            evaluate(folder, KEYWORD, tmp_path / "e")
    with pytest.raises(
        RefusedRequest, match=r"report.json is missing. Run `vidvec-msg evaluate` \(again: it resumes\)"
    ):
        read_report(tmp_path / "e")
    stamp = (tmp_path / "e/vectors/corpus/manifest.json").stat().st_mtime_ns
    resumed = evaluate(folder, KEYWORD, tmp_path / "e")
    assert (tmp_path / "e/vectors/corpus/manifest.json").stat().st_mtime_ns == stamp
    assert (resumed / "report.json").read_bytes() == (undisturbed / "report.json").read_bytes()


def test_another_evaluation_in_the_same_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e")
    before = (out / "report.json").read_bytes()
    with pytest.raises(RefusedRequest) as caught:
        evaluate(folder, KEYWORD, out, split="dev", seed=4)
    message = str(caught.value)
    assert "holds another evaluation; give a new folder, or the same options: 2 problems" in message
    assert "split was 'test' and is 'dev' now" in message
    assert "seed was 0 and is 4 now" in message
    assert (out / "report.json").read_bytes() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(RefusedRequest, match="already holds files"):
        evaluate(folder, KEYWORD, tmp_path / "full")


def test_refused_before_a_model_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(spec: str) -> None:
        raise AssertionError("loaded a model for a request that cannot be carried out")

    monkeypatch.setattr("vidvec_msg.embedders.load.load_embedder", never)
    out = tmp_path / "e"
    for options, message in (
        ({"split": "tset"}, "split 'tset' does not exist; the splits here are: dev, test"),
        ({"metrics": ["recal@1"]}, r"'recal@1' is not a metric \(did you mean 'recall'"),
        ({"depth": 0}, "depth is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
    ):
        with pytest.raises(RefusedRequest, match=message):
            evaluate(folder, KEYWORD, out, **options)  # type: ignore[arg-type]
    with pytest.raises(RefusedRequest, match="does not exist"):
        evaluate(tmp_path / "nowhere", KEYWORD, out)
    assert not out.exists()


def test_an_unknown_embedder_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest):
        evaluate(folder, "nowhere:Nothing", tmp_path / "e")
    assert not (tmp_path / "e").exists()


def test_roles_are_embedded_apart_where_they_differ(folder: Path, tmp_path: Path) -> None:
    spec = f"{__name__}:RoleEmbedder"
    import sys

    sys.modules.setdefault(__name__, sys.modules[RoleEmbedder.__module__])
    out = evaluate(folder, spec, tmp_path / "e")
    names = {path.parent.name for path in (out / "vectors").glob("*/manifest.json")}
    assert names == {"corpus", "queries", "corpus_as_queries", "queries_as_documents"}
    # both directions compare a turned query with an unturned document, so neither is better off
    report = read_report(out)
    assert report["forward"]["metrics"]["mrr"]["value"] < 1
    assert report["reverse"]["metrics"]["mrr"]["value"] < 1


def test_failed_items_are_reported_and_set_the_exit(tmp_path: Path) -> None:
    broken = collection(tmp_path / "broken", broken=True)
    with pytest.raises(TooManyFailures) as caught:
        evaluate(broken, KEYWORD, tmp_path / "e")
    assert "2 of 14 items have no vector and 0 may (max_failures)" in str(caught.value)
    report = read_report(tmp_path / "e")
    assert report["failed"] == {"corpus": 1, "queries": 1}
    assert report["forward"]["skipped"] == [{"id": "q-bridge", "reason": "no keyword in it"}]
    assert report["forward"]["unreachable"] == 1
    assert [row["id"] for row in report["reverse"]["skipped"]] == ["d apple 0"]
    allowed = evaluate(broken, KEYWORD, tmp_path / "allowed", max_failures=2)
    assert read_report(allowed)["forward"]["metrics"] == report["forward"]["metrics"]


def test_a_collapsed_embedder_is_called_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "flat.yaml"
    spec.write_text("class_path: fakes.KeywordEmbedder\ninit_args:\n  bias: 1.0e+9\n")
    report = read_report(evaluate(folder, str(spec), tmp_path / "e"))
    assert report["forward"]["tied_at_top"] == 4
    assert "tie at rank 1: the embedder may have collapsed" in capsys.readouterr().out
    assert report["forward"]["metrics"]["hit_rate@1"]["value"] < 0.5


def test_labels() -> None:
    text, clip = Item("a", text="x"), Item("b", video=Path("x.mp4"))
    assert kind_of([text, clip, clip]) == "video/text"
    assert kind_of([text]) == "text"


def test_a_report_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"format": 99}')
    with pytest.raises(RefusedRequest, match="has format 99, this version reads 1; evaluate again"):
        read_report(tmp_path)


def test_what_cannot_be_ranked_is_null_in_the_table(tmp_path: Path) -> None:
    broken = collection(tmp_path / "broken", broken=True)
    evaluate(broken, KEYWORD, tmp_path / "e", max_failures=2)
    table = pq.read_table(tmp_path / "e/per_query.parquet").to_pylist()
    row = next(row for row in table if row["query"] == "q-apple")
    assert row["gold_ids"] == ["d apple 1", "d apple 0"]
    assert row["gold_ranks"][1] is row["gold_scores"][1] is None
    assert row["gap"] > 0


def test_confusions_and_diverging_pairs_are_in_the_report(folder: Path, tmp_path: Path) -> None:
    out = evaluate(folder, KEYWORD, tmp_path / "e")
    report = read_report(out)
    topics = report["reverse"]["confusion"]["topics"]
    assert topics["rows"] == ["a", "b", "c", "d"]
    assert (topics["right"], topics["total"]) == (8, 8)
    # a query's second document is second of ten; from it, the query is first of four
    assert [(p["forward"], p["reverse"], p["gap"]) for p in report["diverging"]] == 4 * [(2, 1, 0.1111)]
    assert report["forward"]["separation"]["auc"] == pytest.approx(1.0)
    html = (out / "report.html").read_text()
    for heading in ("What is taken for what", "How scores separate"):
        assert heading in html
    by_part = read_report(evaluate(folder, KEYWORD, tmp_path / "part", confusion="part"))
    assert by_part["reverse"]["confusion"]["topics"]["rows"] == ["0", "1"]
    none = read_report(evaluate(folder, KEYWORD, tmp_path / "none", confusion="colour"))
    assert none["forward"]["confusion"] is None


def test_ranks_are_printed_as_ranks(folder: Path, tmp_path: Path) -> None:
    report = read_report(evaluate(folder, KEYWORD, tmp_path / "e", metrics=["mean_rank", "median_rank"]))
    assert report["chance_simulated"] == ["median_rank"]
    assert report["forward"]["metrics"]["mean_rank"] == {"value": 1, "low": 1, "high": 1, "chance": 11 / 3}
    assert "| median_rank | 1.0 | 1.0 – 1.0 |" in (tmp_path / "e/report.md").read_text()


def weights_in_files(monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[str]:
    """Makes the keyword embedder count as one with weights of its own; what is encoded is noted."""
    from vidvec_msg.retrieval.evaluation import vector_cache

    encoded: list[str] = []
    encode = KeywordEmbedder.encode

    def noted(self: KeywordEmbedder, items: "list[Item]", *, role: Role) -> Vectors:
        encoded.extend(item.id for item in items)
        return encode(self, items, role=role)

    monkeypatch.setattr(KeywordEmbedder, "encode", noted)
    monkeypatch.setattr(vector_cache, "identified_by_weights", lambda *_: True)
    monkeypatch.setattr(vector_cache, "user_folder", lambda: cache)
    return encoded


def test_a_second_evaluation_embeds_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = weights_in_files(monkeypatch, tmp_path / "cache")
    first = read_report(evaluate(folder, KEYWORD, tmp_path / "first"))
    assert len(encoded) == 4 + 10
    encoded.clear()
    other = evaluate(
        folder, KEYWORD, tmp_path / "other", metrics=["mrr@3"], pool="split", depth=5, interval="bca"
    )
    assert encoded == []
    assert read_report(other)["reverse"]["candidates"] == 4
    again = read_report(evaluate(folder, KEYWORD, tmp_path / "again"))
    assert again == first
    evaluate(folder, KEYWORD, tmp_path / "dev", split="dev")
    assert encoded == ["q-engine"]  # another split has another query, and the same corpus
    encoded.clear()
    evaluate(folder, KEYWORD, tmp_path / "without", cache="none")
    assert len(encoded) == 14
    evaluate(folder, KEYWORD, tmp_path / "mine", cache=str(tmp_path / "mine_too"))
    assert len(encoded) == 28
    assert list((tmp_path / "mine_too").rglob("*.npy"))


def test_another_text_or_checkpoint_is_embedded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = weights_in_files(monkeypatch, tmp_path / "cache")
    evaluate(folder, KEYWORD, tmp_path / "first")
    encoded.clear()
    text = (folder / "queries.jsonl").read_text().replace("the dog", "a dog")
    (folder / "queries.jsonl").write_text(text)
    evaluate(folder, KEYWORD, tmp_path / "reworded")
    assert encoded == ["q-dog"]
    encoded.clear()
    spec = tmp_path / "other.yaml"
    spec.write_text("class_path: fakes.KeywordEmbedder\ninit_args:\n  bias: 0.5\n")
    evaluate(folder, str(spec), tmp_path / "checkpoint")
    assert len(encoded) == 14


def test_dual_softmax_is_a_second_number(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = read_report(evaluate(folder, KEYWORD, tmp_path / "plain"))
    out = evaluate(folder, KEYWORD, tmp_path / "e", dual_softmax="dev")
    report = read_report(out)
    assert report["forward"] == plain["forward"]  # the raw numbers stay as they are
    found = report["dual_softmax"]
    assert "sees the whole query set" in found["note"]
    assert (found["validation"], found["chosen_by"]) == ("dev", "map")
    for way in ("forward", "reverse"):
        assert set(found[way]["metrics"]) == set(report[way]["metrics"])
        assert 0 < found[way]["temperature"] <= 1
        assert f"{found[way]['temperature']:g}" in found[way]["validation"]
    assert found["forward"]["validation_queries"] == 1
    assert plain["dual_softmax"] is None
    assert "## With dual softmax" in capsys.readouterr().out
    assert "With dual softmax" in (out / "report.html").read_text()
    elsewhere = collection(tmp_path / "elsewhere")
    for side in ("corpus", "queries"):  # other texts
        path = elsewhere / f"{side}.jsonl"
        path.write_text(path.read_text().replace('"text": "', '"text": "there: '))
    other = read_report(evaluate(folder, KEYWORD, tmp_path / "o", dual_softmax=f"{elsewhere}:test"))
    assert other["dual_softmax"]["forward"]["validation_queries"] == 4


def test_the_corpus_is_embedded_once_for_both_splits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = weights_in_files(monkeypatch, tmp_path / "cache")
    evaluate(folder, KEYWORD, tmp_path / "e", dual_softmax="dev", cache="none")
    assert len(encoded) == len(set(encoded)) == 15


def test_dual_softmax_is_refused_without_other_queries(folder: Path, tmp_path: Path) -> None:
    for named, message in (
        ("test", "must be chosen on queries that the test does not have"),
        ("nowhere", "split 'nowhere' does not exist"),
        (f"{collection(tmp_path / 'copy')}:test", "4 queries hold what queries of the test hold: 'q-apple'"),
        ("folder:", "a split of the collection, or FOLDER:SPLIT; given was 'folder:'"),
    ):
        with pytest.raises(RefusedRequest, match=message):
            evaluate(folder, KEYWORD, tmp_path / "e", dual_softmax=named)
    assert (
        main(["evaluate", "--collection", str(folder), "--embedder", KEYWORD, "--out", "e", "--dual_softmax"])
        == 2
    )
    assert not (tmp_path / "e").exists()

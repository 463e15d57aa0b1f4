"""Fused lists: worked out by hand, and equal to sums over dictionaries for any lists."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.trec import write_run
from vidvec_msg.retrieval.evaluation.ranked import Options, rank_lists
from vidvec_msg.retrieval.evaluation.ranking import ABSENT, Gold, tie_order
from vidvec_msg.retrieval.fusing import lists as module
from vidvec_msg.retrieval.fusing.lists import Lists, fused_scores, read_lists, refuse_unequal_lists
from vidvec_msg.retrieval.fusing.recipe import Method, Normalize, Recipe

IDS = ("a", "b", "c", "d", "e")

Scored = Mapping[str, Mapping[str, float]]


def lists(tmp_path: Path, *runs: Scored, ids: Sequence[str] = IDS) -> list[Lists]:
    found = []
    for number, run in enumerate(runs):
        path = tmp_path / f"{number}.trec"
        write_run(path, {q: dict(sorted(one.items(), key=lambda pair: -pair[1])) for q, one in run.items()})
        found.append(read_lists(path, f"run {number}", ids))
    return found


def fused(
    runs: Sequence[Lists], recipe: Recipe, query: str = "q", ids: Sequence[str] = IDS
) -> dict[str, float]:
    """Id → score of one query's fused list, without what no list has."""
    blocks = list(fused_scores(runs, [query], ids, recipe))
    row, order = blocks[0][0], tie_order(ids)
    return {ids[order[place]]: float(value) for place, value in enumerate(row) if value != ABSENT}


def ranking(runs: Sequence[Lists], recipe: Recipe, query: str = "q", ids: Sequence[str] = IDS) -> list[str]:
    """The fused list as it is written to a run file."""
    written: dict[str, list[str]] = {}
    gold = Gold.of({query: {ids[0]: 1}}, [query], ids)
    blocks = fused_scores(runs, [query], ids, recipe)
    rank_lists(
        blocks, [query], ids, gold, Options(["map"]),
        lambda name, documents, _: written.update({name: list(documents)}),
    )  # fmt: skip
    return written[query]


def test_reciprocal_ranks_by_hand(tmp_path: Path) -> None:
    runs = lists(tmp_path, {"q": {"a": 0.9, "b": 0.8, "c": 0.1}}, {"q": {"c": 7.0, "a": 6.0, "d": 5.0}})
    found = fused(runs, Recipe("rrf"))
    expected = {"a": 1 / 61 + 1 / 62, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 63}
    assert found == pytest.approx(expected, rel=1e-6)
    assert ranking(runs, Recipe("rrf")) == ["a", "c", "b", "d"]  # e is in no list
    assert fused(runs, Recipe("rrf", k=1)) == pytest.approx(
        {"a": 1 / 2 + 1 / 3, "b": 1 / 3, "c": 1 / 4 + 1 / 2, "d": 1 / 4}, rel=1e-6
    )


def test_ties_within_a_list_and_after_fusion_go_by_id_descending(tmp_path: Path) -> None:
    within = lists(tmp_path, {"q": {"a": 0.5, "c": 0.5, "b": 0.5}})
    assert [IDS[column] for column in within[0].of["q"][0]] == ["c", "b", "a"]
    assert fused(within, Recipe("rrf")) == pytest.approx({"c": 1 / 61, "b": 1 / 62, "a": 1 / 63}, rel=1e-6)
    turned = lists(tmp_path, {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 2.0, "a": 1.0}}, {"q": {"c": 9.0}})
    # 1/61 + 1/62 twice, and 1/61: the first two are equal whichever run comes first
    assert ranking(turned, Recipe("rrf")) == ["b", "a", "c"]
    assert ranking(turned[::-1], Recipe("rrf")) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("method", "normalize", "weights", "expected"),
    [
        ("sum", "min-max", None, {"a": 1 + 0.5, "b": 0.5, "c": 0 + 1, "d": 0}),
        ("sum", "min-max", (0.8, 0.2), {"a": 0.8 + 0.1, "b": 0.4, "c": 0.2, "d": 0}),
        ("sum", "min-max", (2, 1), {"a": 2 + 0.5, "b": 1, "c": 1, "d": 0}),
        ("mnz", "min-max", None, {"a": 2 * 1.5, "b": 0.5, "c": 2 * 1, "d": 0}),
        ("max", "min-max", None, {"a": 1, "b": 0.5, "c": 1, "d": 0}),
        ("sum", "sum", None, {"a": 2 / 3 + 1 / 3, "b": 1 / 3, "c": 2 / 3, "d": 0}),
        ("sum", "rank", None, {"a": 1 + 2 / 3, "b": 2 / 3, "c": 1 / 3 + 1, "d": 1 / 3}),
    ],
)
def test_scores_by_hand(
    tmp_path: Path,
    method: Method,
    normalize: Normalize,
    weights: tuple[float, ...],
    expected: dict[str, float],
) -> None:
    # of 0.4, 0.3, 0.2 and of 30, 20, 10
    runs = lists(tmp_path, {"q": {"a": 0.4, "b": 0.3, "c": 0.2}}, {"q": {"c": 30, "a": 20, "d": 10}})
    assert fused(runs, Recipe(method, normalize, weights)) == pytest.approx(expected, abs=1e-6)


def test_a_query_or_a_list_that_a_run_lacks_counts_nothing(tmp_path: Path) -> None:
    runs = lists(tmp_path, {"q": {"a": 3.0, "b": 1.0}}, {"other": {"b": 1.0}})
    assert fused(runs, Recipe("rrf")) == pytest.approx({"a": 1 / 61, "b": 1 / 62}, rel=1e-6)
    assert fused(runs, Recipe("sum", "min-max", (0.1, 0.9))) == pytest.approx({"a": 0.1, "b": 0.0}, abs=1e-6)
    assert fused(runs, Recipe("rrf"), query="nowhere") == {}


def test_unequal_lists_are_refused_for_zmuv(tmp_path: Path) -> None:
    equal = lists(tmp_path, {"q": {"a": 3.0, "b": 1.0}}, {"q": {"b": 3.0, "a": 2.0}})
    refuse_unequal_lists(equal)
    assert fused(equal, Recipe("sum", "zmuv")) == pytest.approx({"a": 0.0, "b": 0.0}, abs=1e-6)
    with pytest.raises(RefusedRequest) as caught:
        refuse_unequal_lists(lists(tmp_path, {"q": {"a": 3.0, "b": 1.0}}, {"q": {"b": 3.0}}))
    assert "the lists of query 'q' do not hold the same documents (run 0 has 2, run 1 has 1)" in str(
        caught.value
    )


def test_a_list_of_strangers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="lists 'z', which the collection does not have"):
        lists(tmp_path, {"q": {"z": 1.0}})


scores = st.dictionaries(st.sampled_from(IDS), st.integers(-3, 3).map(lambda n: n / 4), max_size=5)
queries = st.fixed_dictionaries({"p": scores, "q": scores, "r": scores})


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(queries, min_size=2, max_size=3),
    method=st.sampled_from(["rrf", "sum", "mnz", "max"]),
    normalize=st.sampled_from(["min-max", "sum", "rank"]),
    weighted=st.booleans(),
    block=st.integers(1, 3),
)
def test_equal_to_dictionaries(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[Scored],
    method: Method,
    normalize: Normalize,
    weighted: bool,
    block: int,
) -> None:
    weights = (0.7, 0.2, 0.1)[: len(runs)] if weighted and method == "sum" else None
    recipe = Recipe(method, normalize, weights)
    read = lists(tmp_path_factory.mktemp("runs"), *runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SCORE_BYTES", 4 * len(IDS) * block)
        blocks = list(fused_scores(read, ["p", "q", "r"], IDS, recipe))
    assert [len(one) for one in blocks] == {1: [1, 1, 1], 2: [2, 1], 3: [3]}[block]
    matrix, order = np.concatenate(blocks), tie_order(IDS)
    for row, query in enumerate(("p", "q", "r")):
        expected = plain([run[query] for run in runs], recipe)
        found = {IDS[order[c]]: value for c, value in enumerate(matrix[row]) if value != ABSENT}
        assert found == pytest.approx(expected, abs=1e-6)


def plain(runs: Sequence[Mapping[str, float]], recipe: Recipe) -> dict[str, float]:
    """The same with dictionaries alone, rule by rule."""
    parts: list[dict[str, float]] = []
    for run in runs:
        order = sorted(run, key=lambda name: (run[name], name), reverse=True)
        least, most = min(run.values(), default=0), max(run.values(), default=0)
        total = sum(run.values()) - least * len(run)
        match "rrf" if recipe.method == "rrf" else recipe.normalize:
            case "rrf":
                parts.append({name: 1 / (60 + rank) for rank, name in enumerate(order, start=1)})
            case "rank":
                parts.append({name: 1 - place / len(run) for place, name in enumerate(order)})
            case "min-max":
                parts.append({name: (run[name] - least) / max(most - least, 1e-9) for name in run})
            case _:
                parts.append({name: (run[name] - least) / max(total, 1e-9) for name in run})
    fused: dict[str, float] = {}
    for name in {name for part in parts for name in part}:
        values = [part[name] for part in parts if name in part]
        fused[name] = {"mnz": sum(values) * len(values), "max": max(values)}.get(recipe.method, sum(values))
        if recipe.weights is not None:
            fused[name] = sum(w * part.get(name, 0) for w, part in zip(recipe.weights, parts, strict=True))
    return fused

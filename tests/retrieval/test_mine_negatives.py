"""Mined negatives: never a true one, ranked as a plain matrix product ranks, the same bytes each time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import KeywordEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import build_tiny_mllm

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.pairs import Pair, read_pairs
from vidvec_msg.retrieval.indexes.exact import cosines, nearest
from vidvec_msg.retrieval.mining.choice import Rules
from vidvec_msg.retrieval.mining.corpus import read_candidates
from vidvec_msg.retrieval.mining.rows import Mined, mined
from vidvec_msg.retrieval.mining.texts import Candidates, same_words
from vidvec_msg.retrieval.mining.vectors import TextVectors
from vidvec_msg.retrieval.mining.verb import mine_negatives

NO_MARGIN: dict[str, Any] = {"relative_margin": None}


# ---- the search


def test_neighbours_are_those_of_a_matrix_product_with_all_that_tie() -> None:
    random = np.random.default_rng(0)
    grid = random.integers(-1, 2, (300, 4)).astype(np.float32)  # many equal vectors
    grid = grid[np.abs(grid).sum(1) > 0]
    unit = grid / np.linalg.norm(grid, axis=1, keepdims=True)
    queries = np.repeat(unit[:7], 200, axis=0)  # 1,400: more than one block
    wanted = random.integers(1, 40, len(queries)).tolist()
    for (positions, scores), query, least in zip(
        nearest(unit, queries, wanted), queries, wanted, strict=True
    ):
        plain = np.round(unit.astype(np.float64) @ query.astype(np.float64), 6)
        order = np.lexsort((np.arange(len(unit)), -plain))
        assert len(positions) >= min(least, len(unit))
        assert positions.tolist() == order[: len(positions)].tolist()
        assert np.allclose(scores, plain[positions], atol=1e-6)
        if len(positions) < len(unit):  # nothing that ties with the last one asked for was left out
            assert plain[order[len(positions)]] < plain[order[least - 1]]


def test_equal_vectors_have_equal_cosines_wherever_they_stand() -> None:
    random = np.random.default_rng(1)
    one, query = (random.standard_normal(1537).astype(np.float32) for _ in range(2))
    assert len(set(cosines(np.tile(one, (101, 1)), query).tolist())) == 1


# ---- the property: against brute force, on many small worlds

WORDS = ("ant", "bee", "cow", "dog", "elk", "fox")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Pair], list[str], dict[str, list[int]]]:
    """Pairs that share anchors, positives and groups at random, further texts, and a vector per text."""
    text = st.sampled_from([*WORDS, "Ant!", "BEE"])
    pairs = draw(
        st.lists(
            st.builds(
                Pair,
                anchor=st.sampled_from(["A", "B", "C", "ant"]),
                positive=text,
                negatives=st.lists(text, max_size=2).map(tuple),
                group=st.sampled_from([None, "g", "h"]),
            ),
            min_size=1,
            max_size=8,
        )
    )
    further = draw(st.lists(st.sampled_from([*WORDS, "gnu", "hen", "ibis"]), max_size=6))
    coordinate = st.integers(-2, 2)
    vector = st.tuples(coordinate, coordinate, coordinate).filter(any)
    texts = {t for pair in pairs for t in (pair.anchor, pair.positive)} | set(further)
    return pairs, further, {t: list(draw(vector)) for t in sorted(texts)}


def as_vectors(texts: set[str], vectors: dict[str, list[int]]) -> TextVectors:
    kept = sorted(texts)
    rows = np.array([vectors[text] for text in kept], dtype=np.float32).reshape(len(kept), 3)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return TextVectors({text: row for row, text in enumerate(kept)}, unit, ())


def brute_force(
    pairs: Sequence[Pair], further: Sequence[str], vectors: dict[str, list[int]], rules: Rules
) -> list[list[str]]:
    """What the docstrings promise, row by row, over lists."""

    def cosine(one: str, other: str) -> float:
        a, b = (as_vectors({text}, vectors).vectors[0].astype(np.float64) for text in (one, other))
        return round(float(sum(a * b)), 6)

    spelled: dict[str, str] = {}
    for text in sorted({*(pair.positive for pair in pairs), *further}):
        spelled.setdefault(same_words(text), text)
    expected = []
    for pair in pairs:
        relatives = [
            other
            for other in pairs
            if same_words(other.anchor) == same_words(pair.anchor)
            or (pair.group is not None and other.group == pair.group)
        ]
        never = {same_words(text) for other in relatives for text in (other.anchor, other.positive)}
        never |= {same_words(text) for text in pair.negatives}
        ranked = sorted(
            (text for words, text in spelled.items() if words not in never),
            key=lambda text: (-cosine(pair.anchor, text), text),
        )
        positive = cosine(pair.anchor, pair.positive)
        window = [(text, cosine(pair.anchor, text)) for text in ranked][rules.range_min : rules.range_max]
        if rules.margin is not None:
            window = [(t, s) for t, s in window if s <= positive - rules.margin + 1e-9]
        if rules.relative_margin is not None:
            window = [
                (t, s) for t, s in window if s <= positive - abs(positive) * rules.relative_margin + 1e-9
            ]
        if rules.max_score is not None:
            window = [(t, s) for t, s in window if s <= rules.max_score + 1e-9]
        if rules.min_score is not None:
            window = [(t, s) for t, s in window if s >= rules.min_score - 1e-9]
        expected.append([text for text, _ in window])
    return expected


RULES = st.builds(
    Rules,
    num_negatives=st.integers(1, 4),
    range_min=st.integers(0, 2),
    range_max=st.integers(3, 6),
    margin=st.sampled_from([None, 0.0, 0.1]),
    relative_margin=st.sampled_from([None, 0.05]),
    max_score=st.sampled_from([None, 0.9]),
    min_score=st.sampled_from([None, -0.5]),
    sampling=st.sampled_from(["top", "random"]),
)


@settings(max_examples=80, deadline=None)
@given(world=worlds(), rules=RULES)
def test_no_negative_is_a_relative_and_ranks_and_margins_are_those_of_brute_force(
    world: tuple[list[Pair], list[str], dict[str, list[int]]], rules: Rules
) -> None:
    pairs, further, vectors = world
    candidates = Candidates.of(pairs, further)
    anchors = as_vectors({pair.anchor for pair in pairs}, vectors)
    messages = as_vectors({pair.positive for pair in pairs} | set(candidates.texts), vectors)
    found = mined(pairs, candidates, anchors, messages, rules)
    for pair, one, eligible in zip(pairs, found, brute_force(pairs, further, vectors, rules), strict=True):
        wanted = min(rules.num_negatives, len(eligible))
        assert len(set(one.negatives)) == len(one.negatives) == len(one.scores) == wanted
        if rules.sampling == "top":
            assert list(one.negatives) == eligible[:wanted]
        assert list(one.negatives) == [text for text in eligible if text in one.negatives]  # best first
        for text in one.negatives:
            words = same_words(text)
            assert words not in {same_words(t) for t in (pair.anchor, pair.positive, *pair.negatives)}
            for other in pairs:
                shares = other.anchor == pair.anchor or (pair.group is not None and other.group == pair.group)
                assert not (shares and words == same_words(other.positive))


def test_a_draw_is_the_seeds_and_another_one_for_each_row() -> None:
    pairs = [Pair("A", "ant", id=str(row)) for row in range(6)]
    further = [f"text {row}" for row in range(40)]
    vectors = {text: [1, row + 1, 1] for row, text in enumerate(["A", "ant", *further])}
    candidates = Candidates.of(pairs, further)
    given_vectors = (as_vectors({"A"}, vectors), as_vectors({"ant", *further}, vectors))

    def drawn(seed: int) -> list[tuple[str, ...]]:
        rules = Rules(num_negatives=3, sampling="random", seed=seed)
        return [one.negatives for one in mined(pairs, candidates, *given_vectors, rules)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) > 1


# ---- the verb

ROWS: list[dict[str, Any]] = [
    {"id": "r0", "anchor": "apple apple dog", "positive": "apple dog apple", "group": "g1", "persona": "p"},
    {"id": "r1", "anchor": "apple apple bridge", "positive": "apple apple", "group": "g1"},
    {"id": "r2", "anchor": "dog dog", "positive": "dog", "group": "g2", "negatives": ["harbour engine"]},
    {"id": "r3", "anchor": "dog dog", "positive": "dog dog dog apple"},
    {"id": "r4", "anchor": "bridge apple", "positive": "bridge"},
]


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def mine(pairs: Path, out: Path, **options: Any) -> list[Pair]:
    given_options = {"embedder": "fakes:KeywordEmbedder", **NO_MARGIN, **options}
    return read_pairs(mine_negatives(str(pairs), out=out, **given_options))


def test_the_file_holds_the_pairs_and_their_nearest_strangers(
    pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {pair.id: pair for pair in mine(pairs_file, tmp_path / "out.jsonl", num_negatives=2)}
    # candidates by words: "apple apple", "apple dog apple", "bridge", "dog", "dog dog dog apple"
    assert found["r0"].negatives == ("dog dog dog apple", "dog")  # "apple apple" is of its group
    assert found["r1"].negatives == ("bridge", "dog dog dog apple")
    assert found["r2"].negatives == (
        "harbour engine",
        "apple dog apple",
        "apple apple",
    )  # its own come first
    assert found["r3"].negatives == ("apple dog apple", "apple apple")  # "dog" is its anchor's
    assert found["r4"].negatives == ("apple apple", "apple dog apple")
    record = found["r2"].provenance["mined"]
    assert record["fingerprint"] == KeywordEmbedder().card.fingerprint
    assert record["scores"] == [pytest.approx(0.447214), 0.0]
    assert record["positive_score"] == 1.0
    assert found["r0"].provenance["persona"] == "p"
    told = capsys.readouterr().out
    assert "5 pairs, 4 distinct anchors, 5 candidates" in told
    assert "10 negatives: 5 pairs have 2, 0 fewer, 0 none" in told
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_rules_are_told_with_what_they_removed(
    pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = mine(pairs_file, tmp_path / "out.jsonl", range_min=1, max_score=0.4, relative_margin=0.05)
    told = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.strip()}
    assert lines["range_min"] == ["1", "5", "1.0"]
    assert "relative_margin" in lines
    assert "max_score" in lines
    scores = [score for pair in found for score in pair.provenance["mined"]["scores"]]
    assert scores
    assert max(scores) <= 0.4


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_format_reads_back_the_same(pairs_file: Path, tmp_path: Path, suffix: str) -> None:
    plain = mine(pairs_file, tmp_path / "plain.jsonl")
    found = mine(pairs_file, tmp_path / f"out{suffix}")
    key = [(pair.id, pair.anchor, pair.positive, pair.negatives, pair.group) for pair in plain]
    assert [(pair.id, pair.anchor, pair.positive, pair.negatives, pair.group) for pair in found] == key


def test_existing_negatives_are_replaced_by_request(pairs_file: Path, tmp_path: Path) -> None:
    found = mine(pairs_file, tmp_path / "out.jsonl", existing="replace", num_negatives=1)
    assert found[2].negatives == ("apple dog apple",)


def test_the_corpus_gives_further_candidates_and_its_groups_bind(pairs_file: Path, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("apple apple bridge dog\n\nforest\n")
    found = mine(pairs_file, tmp_path / "1.jsonl", corpus=str(tmp_path / "c.txt"), num_negatives=1)
    assert found[0].negatives == ("apple apple bridge dog",)
    other = {
        "anchor": "guitar",
        "positive": "apple apple bridge dog",
        "group": "g1",
        "negatives": ["dog apple"],
    }
    (tmp_path / "c.jsonl").write_text(json.dumps(other))
    found = mine(pairs_file, tmp_path / "2.jsonl", corpus=str(tmp_path / "c.jsonl"), num_negatives=1)
    assert found[0].negatives == ("dog apple",)  # the positive there is of its group
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "apple", "text": "apple dog dog"}\n')
    assert read_candidates(str(tmp_path / "corpus.jsonl")) == ["apple apple dog dog"]


def test_flag_embedding_files_become_a_row_per_positive(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(
        '{"query": "apple", "pos": ["apple dog", "apple bridge"], "neg": []}\n'
        '{"query": "dog", "pos": ["dog dog"]}\n'
    )
    found = mine(tmp_path / "f.jsonl", tmp_path / "out.jsonl")
    assert [pair.negatives for pair in found] == [("dog dog",), ("dog dog",), ("apple dog", "apple bridge")]


def test_the_same_bytes_each_time_and_the_same_negatives_with_another_batch_size(tmp_path: Path) -> None:
    tiny = build_tiny_mllm(tmp_path / "tiny")
    rows = [
        {
            "anchor": f"A {animal} rolls {'slowly ' * (row % 4)}home.",
            "positive": f"Be like the {animal}, {row}.",
        }
        for row, animal in enumerate(["dog", "cat", "fox", "owl", "bee"] * 4)
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    specs = {
        "a": f"mllm:{tiny}?batch_size=1",
        "b": f"mllm:{tiny}?batch_size=7",
        "c": f"mllm:{tiny}?batch_size=7",
    }
    for name, spec in specs.items():
        mine(tmp_path / "p.jsonl", tmp_path / f"{name}.jsonl", embedder=spec)
    read = {name: (tmp_path / f"{name}.jsonl").read_bytes() for name in specs}
    assert read["b"] == read["c"]
    negatives = {name: [pair.negatives for pair in read_pairs(tmp_path / f"{name}.jsonl")] for name in "ab"}
    assert negatives["a"] == negatives["b"]


# ---- interruptions, failures


class Stopping(KeywordEmbedder):
    """Is interrupted at the messages, once."""

    calls: list[tuple[Role, int]] = []  # noqa: RUF012 - shared by all instances on purpose

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        self.calls.append((role, len(items)))
        if self.calls == [("document", 4), ("query", 5)]:
            raise KeyboardInterrupt
        return super().encode(items, role=role)


def test_an_interrupted_run_goes_on_where_it_stopped(pairs_file: Path, tmp_path: Path) -> None:
    Stopping.calls.clear()
    options = {"embedder": f"{__name__}:Stopping"}
    with pytest.raises(KeyboardInterrupt):
        mine(pairs_file, tmp_path / "out.jsonl", **options)
    assert not (tmp_path / "out.jsonl").exists()
    mine(pairs_file, tmp_path / "out.jsonl", **options)
    assert Stopping.calls == [("document", 4), ("query", 5), ("query", 5)]  # the anchors were done
    mine(pairs_file, tmp_path / "undisturbed.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()


def test_vectors_can_be_kept_for_other_options_and_roles_can_be_exchanged(
    pairs_file: Path, tmp_path: Path
) -> None:
    Stopping.calls[:] = [("document", 0)]
    options: dict[str, Any] = {"embedder": f"{__name__}:Stopping", "vectors": tmp_path / "v"}
    mine(pairs_file, tmp_path / "1.jsonl", **options)
    mine(pairs_file, tmp_path / "2.jsonl", range_min=1, **options)
    assert Stopping.calls[1:] == [("document", 4), ("query", 5)]
    mine(pairs_file, tmp_path / "3.jsonl", anchor_role="query", **options)
    assert Stopping.calls[3:] == [("query", 4), ("document", 5)]


def test_texts_that_cannot_be_embedded_are_told_and_fail_the_run(
    pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pairs_file.open("a") as stream:
        stream.write('{"anchor": "apple", "positive": "nothing to count", "id": "r5"}\n')
        for number, letter in enumerate("xyz"):  # names of texts are the texts: cut
            long = f"{letter} words that nobody counts" * 9
            stream.write(json.dumps({"anchor": "apple", "positive": long, "id": f"r{6 + number}"}) + "\n")
    out = tmp_path / "out.jsonl"
    words = ["mine-negatives", "--pairs", str(pairs_file), "--embedder", "fakes:KeywordEmbedder"]
    assert main([*words, "--out", str(out)]) == 1
    streams = capsys.readouterr()
    assert "4 of 14 texts cannot be embedded" in streams.err
    assert "'nothing to count': no keyword in it" in streams.err
    assert f"{('x words that nobody counts' * 9)[:60]!r}: no keyword in it" in streams.err
    assert "no keyword in it; … and 1 more. " in streams.err
    assert "4 pairs could not be embedded" in streams.out
    found = {pair.id: pair for pair in read_pairs(out)}
    assert found["r5"].negatives == ()
    assert found["r5"].provenance["mined"]["positive_score"] is None
    assert main([*words, "--out", str(tmp_path / "2.jsonl"), "--max-failures", "4"]) == 0


# ---- refusals


def test_everything_wrong_comes_in_one_message_before_the_embedder_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"anchor": "a", "positive": ""}\n')
    (tmp_path / "out.txt").touch()
    with pytest.raises(RefusedRequest) as refusal:
        mine_negatives(
            str(tmp_path / "p.jsonl"), "sst:nothing", tmp_path / "out.txt", corpus="nowhere.jsonl",
            num_negatives=5, range_min=8, range_max=10, margin=float("nan"), relative_margin=2.0,
            min_score=0.5, max_score=0.4, sampling="best", seed=-1, existing="drop", anchor_role="video",
            max_failures=1.5,
        )  # type: ignore[arg-type]  # fmt: skip
    for told in (
        "mine-negatives: 14 problems",
        "range_min 8 to range_max 10 leaves 2 ranks for 5 negatives",
        "margin is nan",
        "relative_margin is 2.0; it must be at least 0 and below 1",
        "min_score 0.5 is above max_score 0.4",
        "sampling is 'best'; accepted: top, random",
        "seed is -1",
        "existing is 'drop'; accepted: keep, replace",
        "anchor_role is 'video'; accepted: query, document",
        "max_failures is 1.5",
        "unknown format; accepted: .jsonl, .csv, .parquet",
        "exists already; give another file",
        "no embedder 'sst:nothing'",
        "line 1: positive is empty",
        "nowhere.jsonl: 1 problem",
    ):
        assert told in str(refusal.value)


def test_columns_that_could_not_be_written_are_refused_first(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"caption": "a", "positive": "b", "anchor": "c"}\n')
    with pytest.raises(RefusedRequest, match="column 'anchor' is not read as what its name says"):
        mine_negatives(
            str(tmp_path / "p.jsonl"), "no:Such", tmp_path / "o.jsonl", columns={"anchor": "caption"}
        )
    (tmp_path / "q.jsonl").write_text(
        '{"anchor": "a", "positive": "b", "x": 1}\n{"anchor": "c", "positive": "d", "x": "y"}\n'
    )
    with pytest.raises(RefusedRequest, match="column 'x' holds values of several kinds"):
        mine_negatives(str(tmp_path / "q.jsonl"), "no:Such", tmp_path / "o.parquet")


def test_what_was_not_searched_has_no_account() -> None:
    assert Mined() == Mined((), (), None, None)

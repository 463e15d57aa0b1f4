"""Search: each kind of question, printed for people and for programs; what cannot be asked is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import KeywordEmbedder

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval import search as searching
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index import VectorIndex, build_index
from vidvec_msg.retrieval.search import Hit, Searcher, search

SPEC = "fakes:KeywordEmbedder"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"frames")
    items = [
        Item("[red]dog", text="dog dog [bold]forest forest", groups={"topic": "pets"}),
        Item("clip", video=clip, start=1.5, end=12.0, transcript="dog apple"),
        Item("twin", text="dog apple"),
        Item("ключ", text="guitar"),
    ]
    vectors = embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v", spec=SPEC).path
    return build_index(vectors, tmp_path / "i")


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_text_is_searched_with_and_printed_as_json_lines(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search(made, text="dog", k=3, json=True)
    hits = printed(capsys)
    assert [(hit["rank"], hit["id"]) for hit in hits] == [(1, "[red]dog"), (2, "twin"), (3, "clip")]
    np.testing.assert_allclose([hit["score"] for hit in hits], [2 / 5**0.5, 0.5**0.5, 0.5**0.5], atol=1e-6)
    assert hits[0]["groups"] == {"topic": "pets"}
    assert hits[2]["video"].endswith("clip.mp4")
    assert (hits[2]["start"], hits[2]["end"]) == (1.5, 12.0)
    assert "video" not in hits[1]


def test_the_table_shows_rank_score_id_and_what_it_is(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")  # of no account where nobody looks at a terminal
    search(made, text="dog", k=9)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert lines[0].split() == ["rank", "score", "id", "what"]
    assert lines[1].split() == ["1", "0.8944", "[red]dog", "dog", "dog", "[bold]forest", "forest"]
    assert lines[3].split()[:3] == ["3", "0.7071", "clip"]
    assert lines[3].endswith("clip.mp4  1.5–12 s  dog apple")
    assert len(lines) == 5


def test_more_like_this_leaves_the_item_itself_out_and_needs_no_embedder(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "load_embedder", lambda spec: pytest.fail(f"loaded {spec}"))
    search(made, id="clip", k=2, json=True)
    hits = printed(capsys)
    assert [hit["id"] for hit in hits] == ["twin", "[red]dog"]
    assert hits[0]["score"] == pytest.approx(1)
    search(made, id="twin", k=9, json=True)
    assert [hit["id"] for hit in printed(capsys)] == ["clip", "[red]dog", "ключ"]


def test_a_clip_is_embedded_as_a_query(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Item, str]] = []

    class Watching(KeywordEmbedder):
        def encode(self, items: Any, *, role: Any) -> Any:
            asked.extend((item, role) for item in items)
            return super().encode([Item("query", text="guitar")], role=role)

    monkeypatch.setattr(searching, "load_embedder", lambda spec: Watching())
    search(made, video=tmp_path / "clip.mp4", json=True)
    assert asked == [(Item("query", video=tmp_path / "clip.mp4"), "query")]


def test_a_searcher_is_opened_once_and_used_many_times(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(spec: str) -> KeywordEmbedder:
        loaded.append(spec)
        return KeywordEmbedder()

    monkeypatch.setattr(searching, "load_embedder", load)
    searcher = Searcher.open(made)
    assert loaded == []
    both = searcher.search([Item("a", text="guitar"), Item("b", text="apple apple")], k=1)
    assert [[hit.id for hit in hits] for hits in both] == [["ключ"], ["twin"]]
    assert searcher.search([Item("a", text="guitar")], k=1)[0][0].score == pytest.approx(1)
    assert loaded == [SPEC]
    assert searcher.search([]) == []


def test_a_foreign_embedder_is_refused_loaded_or_not(made: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="was made with another embedder"):
        Searcher.open(made, embedder=KeywordEmbedder(bias=1))
    manifest = json.loads((made / "index.json").read_text())
    manifest["card"]["weights"] = "retrained"
    (made / "index.json").write_text(json.dumps(manifest))
    with pytest.raises(RefusedRequest, match="was made with another embedder"):
        search(made, text="dog", embedder=SPEC)
    with pytest.raises(RefusedRequest, match="was made with another embedder"):
        search(made, text="dog")


def test_an_index_that_does_not_name_its_embedder_asks_for_it(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((made / "index.json").read_text())
    manifest["embedder"] = None
    (made / "index.json").write_text(json.dumps(manifest))
    with pytest.raises(
        RefusedRequest, match=r"does not say how to load its embedder \(keywords\): give --embedder SPEC"
    ):
        search(made, text="dog")
    search(made, text="dog", embedder=SPEC, json=True, k=1)
    assert printed(capsys)[0]["id"] == "[red]dog"
    hits = Searcher.open(made, embedder=KeywordEmbedder()).search([Item("q", text="dog")], k=1)
    assert hits[0][0].id == "[red]dog"


def test_an_index_whose_embedder_has_moved_says_which_and_what_to_give(made: Path) -> None:
    manifest = json.loads((made / "index.json").read_text())
    manifest["embedder"] = "st:/gone"
    (made / "index.json").write_text(json.dumps(manifest))
    expected = r"made with 'st:/gone', which cannot be loaded here: (.|\n)*Say where it is: --embedder SPEC\."
    with pytest.raises(RefusedRequest, match=expected):
        search(made, text="dog")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "exactly one of --text, --video, --image and --id; given: none"),
        ({"text": "a", "id": "b"}, "exactly one of .*; given: --text, --id"),
        ({"text": " "}, "--text is empty; give words to search with"),
        ({"video": Path("gone.mp4")}, r"--video gone\.mp4 does not exist; give a file"),
        ({"image": Path("gone.png")}, r"--image gone\.png does not exist; give a file"),
        ({"id": "gone"}, "has no item 'gone'; its 4 ids are in"),
        ({"text": "dog", "k": 0}, "k is 0; it must be at least 1"),
        ({"text": "nothing"}, "the query cannot be embedded: item 'query': no keyword in it"),
        (
            {"image": Path(__file__)},
            "the query is of modality 'image'; keywords, which made index .*, takes text, video",
        ),
        ({"text": "dog", "search_parameters": "nprobe=3"}, "does not take search_parameters 'nprobe=3'"),
    ],
)
def test_what_cannot_be_asked_is_refused(made: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        search(made, **options)


def test_the_question_is_checked_before_the_index_is_opened(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="exactly one of"):
        search(tmp_path / "nowhere")
    with pytest.raises(RefusedRequest, match=r"index\.json is missing"):
        search(tmp_path / "nowhere", text="dog")


def test_a_hit_leaves_out_what_is_not_known() -> None:
    hit = Hit(1, 0.5, "d", {"id": "d", "text": None, "start": 0.0, "groups": {}})
    assert hit.to_dict() == {"rank": 1, "score": 0.5, "start": 0.0, "id": "d"}


def test_search_parameters_reach_the_index(tmp_path: Path) -> None:
    items = [Item(f"d{i}", text="dog " * (i % 7 + 1) + "apple " * (i % 5)) for i in range(200)]
    embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v", spec=SPEC)
    made = build_index(tmp_path / "v", tmp_path / "i", factory="IVF5,Flat")
    few = Searcher.open(made, search_parameters="nprobe=1").search([Item("q", text="dog")], k=200)[0]
    every = Searcher.open(made, search_parameters="nprobe=5").search([Item("q", text="dog")], k=200)[0]
    assert len(few) < len(every) == len(VectorIndex.open(made)) == 200

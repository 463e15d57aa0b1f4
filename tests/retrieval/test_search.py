"""Search: each kind of question, printed for people and for programs; what cannot be asked is refused."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
from fakes import KeywordEmbedder
from vectors_folder import write_vectors

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index import VectorIndex, build_index
from vidvec_msg.retrieval.search import Hit, Searcher, search
from vidvec_msg.retrieval.searching import searcher as searching
from vidvec_msg.retrieval.searching.hits_table import clock

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
    assert lines[0].split() == ["rank", "score", "id", "file", "time", "text"]
    assert lines[1].split() == ["1", "0.8944", "[red]dog", "dog", "dog", "[bold]forest", "forest"]
    assert lines[3].split()[:3] == ["3", "0.7071", "clip"]
    assert lines[3].endswith("clip.mp4  0:01.5–0:12  dog apple")
    assert len(lines) == 5


def test_more_like_this_leaves_the_item_itself_out_and_needs_no_embedder(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "load_embedder", lambda spec: pytest.fail(f"loaded {spec}"))
    search(made, id=["clip"], k=2, json=True)
    hits = printed(capsys)
    assert [hit["id"] for hit in hits] == ["twin", "[red]dog"]
    assert hits[0]["score"] == pytest.approx(1)
    search(made, id=["twin"], k=9, json=True)
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


@pytest.mark.parametrize("medium", ["image", "audio"])
def test_pictures_and_sound_are_embedded_where_the_embedder_takes_them(
    tmp_path: Path, medium: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Item] = []

    class Hearing(KeywordEmbedder):
        def __init__(self) -> None:
            super().__init__()
            self.card = replace(self.card, modalities=("text", "video", "image", "audio"))

        def encode(self, items: Any, *, role: Any) -> Any:
            asked.extend(items)
            return super().encode([Item(item.id, text="guitar") for item in items], role=role)

    file = tmp_path / "file"
    file.write_bytes(b"content")
    items = [Item("d", text="dog")]
    embed_items(items, Hearing(), role="document", out=tmp_path / "v", spec="any")
    made = build_index(tmp_path / "v", tmp_path / "i")
    monkeypatch.setattr(searching, "load_embedder", lambda spec: Hearing())
    search(made, json=True, **{medium: file})
    assert asked[-1] == Item("query", **{medium: file})
    assert [hit["id"] for hit in printed(capsys)] == ["d"]


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
        (
            {},
            "one of --text, --video, --image, --audio, --id, --queries and --query_vectors; given: none",
        ),
        ({"text": "a", "id": ["b"]}, "exactly one of .*; given: --text, --id"),
        ({"text": " "}, "--text is empty; give words to search with"),
        ({"video": Path("gone.mp4")}, r"--video gone\.mp4 does not exist; give a file"),
        ({"image": Path("gone.png")}, r"--image gone\.png does not exist; give a file"),
        ({"audio": Path("gone.wav")}, r"--audio gone\.wav does not exist; give a file"),
        (
            {"audio": Path(__file__)},
            "the query is of modality 'audio'; keywords, which made index .*, takes text",
        ),
        ({"id": ["gone"]}, "has no item 'gone'; its 4 ids are in"),
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


# --- filters, thresholds, one result per file --------------------------------------------------------------


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 clips of five windows each, in the order of their likeness to "dog", and five texts."""
    folder = tmp_path_factory.mktemp("windows")
    clips = [
        Item(
            f"clip{clip:02d}#t={10 * part},{10 * part + 10}",
            video=folder / f"clip{clip:02d}.mp4",
            start=10.0 * part,
            end=10.0 * part + 10,
            transcript="dog " * (60 - clip) + "apple " * (part + 1),
            groups={"topic": "even" if clip % 2 == 0 else "odd"},
        )
        for clip in range(40)
        for part in range(5)
    ]
    for item in clips:
        Path(str(item.video)).write_bytes(b"frames")
    texts = [Item(f"text{number}", text="dog " * 30 + "bridge " * number) for number in range(5)]
    embed_items([*clips, *texts], KeywordEmbedder(), role="document", out=folder / "v", spec=SPEC)
    return build_index(folder / "v", folder / "i")


def test_a_filter_leaves_the_order_of_what_it_lets_through(windows: Path) -> None:
    searcher = Searcher.open(windows)
    question = [Item("q", text="dog"), Item("r", text="apple")]
    every = searcher.search(question, k=205)
    some = searcher.search(question, k=205, where={"topic": "odd"})
    late = searcher.search(question, k=7, where=["topic=odd", "start>=30"])
    for all_hits, hits, later in zip(every, some, late, strict=True):
        kept = [hit for hit in all_hits if hit.metadata["groups"].get("topic") == "odd"]
        assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in kept]
        kept = [hit for hit in kept if hit.metadata["start"] >= 30]
        assert [hit.id for hit in later] == [hit.id for hit in kept[:7]]
        assert [hit.rank for hit in later] == list(range(1, 8))


def test_filters_are_words_of_the_command_line(windows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "--index", str(windows), "--text", "dog", "--json", "--k", "300"]
    assert main([*words, "--filter", "topic=odd", "--filter", "start=0,10"]) == 0
    given_twice = printed(capsys)
    assert main([*words, "--filter", "topic=odd", "start=0,10"]) == 0
    assert printed(capsys) == given_twice
    assert {(hit["groups"]["topic"], hit["start"]) for hit in given_twice} == {("odd", 0.0), ("odd", 10.0)}
    assert len(given_twice) == 40
    assert main([*words, "--filter", "topic=even", "id=clip02*", "--id", "clip02#t=0,10"]) == 2
    assert "exactly one of" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["dog", "bridge"])
def test_one_result_per_video_is_its_best_window(windows: Path, words: str) -> None:
    searcher = Searcher.open(windows)
    question = [Item("q", text=words)]
    [every] = searcher.search(question, k=205)
    best: dict[str, Hit] = {}
    for hit in every:
        best.setdefault(hit.metadata["video"] or hit.id, hit)
    assert len(best) == 45  # the texts are no windows of one file: each stays
    for k in (1, 3, 44, 45, 46, 1000):
        [hits] = searcher.search(question, k=k, dedupe="video")
        assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in best.values()][:k]
        assert [hit.rank for hit in hits] == list(range(1, min(k, 45) + 1))
    [hits] = searcher.search(question, k=30, dedupe="video", where={"topic": "odd"})
    odd = [hit.id for hit in best.values() if hit.metadata["groups"].get("topic") == "odd"]
    assert [hit.id for hit in hits] == odd


def test_more_candidates_are_fetched_only_for_the_queries_that_lack_results(windows: Path) -> None:
    index = VectorIndex.open(windows)
    asked: list[tuple[int, int]] = []

    class Counting(Searcher):
        def _ask(self, vectors: Any, k: int, wanted: Any) -> Any:
            asked.append((len(vectors), k))
            return super()._ask(vectors, k, wanted)

    searcher = Counting(index, KeywordEmbedder())
    searcher.search([Item("q", text="bridge"), Item("r", text="dog")], k=44, dedupe="video")
    # 176 candidates hold all clips for "dog", but for "bridge" five texts and the windows of 35 clips
    assert asked == [(2, 176), (1, 704)]


def test_a_lowest_score_cuts_the_list_of_each_query(windows: Path) -> None:
    searcher = Searcher.open(windows)
    question = [Item("q", text="dog"), Item("r", text="bridge")]
    every = searcher.search(question, k=205)
    lowest = every[0][20].score
    for dedupe in (None, "video"):
        whole = searcher.search(question, k=205, dedupe=dedupe)
        cut = searcher.search(question, k=205, min_score=lowest, dedupe=dedupe)
        assert cut == [[hit for hit in hits if hit.score >= lowest] for hits in whole]
        assert 0 < len(cut[0]) < len(whole[0])
        assert cut[1] == []
    assert searcher.search(question, k=205, min_score=0) == every


def test_more_like_several_is_their_mean_without_them(windows: Path) -> None:
    searcher = Searcher.open(windows)
    names = ["clip00#t=0,10", "text4"]
    mean = np.mean([searcher.index.vector(name) for name in names], axis=0)
    [every] = searcher.search_vectors((mean / np.linalg.norm(mean))[None], k=205)
    hits = searcher.more_like([*names, names[0]], k=203)
    assert [hit.id for hit in hits] == [hit.id for hit in every if hit.id not in names]
    assert len(hits) == 203
    files = [hit.metadata["video"] for hit in searcher.more_like(names, k=50, dedupe="video")]
    assert len(files) == 39 + 4  # without the other windows of clip00
    assert not any("clip00" in (file or "") for file in files)


def test_vectors_that_cancel_out_have_no_direction(tmp_path: Path) -> None:
    card = EmbedderCard(name="plain", dim=2).to_dict()
    vectors = write_vectors(tmp_path / "v", ["a", "b"], np.array([[1, 0], [-1, 0]]), card)
    made = build_index(vectors, tmp_path / "i")
    with pytest.raises(RefusedRequest, match="the vectors of a, b cancel out"):
        Searcher.open(made).more_like(["a", "b"])
    with pytest.raises(RefusedRequest, match="Give the id of at least one item"):
        Searcher.open(made).more_like([])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"filter": ["topik=odd"]}, r"no item has 'topik' \(did you mean 'topic'\?\)"),
        (
            {"filter": ["topic=evn"]},
            r"no item matches topic=evn; the values of topic are even, odd \(did you mean",
        ),
        ({"filter": ["topic=odd", "id=text*"]}, r"no item matches topic=odd; id=text\*\."),
        ({"filter": ["topic"]}, "'topic' is no condition"),
        ({"min_score": 2.0}, "min_score is 2.0; it must be a cosine, from -1 to 1"),
        ({"dedupe": "topic"}, "dedupe is 'topic'; it must be one of video, image, audio"),
        ({"run": Path("x.trec")}, "--run: without effect on one question; they are for many queries"),
        (
            {"batch_size": 3, "max_failures": 1.0},
            "--batch_size, --max_failures: without effect on one question",
        ),
        ({"k": 0, "min_score": -3.0}, "the search: 2 problems\n  - k is 0(.|\n)*min_score is -3"),
    ],
)
def test_what_cannot_be_wanted_is_refused(windows: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        search(windows, text="dog", **options)


def test_a_filter_is_refused_before_an_embedder_is_loaded(
    windows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "load_embedder", lambda spec: pytest.fail(f"loaded {spec}"))
    (tmp_path / "q.txt").write_text("dog\n")
    for question in ({"text": "dog"}, {"queries": tmp_path / "q.txt"}):
        with pytest.raises(RefusedRequest, match="no item has 'topik'"):
            search(windows, filter=["topik=odd"], **question)


# --- what a person sees ---------------------------------------------------------------------------------


def test_times_read_as_clocks() -> None:
    told = [clock(seconds) for seconds in (0, 9.96, 59.94, 59.96, 75, 3599.99, 3600, 3725.5)]
    assert told == ["0:00", "0:10", "0:59.9", "1:00", "1:15", "1:00:00", "1:00:00", "1:02:05.5"]


def test_a_terminal_gets_a_line_a_result(
    windows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(windows.parent)
    search(windows, text="dog", k=2, filter=["topic=odd", "start>=10"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split()[2:5] == ["clip01#t=10,20", "clip01.mp4", "0:10–0:20"]
    assert lines[1].endswith("…")
    assert all(len(line) <= 80 for line in lines)  # what a dumb terminal has
    search(windows, text="dog", filter=["id=text*"])
    assert capsys.readouterr().out.splitlines()[0].split() == ["rank", "score", "id", "text"]


def test_nothing_found_is_said_and_prints_nothing(
    windows: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        search(windows, text="guitar", min_score=0.5)
    assert capsys.readouterr().out == ""
    assert "nothing found" in caplog.text


def test_an_index_left_on_disk_gives_the_same(
    windows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(windows, text="dog", k=20, json=True)
    expected = capsys.readouterr().out
    opened: list[bool] = []
    real = VectorIndex.open.__func__  # type: ignore[attr-defined]

    def watched(cls: Any, folder: Path, **options: Any) -> Any:
        opened.append(options["mmap"])
        return real(cls, folder, **options)

    monkeypatch.setattr(VectorIndex, "open", classmethod(watched))
    search(windows, text="dog", k=20, json=True, mmap=True)
    assert capsys.readouterr().out == expected
    assert opened == [True]


def test_a_hit_knows_its_file_and_segment(windows: Path) -> None:
    searcher = Searcher.open(windows)
    [clip] = searcher.search([Item("q", text="dog")], k=1, where={"id": "clip07#t=20,30"})[0]
    assert (Path(clip.path or "").name, clip.segment) == ("clip07.mp4", (20.0, 30.0))
    [text] = searcher.search([Item("q", text="dog")], k=1, where={"id": "text0"})[0]
    assert (text.path, text.segment) == (None, (None, None))


# --- threads ------------------------------------------------------------------------------------------------


def test_threads_share_a_searcher(windows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    inside = Lock()

    class Alone(KeywordEmbedder):
        def encode(self, items: Any, *, role: Any) -> Any:
            assert inside.acquire(blocking=False), "two threads in the embedder"
            time.sleep(0.001)
            try:
                return super().encode(items, role=role)
            finally:
                inside.release()

    def load(spec: str) -> KeywordEmbedder:
        loaded.append(spec)
        time.sleep(0.05)
        return Alone()

    monkeypatch.setattr(searching, "load_embedder", load)

    def ask(searcher: Searcher, number: int) -> list[Any]:
        question = Item("q", text="dog " * (number % 5) + "apple bridge")
        where = {"topic": ["odd", "even"][number % 2]} if number % 3 else None
        one = searcher.search([question], k=number % 7 + 1, where=where, dedupe=[None, "video"][number % 2])
        like = searcher.more_like(f"clip{number % 40:02d}#t=0,10", k=3)
        return [(hit.id, hit.score) for hit in (*one[0], *like)]

    alone = [ask(Searcher.open(windows), number) for number in range(24)]
    loaded.clear()
    shared = Searcher.open(windows)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: ask(shared, number), range(24))) == alone
    assert loaded == [SPEC]

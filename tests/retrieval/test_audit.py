"""The audit: each fault of a collection is found by its line, a clean one has none; near texts."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from media.clips import grey_frames, write_clip
from PIL import Image

from vidvec_msg import cli
from vidvec_msg.formats.collections import Collection
from vidvec_msg.media.probe_clips import write_tone
from vidvec_msg.retrieval import near_texts as near
from vidvec_msg.retrieval.doctor import Finding, audit

TEXTS = {
    "d1": "A small red ball rolls towards a wall and bounces back again and again until the wall breaks.",
    "d2": "The slow turtle passes the fast hare that stopped to rest beside the road.",
    "d3": "Two friends share their bread with a stranger who has nothing to eat.",
    "d4": "Lights come on in a dark house while rain falls on the roof of the garden shed.",
}
QUERIES = {"q1": "Patience wins in the end.", "q2": "Slow and steady wins.", "q3": "Sharing makes us rich."}
PAIRS = [("q1", "d1"), ("q2", "d2"), ("q3", "d3")]


def write(
    root: Path,
    *,
    corpus: Iterable[Mapping[str, Any]] = (),
    queries: Iterable[Mapping[str, Any]] = (),
    **splits: Iterable[tuple[Any, ...]],
) -> Path:
    """A clean collection with these rows added, and these judgements instead of its own."""
    documents = [*({"_id": name, "text": text} for name, text in TEXTS.items()), *corpus]
    asked = [*({"_id": name, "text": text} for name, text in QUERIES.items()), *queries]
    (root / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", documents), ("queries", asked)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (root / f"{name}.jsonl").write_text(text, encoding="utf-8")
    for split, pairs in (splits or {"test": PAIRS}).items():
        lines = ["query-id\tcorpus-id\tscore"]
        lines += [f"{q}\t{d}\t{grade[0] if grade else 1}" for q, d, *grade in pairs]
        (root / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def audited(folder: Path, **options: Any) -> dict[str, Finding]:
    return {one.name: one for one in audit(Collection.load(folder, unreachable="keep"), **options)}


def not_fine(findings: Mapping[str, Finding]) -> dict[str, str]:
    return {name: one.verdict for name, one in findings.items() if one.verdict not in ("ok", "n/a")}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds at 10 fps."""
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", grey_frames(20))


def test_a_clean_collection_has_no_fault(tmp_path: Path, clip: Path) -> None:
    other = write_clip(tmp_path / "other.mp4", grey_frames(10))
    Image.new("RGB", (32, 24)).save(tmp_path / "picture.png")
    rows = [
        {"_id": "v1", "video": str(clip), "start": 0, "end": 1},
        {"_id": "v2", "video": str(clip), "start": 1, "end": 2},
        {"_id": "v3", "video": str(other)},
        {"_id": "i1", "image": "picture.png"},
        {"_id": "s1", "audio": str(write_tone(tmp_path / "tone.wav", hertz=440)), "end": 1},
    ]
    findings = audited(write(tmp_path / "c", corpus=rows), decode=None)
    assert not_fine(findings) == {"missing media": "fail"}  # the picture lies beside, not in it
    (tmp_path / "picture.png").rename(tmp_path / "c" / "picture.png")
    findings = audited(tmp_path / "c", decode=None)
    assert not_fine(findings) == {}
    assert findings["size"].found == (
        "corpus 9 (4 text, 3 video, 1 image, 1 audio); queries 3 (3 text); splits test"
    )
    assert findings["media that do not decode"].found == "no file is broken (5 of 5 opened)"
    assert findings["positives per query"].found == "least–median–most: test 1–1–1 of 3 queries"
    assert findings["documents never relevant"].value == 6
    assert findings["text lengths"].found == "words, least–median–most: corpus 13–15–18, queries 4–4–5"


def long(words: int) -> str:
    return " ".join(f"w{number}" for number in range(words))


NEAR_D1 = TEXTS["d1"].replace("breaks.", "breaks!").upper()

# what is added → the only line that is not fine, its verdict, how often, and a part of its first example
FAULTS: dict[str, tuple[dict[str, Any], str, str, int, str]] = {
    "no file": (
        {"corpus": [{"_id": "v", "video": "gone.mp4"}]},
        "missing media", "fail", 1, "corpus: 'v' file not found: ",
    ),
    "seconds of a text": (
        {"corpus": [{"_id": "t", "text": "has seconds and four words", "start": 1, "end": 2}]},
        "odd segments", "warn", 1, "corpus: 't' is text and has seconds",
    ),
    "case": (
        {"corpus": [{"_id": "D1", "text": "something else entirely here"}]},
        "ids that read alike", "warn", 1, "corpus: 'd1', 'D1'",
    ),
    "unicode": (
        {"queries": [{"_id": "caf\u00e9", "text": "one two"}, {"_id": "cafe\u0301", "text": "three four"}],
         "test": [*PAIRS, ("caf\u00e9", "d4"), ("cafe\u0301", "d4")]},
        "ids that read alike", "warn", 1, "queries: 'caf\u00e9', 'cafe\u0301'",
    ),
    "leading zeros": (
        {"corpus": [{"_id": "007", "text": "a spy of some kind"}]},
        "odd ids", "warn", 1, "corpus: '007' has leading zeros",
    ),
    "spaces": (
        {"corpus": [{"_id": "my clip", "text": "a clip of some kind"}]},
        "odd ids", "warn", 1, "corpus: 'my clip' has a space inside",
    ),
    "shared": (
        {"corpus": [{"_id": "q1", "text": "not the query itself"}]},
        "ids on both sides", "warn", 1, "'q1'",
    ),
    "blank document": (
        {"corpus": [{"_id": "e", "text": "  "}]},
        "empty texts", "warn", 1, "corpus: 'e'",
    ),
    "blank positive": (
        {"corpus": [{"_id": "e", "text": "", "title": " "}], "test": [*PAIRS, ("q1", "e")]},
        "empty texts", "fail", 1, "corpus: 'e'",
    ),
    "one word": ({"corpus": [{"_id": "s", "text": "Why?"}]}, "text lengths", "warn", 1, "corpus: 's' 1"),
    "too long": ({"corpus": [{"_id": "l", "text": long(800)}]}, "text lengths", "warn", 1, "corpus: 'l' 800"),
    "query is a document": (
        {"corpus": [{"_id": "x", "text": QUERIES["q1"]}]},
        "queries in the corpus", "warn", 1, "'q1' is document 'x'",
    ),
    "unknown document": (
        {"test": [*PAIRS, ("q1", "gone"), ("q2", "gone", 0)]},
        "unreachable positives", "fail", 2, "test: document 'gone' of query 'q1' does not exist",
    ),
    "unknown query": (
        {"test": [*PAIRS, ("nobody", "d1")]},
        "unreachable positives", "fail", 1, "test: query 'nobody' does not exist",
    ),
    "no positive": (
        {"test": [*PAIRS[:2], ("q3", "d3", 0)]},
        "queries without positives", "warn", 1, "test: 'q3' has no positive",
    ),
    "never asked": (
        {"test": PAIRS[:2]},
        "queries without positives", "warn", 1, "'q3' is in no split",
    ),
    "leak": (
        {"train": [PAIRS[0]], "test": PAIRS},
        "overlapping splits", "warn", 2, "test and train: 1 queries are in both: 'q1'",
    ),
    "leak by text": (
        {"queries": [{"_id": "q9", "text": f" {QUERIES['q1']} "}], "train": [("q9", "d4")], "test": PAIRS},
        "overlapping splits", "warn", 1,
        "test and train: 1 queries hold what queries of test hold: 'q9' is 'q1' of test",
    ),
    "leak by a mirrored pair": (
        {"corpus": [{"_id": "x", "text": "Patience WINS in the end."}],
         "train": [("q2", "x")], "test": [PAIRS[0], PAIRS[2]]},
        "overlapping splits", "warn", 1,
        "test and train: 1 documents with a positive hold what queries of test hold: 'x' is 'q1' of test",
    ),
    "near-duplicate": (
        {"corpus": [{"_id": "x", "text": NEAR_D1}]},
        "near-duplicate texts", "warn", 1,
        "test, corpus: 'x' is 100% like 'd1', which alone is relevant to 'q1'",
    ),
    "near-duplicate queries": (
        {"queries": [{"_id": "q9", "text": "patience, wins in the END"}], "test": [*PAIRS, ("q9", "d4")]},
        "near-duplicate texts", "warn", 1,
        "test, queries: 'q9' is 100% like 'q1', which alone is relevant to 'd1'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_line_and_no_other(tmp_path: Path, fault: str) -> None:
    added, name, verdict, value, example = FAULTS[fault]
    findings = audited(write(tmp_path / "c", **added))
    also = {"same text": "warn"} if fault == "leak by text" else {}  # the query's text is there twice
    assert not_fine(findings) == {name: verdict, **also}
    finding = findings[name]
    assert finding.value == value
    assert finding.examples[0].startswith(example)
    assert finding.advice


def test_the_same_text_under_several_ids(tmp_path: Path) -> None:
    rows = [{"_id": f"x{number}", "text": "  the same words here "} for number in range(6)]
    findings = audited(write(tmp_path / "c", corpus=rows))
    assert not_fine(findings) == {"same text": "warn"}
    assert findings["same text"].examples == ("corpus: 'x0', 'x1', 'x2', 'x3' and 2 more",)


def test_the_same_bytes_under_several_names(tmp_path: Path, clip: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    content = clip.read_bytes()
    (folder / "a.mp4").write_bytes(content)
    (folder / "b.mp4").write_bytes(content)
    changed = bytearray(content)
    changed[-1] ^= 1  # as long, and not the same
    (folder / "c.mp4").write_bytes(bytes(changed))
    rows = [{"_id": name, "video": f"{name}.mp4"} for name in "abc"]
    rows += [{"_id": "first half", "video": "a.mp4", "end": 1}, {"_id": "again", "video": "b.mp4", "end": 1}]
    findings = audited(write(folder, corpus=rows), decode=1)
    assert not_fine(findings) == {"same media": "warn", "odd ids": "warn"}
    assert findings["same media"].examples == ("corpus: 'a', 'b'", "corpus: 'first half', 'again'")


def test_media_that_do_not_decode(tmp_path: Path, clip: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "page.mp4").write_text("<html>not found</html>")
    (folder / "page.png").write_text("<html>not found</html>")
    (folder / "page.wav").write_text("<html>not found</html>")
    tone = write_tone(folder / "tone.wav", hertz=440)
    rows = [
        {"_id": "good", "video": str(clip)},
        {"_id": "html", "video": "page.mp4"},
        {"_id": "picture", "image": "page.png"},
        {"_id": "late", "video": str(clip), "start": 1, "end": 9},
        {"_id": "later", "video": str(clip), "start": 5, "end": 9},
        {"_id": "sound", "audio": "page.wav"},
        {"_id": "long sound", "audio": str(tone), "end": 3},
    ]
    write(folder, corpus=rows)
    finding = audited(folder, decode=1)["media that do not decode"]
    assert (finding.verdict, finding.value) == ("ok", 0)
    assert "1 of 7 opened; all: --decode_all" in finding.found
    finding = audited(folder, decode=None)["media that do not decode"]
    assert (finding.verdict, finding.value) == ("fail", 6)
    assert finding.examples[0].startswith("corpus: 'html' ")
    assert finding.examples[2] == "corpus: 'late' ends 7.0 s behind the end of clip.mp4"


def test_splits_that_share_a_stretch_of_a_clip(tmp_path: Path, clip: Path) -> None:
    """Overlapping windows of one file, also of a copy of it, ask the same."""
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "copy.mp4").write_bytes(clip.read_bytes())
    rows = [
        {"_id": "start", "video": str(clip), "end": 1},
        {"_id": "touches", "video": "copy.mp4", "start": 1},
        {"_id": "overlaps", "video": "copy.mp4", "start": 0.5, "end": 1.5},
    ]
    for other, verdict in (("touches", "ok"), ("overlaps", "warn")):
        splits = {"dev": [("q1", other)], "test": [("q2", "start")]}
        finding = audited(write(folder, corpus=rows, **splits))["overlapping splits"]
        assert finding.verdict == verdict
    assert finding.examples == (
        "dev and test: 1 documents with a positive hold what documents with a positive of dev hold: "
        "'start' is 'overlaps' of dev",
    )
    alone = audited(write(folder, test=PAIRS, dev=[("q1", "d1", 0)]))["overlapping splits"]
    assert (alone.verdict, alone.found) == ("n/a", "there are no two splits with positives")


def test_segments_of_no_length(tmp_path: Path, clip: Path) -> None:
    rows = [
        {"_id": "blink", "video": str(clip), "start": 1, "end": 1.1},
        {"_id": "fine", "video": str(clip), "start": 1, "end": 2},
    ]
    findings = audited(write(tmp_path / "c", corpus=rows))
    assert not_fine(findings) == {"odd segments": "warn"}
    assert findings["odd segments"].examples == ("corpus: 'blink' is 0.1 s long",)


def test_nothing_is_relevant(tmp_path: Path) -> None:
    findings = audited(write(tmp_path / "c", test=[(q, d, 0) for q, d in PAIRS]))
    assert findings["positives per query"].verdict == "fail"


def test_near_duplicates_that_are_judged_alike_are_fine(tmp_path: Path) -> None:
    alike = [{"_id": "x", "text": NEAR_D1}, {"_id": "y", "text": TEXTS["d4"].upper()}]
    findings = audited(write(tmp_path / "c", corpus=alike, test=[*PAIRS, ("q1", "x")]))
    assert not_fine(findings) == {}  # d4 and y: nobody asks for either


def test_a_query_that_a_split_does_not_ask_is_not_across_its_border(tmp_path: Path) -> None:
    twin = [{"_id": "q9", "text": "patience wins in the end"}]
    splits = {"train": [("q9", "d4")], "test": PAIRS}
    assert not_fine(audited(write(tmp_path / "c", queries=twin, **splits))) == {}


def test_the_verb_prints_and_counts_both_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "c", corpus=[{"_id": "v", "video": "gone.mp4"}])
    words = ["doctor", "--embedder", "faulty_embedders:Bare", "--collection", str(folder)]
    assert cli.main(words) == 1
    out, error = capsys.readouterr()
    assert f"collection {folder}" in out
    assert "→ paths are relative to the collection's folder" in out
    assert "checks failed: missing media" in error
    (folder / "corpus.jsonl").write_text("not json\n")
    assert cli.main(words) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert "corpus.jsonl:1: not a JSON object" in error


# --- near texts -------------------------------------------------------------------------------------------


def plain(one: str, other: str) -> float:
    """Jaccard over word triples, as one would write it down."""
    sets = []
    for text in (one, other):
        words = [*near.words_of(text), *[""] * (near.SHINGLE - len(near.words_of(text)))]
        sets.append({tuple(words[at : at + near.SHINGLE]) for at in range(len(words) - near.SHINGLE + 1)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_near_pairs_are_those_of_comparing_all_with_all() -> None:
    dice = random.Random(3)
    texts = []
    for _ in range(60):
        words = [dice.choice("abcdefghijklmnopqrstuvwxyz") * 3 for _ in range(dice.randint(1, 40))]
        texts.append(" ".join(words))
        for _ in range(3):  # near ones: some words are exchanged
            words = [word if dice.random() > 0.02 else "other" for word in words]
            texts.append(" ".join(words))
    found = {(pair.one, pair.other): pair.likeness for pair in near.near_pairs(texts)}
    expected = {
        (one, other): plain(texts[one], texts[other])
        for one in range(len(texts))
        for other in range(one + 1, len(texts))
        if plain(texts[one], texts[other]) >= near.NEAR
    }
    # texts of the same words stand for each other: their pairs run through the first of them
    first = {text: position for position, text in reversed(list(enumerate(texts)))}
    kept = {
        pair: likeness
        for pair, likeness in expected.items()
        if first[texts[pair[0]]] == pair[0] and (likeness == 1 or first[texts[pair[1]]] == pair[1])
    }
    assert len(kept) > 60
    assert found == pytest.approx(kept)


@given(st.text(st.sampled_from("aB9_ éß’'‘“”–—….,\n\t\x00\x1c\u00a0\u2028ﬁ"), max_size=30))
def test_plain_words_are_found_as_an_expression_finds_them(text: str) -> None:
    assert near.words_of(text) == re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


def test_case_punctuation_and_unicode_forms_are_no_difference() -> None:
    texts = ["Café au lait, please!", "cafe\u0301 AU lait — please", "café au lait", "", "?!", "one", "One."]
    assert [(pair.one, pair.other) for pair in near.near_pairs(texts)] == [(0, 1), (5, 6)]
    assert near.near_pairs([]) == near.near_pairs(["a b c"]) == []


def test_a_crowd_of_one_template_does_not_take_all_pairs() -> None:
    crowd = [f"{' '.join(f'word{n}' for n in range(40))} number{n}" for n in range(300)]
    pairs = near.near_pairs(crowd)
    assert {pair.other for pair in pairs} | {0} == set(range(300))  # each is near to one before it
    assert len(pairs) < 300 * 20

"""Cached vectors: found again by content, and never for another checkpoint, prompt, role or item."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fakes import KEYWORDS, KeywordEmbedder

from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats import items as items_module
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation import vector_cache
from vidvec_msg.retrieval.evaluation.vector_cache import (
    CachedEmbedder,
    VectorCache,
    cached,
    content_key,
    identified_by_weights,
)
from vidvec_msg.runs import file_digest

ITEMS = [Item(f"i{n}", text=f"{word} {KEYWORDS[0]}") for n, word in enumerate(KEYWORDS)]


class Tallying(KeywordEmbedder):
    """Says how many it was given, and notes what it was asked to prepare."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[str] = []

    @property
    def tally(self) -> str:
        return f"{len(self.encoded)} items"

    def prepare(self, items: Sequence[Item]) -> None:
        self.prepared += [item.id for item in items]


def asked(
    folder: Path | str, items: Sequence[Item] = ITEMS, role: Role = "query", **card: object
) -> tuple[list[str], Vectors]:
    """What the embedder itself was asked for, and the vectors."""
    embedder = KeywordEmbedder()
    embedder.card = dataclasses.replace(embedder.card, **card)
    with cached(embedder, str(folder), spec="fakes:KeywordEmbedder") as made:
        vectors = made.encode(items, role=role)
    return embedder.encoded, vectors


def test_a_second_time_nothing_is_encoded_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    first, vectors = asked(tmp_path)
    assert first == [item.id for item in ITEMS]
    again, same = asked(tmp_path)
    assert again == []
    assert same.tobytes() == vectors.tobytes() == KeywordEmbedder().encode(ITEMS, role="query").tobytes()


def test_parts_of_an_earlier_version_are_found_and_damaged_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, vectors = asked(tmp_path)
    (record,) = tmp_path.glob("*/*/part-*.json")
    part = record.with_suffix(".npy")
    keys = json.loads(record.read_text())["keys"]
    record.write_text(json.dumps({"keys": keys, "sha256": file_digest(part)}))
    again, same = asked(tmp_path)
    assert (again, same.tobytes()) == ([], vectors.tobytes())
    for broken in ({"sha256": 64 * "0"}, {"checksum": "blake9:00"}, {"checksum": None}, {}):
        record.write_text(json.dumps({"keys": keys, **broken}))
        caplog.clear()
        assert len(asked(tmp_path)[0]) == len(ITEMS)
        assert f"cache: {part} is left out: " in caplog.text
        for later in {*tmp_path.glob("*/*/part-*")} - {record, part}:
            later.unlink()


def test_order_ids_and_company_do_not_matter(tmp_path: Path) -> None:
    _, vectors = asked(tmp_path, ITEMS[:5])
    turned = [dataclasses.replace(item, id=f"other {item.id}") for item in ITEMS[::-1]]
    missing, found = asked(tmp_path, turned)
    assert missing == ["other i7", "other i6", "other i5"]
    assert np.array_equal(found[::-1][:5], vectors)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "of another checkpoint"},
        {"prompt": PromptTemplate("{text} in one word", "{video} in one word")},
        {"layer": 3},
        {"pooling": "mean"},
        {"max_tokens": 12},
        {"transcript": "before"},
        {"role_prompts": {"query": "find: "}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_embedder_never_gets_them(tmp_path: Path, change: dict[str, object]) -> None:
    asked(tmp_path)
    assert asked(tmp_path, **change)[0] == [item.id for item in ITEMS]


def test_another_role_and_another_content_never_do_either(tmp_path: Path) -> None:
    asked(tmp_path)
    assert len(asked(tmp_path, role="document")[0]) == len(ITEMS)
    for change in ({"text": "apple dog"}, {"title": "dog"}, {"transcript": "dog"}, {"ocr": "sign"}):
        assert asked(tmp_path, [dataclasses.replace(ITEMS[0], **change)])[0] == ["i0"]


def test_a_file_that_changed_in_its_middle_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"a" * 400_000)
    os.utime(path, ns=(0, 10**18))
    before = content_key(Item("v", video=path))
    assert content_key(Item("other", video=path)) == before
    data = bytearray(b"a" * 400_000)
    data[200_000] = 0
    path.write_bytes(data)
    assert content_key(Item("v", video=path)) != before


def test_a_clip_that_has_not_changed_is_not_read_for_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"a")
    os.utime(path, ns=(0, 10**18))
    items = [Item("v", text="dog", video=path), ITEMS[0]]
    assert asked(tmp_path / "cache", items)[0] == ["v", ITEMS[0].id]
    monkeypatch.setattr(items_module, "_hash_file_ends", None)  # whoever reads fails
    assert asked(tmp_path / "cache", items)[0] == []


def test_failures_are_not_kept(tmp_path: Path) -> None:
    bad = Item("bad", text="none of the words")
    for _ in range(2):
        embedder = KeywordEmbedder()
        with cached(embedder, str(tmp_path), spec="x:Y") as made:
            with pytest.raises(ItemError, match="no keyword in it"):
                made.encode([ITEMS[0], bad], role="query")
            made.encode([ITEMS[0]], role="query")
    assert embedder.encoded == []  # the good one came from the cache, the bad one was tried again


def test_vectors_that_break_the_contract_are_not_kept(tmp_path: Path) -> None:
    class Broken(KeywordEmbedder):
        def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
            return super().encode(items, role=role) * np.float32(2)

    with cached(Broken(), str(tmp_path), spec="x:Y") as made, pytest.raises(ItemError, match="of norm 2"):
        made.encode(ITEMS, role="query")
    assert not list(tmp_path.rglob("*.npy"))


def test_an_interrupted_run_keeps_what_it_made(tmp_path: Path) -> None:
    class Interrupted(KeywordEmbedder):
        def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
            if len(self.encoded) == 3:
                raise KeyboardInterrupt
            return super().encode(items, role=role)

    def run() -> None:
        with cached(Interrupted(), str(tmp_path), spec="x:Y") as made:
            made.encode(ITEMS[:3], role="query")
            made.encode(ITEMS[3:], role="query")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert asked(tmp_path)[0] == [item.id for item in ITEMS[3:]]


def test_long_work_is_saved_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "_SAVE_EVERY", 0.0)
    CachedEmbedder(KeywordEmbedder(), VectorCache(tmp_path)).encode(ITEMS, role="query")
    assert len(list(tmp_path.rglob("*.npy"))) == 1  # without an end, as after a kill


def test_damaged_and_torn_parts_are_left_out(tmp_path: Path) -> None:
    _, vectors = asked(tmp_path)
    (path,) = tmp_path.rglob("part-*.npy")
    whole = path.read_bytes()
    for damaged in (whole[:-4], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        encoded, same = asked(tmp_path)
        assert len(encoded) == len(ITEMS)
        assert np.array_equal(same, vectors)
        for other in set(tmp_path.rglob("part-*")) - {path, path.with_suffix(".json")}:
            other.unlink()
    path.with_suffix(".json").write_text('{"keys": [')
    assert len(asked(tmp_path)[0]) == len(ITEMS)


def test_two_processes_may_share_a_folder(tmp_path: Path) -> None:
    with (
        cached(KeywordEmbedder(), str(tmp_path), spec="x:Y") as one,
        cached(KeywordEmbedder(), str(tmp_path), spec="x:Y") as other,
    ):
        one.encode(ITEMS[:5], role="query")
        other.encode(ITEMS[3:], role="query")
    assert len(list(tmp_path.rglob("*.npy"))) == 2
    assert asked(tmp_path)[0] == []


def test_a_folder_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keywords").write_text("a file in the way")
    for nowhere in (
        tmp_path / "keywords" / "cache",
        tmp_path / ("x" * 300),
    ):  # as of a folder of another user
        caplog.clear()
        encoded, vectors = asked(nowhere)
        assert len(encoded) == len(vectors) == len(ITEMS)
        assert "cannot be written" in caplog.text
    with (
        pytest.raises(RefusedRequest, match="is a file; give a folder, or 'none' for no cache"),
        cached(KeywordEmbedder(), str(tmp_path / "keywords"), spec="x:Y"),
    ):
        pass


def test_what_an_embedder_offers_beyond_the_contract_stays(tmp_path: Path) -> None:
    from vidvec_msg.embedders.contract import Embedder, Prepares, Tallies

    with cached(KeywordEmbedder(), str(tmp_path), spec="x:Y") as plain:
        assert isinstance(plain, Embedder)
        assert not isinstance(plain, Tallies)
        plain.encode(ITEMS[:4], role="document")
    embedder = Tallying()
    with cached(embedder, str(tmp_path), spec="x:Y") as made:
        assert isinstance(made, Prepares)
        assert isinstance(made, Tallies)
        made.prepare([*ITEMS, Item("gone", video=tmp_path / "gone.mp4")])
        made.encode(ITEMS, role="document")
        assert made.tally == "4 items"
        assert made.card is embedder.card
    assert embedder.prepared == ["i4", "i5", "i6", "i7"]  # what is known is not decoded


def test_what_is_known_by_its_name_alone_is_not_cached_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "user_folder", lambda: tmp_path / "user")
    embedder = KeywordEmbedder()
    for spec, cache in (("fakes:KeywordEmbedder", "user"), ("st:model", "none"), ("vectors:folder", "user")):
        with cached(embedder, cache, spec=spec) as made:
            assert made is embedder
    with cached(embedder, "user", spec="st:model") as made:
        made.encode(ITEMS, role="query")
    assert list((tmp_path / "user").rglob("*.npy"))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("tinyworld", True), ("mllm:org/name?layer=3", True), ("st:folder", True), ("clip:x", True),
        ("openai:model", False), ("cascade:asr:st:x", False), ("my:Embedder", False), ("e.yaml", False),
    ],
)  # fmt: skip
def test_whose_weights_are_hashed(spec: str, expected: bool) -> None:
    assert identified_by_weights(spec, EmbedderCard(name="n", dim=2, weights="abc")) is expected
    assert not identified_by_weights(spec, EmbedderCard(name="n", dim=2))


def test_in_memory_only_within_the_run() -> None:
    embedder = KeywordEmbedder()
    with cached(embedder, "none", spec="x:Y", within_the_run=True) as made:
        made.encode(ITEMS, role="query")
        made.encode(ITEMS, role="query")
    assert len(embedder.encoded) == len(ITEMS)

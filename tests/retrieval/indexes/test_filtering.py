"""Filters: every mask equals a plain reading of the rows; what these rows do not hold is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embedding.metadata import metadata_table
from vidvec_msg.retrieval.indexes import filtering as index_filter
from vidvec_msg.retrieval.indexes.conditions import Range, Where, parse_filters
from vidvec_msg.retrieval.indexes.filtering import FilterColumns, _coded_by_arrow

ITEMS = [
    Item("talks/a#t=0,30", video=Path("/m/a.mp4"), start=0, end=30, groups={"topic": "news", "year": "2020"}),
    Item("talks/a#t=30,60", video=Path("/m/a.mp4"), start=30, end=60, groups={"topic": "news"}),
    Item("whole", video=Path("/c/../m/b.mp4"), groups={"topic": "sport, indoors", "year": "1999"}),
    Item("sound", audio=Path("/m/c.wav"), start=5, groups={"topic": "спорт", "year": "unknown"}),
    Item("words", text="a 100% good text", groups={"video": "none", "id": "x"}),
    Item("bare", text="a text", start=2, end=2.5),
]


def found(*filters: str, items: list[Item] = ITEMS) -> list[str]:
    mask = FilterColumns(metadata_table(items)).matching(parse_filters(filters))
    return [item.id for item, kept in zip(items, mask, strict=True) if kept]


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ((), ["talks/a#t=0,30", "talks/a#t=30,60", "whole", "sound", "words", "bare"]),
        (("topic=news",), ["talks/a#t=0,30", "talks/a#t=30,60"]),
        (("topic = news , спорт",), ["talks/a#t=0,30", "talks/a#t=30,60", "sound"]),
        (("topic=news", "topic=спорт"), ["talks/a#t=0,30", "talks/a#t=30,60", "sound"]),
        ((r"topic=sport\, indoors",), ["whole"]),
        (("topic=sp*",), ["whole"]),
        (("topic=*",), ["talks/a#t=0,30", "talks/a#t=30,60", "whole", "sound"]),
        (("topic=news", "year=*"), ["talks/a#t=0,30"]),
        (("year>2000",), ["talks/a#t=0,30"]),
        (("year<=2020", "year>1999"), ["talks/a#t=0,30"]),
        (("id=talks/*",), ["talks/a#t=0,30", "talks/a#t=30,60"]),
        (("id=*a#t=*",), ["talks/a#t=0,30", "talks/a#t=30,60"]),
        (("id=words,bare",), ["words", "bare"]),
        (("groups.id=x",), ["words"]),
        (("groups.video=none",), ["words"]),
        (("text=*100% good*",), ["words"]),
        (("text=*",), ["words", "bare"]),
        (("video=*",), ["talks/a#t=0,30", "talks/a#t=30,60", "whole"]),
        (("video=/m/b.mp4",), ["whole"]),  # however the path was written
        (("video=*/m/a.mp4",), ["talks/a#t=0,30", "talks/a#t=30,60"]),
        (("start>=30",), ["talks/a#t=30,60"]),
        (("start<30",), ["talks/a#t=0,30", "whole", "sound", "bare"]),  # a file without a start begins at 0
        (("start=0",), ["talks/a#t=0,30", "whole"]),
        (("start=0,5",), ["talks/a#t=0,30", "whole", "sound"]),
        (("end<=30",), ["talks/a#t=0,30", "bare"]),  # an unknown end is in no range
        (("duration<30",), ["bare"]),
        (("duration>=30", "topic=news", "end>30"), ["talks/a#t=30,60"]),
        (("end=*",), ["talks/a#t=0,30", "talks/a#t=30,60", "bare"]),
    ],
)
def test_a_filter_lets_through_what_a_person_expects(filters: tuple[str, ...], ids: list[str]) -> None:
    assert found(*filters) == ids


def test_a_path_is_completed_with_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item("a", video=tmp_path / "clips" / "a.mp4"), Item("b", image=tmp_path / "b.png")]
    monkeypatch.chdir(tmp_path)
    assert found("video=clips/a.mp4", items=items) == ["a"]
    assert found("video=./clips/../clips/*", items=items) == ["a"]
    assert found("image=b.png", items=items) == ["b"]


words = st.text("ab*%_\\.^$,=<>\"'é ", max_size=4)
groups = st.dictionaries(st.sampled_from(["topic", "year"]), words | st.integers(-5, 5).map(str), max_size=2)


@given(
    rows=st.lists(
        st.tuples(groups, st.none() | words, st.none() | st.integers(0, 9)), min_size=1, max_size=12
    ),
    wanted=st.frozensets(words.filter(bool), min_size=1, max_size=3),
    low=st.integers(-5, 9),
    above=st.booleans(),
)
def test_masks_equal_a_plain_reading_of_the_rows(
    rows: list[tuple[dict[str, str], str | None, int | None]],
    wanted: frozenset[str],
    low: int,
    above: bool,
) -> None:
    names = [f"{text}{number}" for number, (_, text, _) in enumerate(rows)]
    table = pa.table(
        {
            "id": pa.array(names, pa.string()),
            "text": pa.array([text for _, text, _ in rows], pa.string()),
            "end": pa.array([end for _, _, end in rows], pa.float64()),
            "groups": pa.array([json.dumps(groups) for groups, _, _ in rows], pa.string()),
        }
    )
    columns = FilterColumns(table)
    by_arrow = pytest.MonkeyPatch()
    by_arrow.setattr(index_filter, "_MANY", 0)
    fast = FilterColumns(table).groups
    by_arrow.undo()
    assert {name: group.codes.tolist() for name, group in fast.items()} == {
        name: group.codes.tolist() for name, group in columns.groups.items()
    }
    assert {name: group.values for name, group in fast.items()} == {
        name: group.values for name, group in columns.groups.items()
    }

    def plain(value: str | None) -> bool:
        patterns = ["".join(".*" if c == "*" else re.escape(c) for c in one) for one in wanted]
        return value is not None and any(re.fullmatch(p, value, re.DOTALL) for p in patterns)

    def inside(value: str | None) -> bool:
        try:
            number = float(value or "")
        except ValueError:
            return False
        return number > low if above else number >= low

    at_least = Range(low=low, above=above)
    expected: list[tuple[Where, list[bool]]] = [
        ({"id": wanted}, [plain(name) for name in names]),
        ({"text": wanted}, [plain(text) for _, text, _ in rows]),
        ({"end": at_least}, [inside(None if end is None else str(end)) for _, _, end in rows]),
    ]
    if any("topic" in groups for groups, _, _ in rows):
        topics = [groups.get("topic") for groups, _, _ in rows]
        expected += [
            ({"topic": wanted}, [plain(topic) for topic in topics]),
            ({"topic": at_least}, [inside(topic) for topic in topics]),
        ]
    for where, mask in expected:
        assert columns.matching(where).tolist() == mask
        assert columns.matching(where).tolist() == mask  # the kept one
    both = {key: condition for where, _ in expected[:2] for key, condition in where.items()}
    assert columns.matching(both).tolist() == [
        a and b for a, b in zip(*(m for _, m in expected[:2]), strict=True)
    ]


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        (
            ["topik=news"],
            r"no item has 'topik' \(did you mean 'topic'\?\); the keys are id, text, video, image, audio, "
            "start, end, duration, groups.id, topic, groups.video, year",
        ),
        (["groups.colour=red"], "no item has 'groups.colour'; the keys are"),
        (["id>3"], "'id' takes values, not < and >; bounds are for start, end, duration and groups"),
        (["start=soon"], "start=soon: start is in seconds; give a number, or bounds: start<60"),
    ],
)
def test_what_these_rows_cannot_be_asked_is_refused(filters: list[str], text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        found(*filters)


def test_a_filter_that_lets_nothing_through_names_the_values_there_are() -> None:
    columns = FilterColumns(metadata_table(ITEMS))
    told = columns.nothing_matches(parse_filters(["topic=newz", "year>3000"]))
    assert told == (
        "no item matches topic=newz; year>3000; the values of topic are news, sport, indoors, спорт "
        "(did you mean 'news'?)"
    )
    assert (
        columns.nothing_matches(parse_filters(["topic=news", "end>99"]))
        == "no item matches topic=news; end>99"
    )


def test_rows_of_other_writers_need_an_id_alone() -> None:
    table = pa.table({"id": ["a", "b"]})
    assert FilterColumns(table).matching(parse_filters(["id=a"])).tolist() == [True, False]
    assert FilterColumns(table).matching(parse_filters(["video=*"])).tolist() == [False, False]
    assert FilterColumns(table).matching(parse_filters(["start>=0"])).tolist() == [False, False]
    dated = pa.table({"id": ["a"], "groups": ['{"day": "2020-01-01", "n": "1"}']})
    assert _coded_by_arrow(dated["groups"].to_pylist()) == {"day": (["2020-01-01"], [0]), "n": (["1"], [0])}
    for other in ("x", "[1]", '{"n": 3}', "{\n}", '{"n": {"m": "3"}}'):
        assert _coded_by_arrow([other]) is None
    odd: dict[str, Any] = {"id": ["a", "b", "c"], "groups": [None, '["x"]', '{"n": 3, "none": null}']}
    assert FilterColumns(pa.table(odd)).matching(parse_filters(["n=3"])).tolist() == [False, False, True]
    with pytest.raises(RefusedRequest, match="groups is 'x', which is not JSON"):
        FilterColumns(pa.table({"id": ["a"], "groups": ["x"]})).matching(parse_filters(["n=3"]))


def test_a_mask_that_is_kept_cannot_be_changed() -> None:
    columns = FilterColumns(metadata_table(ITEMS))
    with pytest.raises(ValueError, match="read-only"):
        columns.matching(parse_filters(["topic=news"]))[0] = False

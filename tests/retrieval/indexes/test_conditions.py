"""The words of a filter: what they mean, in the forms in which people write them; what is none is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes.conditions import Range, as_where, parse_filters, written


@given(
    st.tuples(*[st.integers(-3, 3) | st.just(math.inf) | st.just(-math.inf)] * 4),
    st.tuples(*[st.booleans()] * 4),
)
def test_two_ranges_meet_in_what_lies_in_both(bounds: tuple[float, ...], ends: tuple[bool, ...]) -> None:
    a, b = Range(bounds[0], bounds[1], ends[0], ends[1]), Range(bounds[2], bounds[3], ends[2], ends[3])
    numbers = np.array([*np.arange(-4, 4, 0.5), np.nan])
    np.testing.assert_array_equal((a & b).holds(numbers), a.holds(numbers) & b.holds(numbers))


def test_people_write_filters_in_several_ways() -> None:
    expected = {"topic": frozenset({"news", "sport"}), "year": frozenset({"2020"})}
    assert as_where({"topic": ["news", "sport"], "year": 2020}) == expected
    assert as_where({"topic": ("sport", "news"), "year": "2020"}) == expected
    assert as_where(["topic=news,sport", "year=2020"]) == expected
    assert as_where("topic=news") == {"topic": frozenset({"news"})}
    assert as_where(None) == as_where([]) == as_where({}) == {}
    assert as_where({"start": Range(low=3)}) == {"start": Range(low=3)} == parse_filters(["start>=3"])
    assert as_where(as_where({"video": "clips/a.mp4"})) == as_where({"video": "clips/a.mp4"})


def test_a_filter_is_written_as_it_was_given() -> None:
    where = parse_filters(["topic=b,a", "start>=1.5", "start<60"])
    assert written(where) == "topic=a,b; start>=1.5 and <60"


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        (["topic"], "'topic' is no condition; give a key and its values, such as topic=news,"),
        (["=news"], "'=news' is no condition"),
        (["topic="], "'topic=' is no condition"),
        (["topic=,"], "'topic' has no value"),
        (["topic!=news"], "there is no !=; give the values that are wanted"),
        (["start>x"], "'start>x': 'x' is not a number; > compares numbers, = any value"),
        (["start>nan"], "'nan' is not a number"),
        (["start>3", "start=4"], "'start' has values and a bound; give one or the other"),
        (["topic", "year<x"], "2 problems\n(.|\n)*'topic' is no(.|\n)*'x' is not a number"),
    ],
)
def test_words_that_are_no_filter_are_refused(filters: list[str], text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        parse_filters(filters)
    with pytest.raises(RefusedRequest, match="'topic' has no value"):
        as_where({"topic": []})

from pathlib import Path
from typing import Literal

import pytest

from vidvec_msg.embedders.convert import convert


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("a", str, "a"),
        ("2", str, "2"),
        ("2", int, 2),
        ("-1", int, -1),
        ("2", float, 2.0),
        ("true", bool, True),
        ("No", bool, False),
        ("a/b", Path, Path("a/b")),
        ("last", Literal["last", "mean"], "last"),
        ("none", str | None, None),
        ("none", Literal["before", "none"], "none"),
        ("word", str | None, "word"),
        ("3", int | None, 3),
        ("x", str | Path | None, "x"),
        ("auto", int | str, "auto"),
        ("4", int | str, 4),
    ],
)
def test_values(text, wanted, value):
    assert convert(text, wanted) == value
    assert type(convert(text, wanted)) is type(value)


@pytest.mark.parametrize(
    ("text", "wanted", "reason"),
    [
        ("2.5", int, "'2.5' is not a whole number"),
        ("x", float, "'x' is not a number"),
        ("x", float | None, "'x' is not a number"),
        ("2", bool, "neither true nor false"),
        ("x", Literal["a", "b"], "'x' is not one of a, b$"),
        ("x", float | Literal["uniform"], "'x' is not one of uniform, nor a number$"),
        ("x", int | Literal["a"] | None, "'x' is not one of a, nor a whole number$"),
    ],
)
def test_texts_that_are_no_values(text, wanted, reason):
    with pytest.raises(ValueError, match=reason):
        convert(text, wanted)

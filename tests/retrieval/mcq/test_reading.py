"""What counts as an answer, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval.mcq.exams import question

from vidvec_msg.retrieval.mcq.reading import option_meant

ONE = question("q", "Apple pie", "Patience pays.", "A dog, 2 cats", "Nothing")


@pytest.mark.parametrize(
    "written",
    [
        "B", "b", " B\n", "B.", "(B)", "[B]", "B)", "**B**", '"B"', "Answer: B", "answer: (B).",
        "The answer is B", "The correct answer is B.", "Option B", "The best option would be: B",
        "B. Patience pays.",
        "B: patience pays", "Patience pays", "'Patience pays.'", "Answer: B. Patience pays",
        "<think>It could be A, but\nC is wrong.</think>\nB", "Final answer: **B**",
    ],
)  # fmt: skip
def test_these_mean_b(written):
    assert option_meant(written, ONE) == 1


@pytest.mark.parametrize(
    "written",
    [
        "", "  ", "E", "Z.", "A or B", "A, B", "AB", "I think B", "B because patience pays", "B. Apple pie",
        "Because of the clip, the answer is B", "A dog", "Apple", "None of them", "1", "<think>B", "B\nC",
        "Not B", "The answer", "Answer:",
    ],
)  # fmt: skip
def test_these_mean_nothing(written):
    assert option_meant(written, ONE) is None


def test_an_options_own_text_goes_before_a_letter_in_it():
    assert option_meant("A dog, 2 cats", ONE) == 2


def test_a_text_that_is_the_letter_of_another_option_means_nothing():
    letters = question("q", "B", "A", "other")
    assert option_meant("A", letters) is None
    assert option_meant("C", letters) == 2
    assert option_meant("other", letters) == 2


@given(st.text(max_size=60))
def test_whatever_is_written_there_is_an_answer_or_none(written):
    assert option_meant(written, ONE) in (None, 0, 1, 2, 3)


@given(st.integers(0, 3))
def test_every_letter_means_its_option(place):
    assert option_meant(ONE.letters[place], ONE) == place

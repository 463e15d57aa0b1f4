"""Small tables worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval.mcq.exams import question

from vidvec_msg.errors import Failure
from vidvec_msg.retrieval.mcq.question import Answer
from vidvec_msg.retrieval.mcq.sitting import CONTROL, SHOWN, Sitting
from vidvec_msg.retrieval.mcq.summary import accuracy, guessable, summary

QUESTIONS = tuple(question(f"q{number}", right=number % 4) for number in range(8))
TURNED = f"{SHOWN}, rotated by 1"


def sitting(chosen, control=None, turned=None, failures=()) -> Sitting:
    """Positions chosen per question; None could not be read, "-" was not answered."""
    made = Sitting("m", "spec", "fp", sees_letters=True)
    for name, places in ((SHOWN, chosen), (TURNED, turned), (CONTROL, control)):
        if places is None:
            continue
        made.asked[name] = tuple(one.rotated(1) for one in QUESTIONS) if name == TURNED else QUESTIONS
        made.rounds[name] = {
            one.id: Answer(one.id, place)
            for one, place in zip(QUESTIONS, places, strict=True)
            if place != "-"
        }
        made.failures[name] = list(failures)
    return made


def test_accuracy_counts_the_answered_and_takes_the_unreadable_for_wrong():
    found = summary(sitting([0, 1, 2, 3, 1, None, "-", "-"], failures=[Failure("q6", "broken")]))
    assert found["accuracy"]["value"] == 4 / 6
    assert found["accuracy"]["questions"] == 6
    assert found["accuracy"]["chance"] == 1 / 4
    assert found["unreadable"] == 1
    assert found["failed"] == [{"question": "q6", "reason": "broken"}]
    assert "1 answers could not be read and count as wrong" in found["warnings"]
    assert "1 questions could not be answered and count nowhere" in found["warnings"]


def test_wilsons_interval():
    # worked out with the closed form: 8 of 10
    found = accuracy(8, 10)
    assert (found["low"], found["high"]) == (
        pytest.approx(0.490162, abs=1e-6),
        pytest.approx(0.943318, abs=1e-6),
    )
    assert accuracy(5, 5)["low"] == pytest.approx(0.565518, abs=1e-6)  # a bootstrap would say 1.0
    assert accuracy(0, 0) == {"value": None, "low": None, "high": None, "questions": 0}


@given(st.integers(1, 500), st.data())
def test_an_interval_holds_its_value_and_stays_within_0_and_1(count, data):
    found = accuracy(data.draw(st.integers(0, count)), count)
    assert 0 <= found["low"] <= found["value"] + 1e-12
    assert found["value"] - 1e-12 <= found["high"] <= 1


def test_letters_say_where_right_options_stand_and_what_is_chosen():
    found = summary(sitting([0, 0, 0, 0, 0, 1, 0, 0]))["letters"]
    assert found["A"]["right"] == 2
    assert found["A"]["chosen"] == 7
    assert found["A"]["accuracy"]["value"] == 1.0
    assert found["B"] == {"right": 2, "chosen": 1, "accuracy": accuracy(1, 2)}
    assert found["D"]["accuracy"]["value"] == 0.0


def test_a_letter_that_is_chosen_too_often_is_told_of():
    questions = [question(f"q{number}", right=number % 4) for number in range(20)]
    made = Sitting("m", "spec", "fp", sees_letters=True)
    made.asked[SHOWN] = tuple(questions)
    made.rounds[SHOWN] = {one.id: Answer(one.id, 0) for one in questions}
    made.failures[SHOWN] = []
    told = "the letter A is chosen in 100% of the answers and right in 25%"
    assert summary(made)["warnings"] == [told]
    made.sees_letters = False  # an embedder's choice has nothing to do with letters
    assert summary(made)["warnings"] == []


def test_rotated_rounds_tell_whether_the_option_or_the_letter_is_chosen():
    by_option = summary(sitting([0, 1, 2, 3, 0, 1, 2, 3], turned=[1, 2, 3, 0, 1, 2, 3, 0]))["rotated"]
    assert by_option["same"]["value"] == by_option["always_right"]["value"] == 1.0
    by_letter = summary(sitting([0] * 8, turned=[0] * 8))["rotated"]
    assert by_letter["same"]["value"] == 0.0
    assert by_letter["always_right"]["value"] == 0.0
    assert [one["value"] for one in by_letter["rounds"].values()] == [0.25, 0.25]
    unread = summary(sitting([None] * 8, turned=[None] * 8))["rotated"]
    assert unread["same"]["value"] == 0.0  # two answers that nobody can read are not the same
    assert summary(sitting([0] * 8))["rotated"] is None


def test_guessable_is_what_all_models_guess():
    first = sitting([0] * 8, control=[0, 1, 2, 3, 1, 1, None, "-"])
    second = sitting([0] * 8, control=[0, 2, 2, 0, 0, 1, 2, 3])
    assert guessable([first, second]) == ["q0", "q2", "q5"]
    assert guessable([first]) == ["q0", "q1", "q2", "q3", "q5"]
    assert guessable([sitting([0] * 8)]) == []
    assert guessable([first, sitting([0] * 8)]) == guessable([first])


def test_accuracy_on_the_questions_that_cannot_be_guessed():
    found = summary(sitting([0, 1, 0, 0, 0, 0, 0, 0], control=[0] * 8), ["q0", "q4"])
    assert found["accuracy"]["value"] == 3 / 8
    assert found["without_guessable"]["value"] == 1 / 6
    assert found["control"]["value"] == 2 / 8
    assert summary(sitting([0] * 8))["control"] is None


def test_groups_count_and_mark_the_small_ones():
    made = sitting([0, 1, 2, 3, 1, 0, 3, 2])
    made.asked[SHOWN] = tuple(
        type(one)(one.id, one.clip, one.words, one.options, one.right, True, {"topic": "ab"[number // 4]})
        for number, one in enumerate(QUESTIONS)
    )
    topics = summary(made)["groups"]["topic"]
    assert topics["a"]["value"] == 1.0
    assert topics["b"] == accuracy(0, 4) | {"chance": 0.25, "small": True}


def test_a_model_that_would_not_begin_with_a_letter_is_told_of():
    made = sitting([0] * 8)
    made.rounds[SHOWN] = {one.id: Answer(one.id, 0, mass=0.1) for one in QUESTIONS}
    found = summary(made)
    assert found["letter_mass"] == pytest.approx(0.1)
    assert any("10% of the probability" in warning for warning in found["warnings"])

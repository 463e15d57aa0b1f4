"""Answers of models: the same fields however they are wrapped, and a reason for what cannot be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.data_synth.chat import Reply, reply_of
from vidvec_msg.data_synth.parsing import Unusable, fields_of, object_of, without_trailing_commas

NAMES = ("message", "storyline")
# texts with everything that breaks careless parsers: quotes, back-ticks, braces, commas, line breaks, escapes
TEXT = st.text(alphabet='ab `{}[]",:\\\n\tö…', min_size=1, max_size=40).filter(lambda text: text.strip())


def unusable(text: str, **more: str) -> Unusable:
    with pytest.raises(Unusable) as caught:
        fields_of(Reply(text, **more), NAMES)
    return caught.value


WRAPPINGS = {
    "plain": "{}",
    "fenced": "```json\n{}\n```",
    "tildes": "~~~\n{}\n~~~",
    "long fence": "````\n{}\n````",
    "chatty": "Sure, {{here}} it is:\n{}\nAnything {{else}}?",
    "thinking": "<think>maybe {{\"message\": 1}} …</think>\n{}",
    "byte order mark": "\ufeff{}",
    "list": "[{}]",
    "unclosed before": "{{ hm\n{}",
}  # fmt: skip


@given(
    st.fixed_dictionaries({"message": TEXT, "storyline": TEXT}),
    st.sampled_from(sorted(WRAPPINGS)),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_the_fields_come_back_from_any_wrapping(pair: dict[str, str], wrapping: str, indented: bool) -> None:
    text = WRAPPINGS[wrapping].format(json.dumps(pair, indent=2 if indented else None, ensure_ascii=False))
    found = fields_of(Reply(text), NAMES)
    assert found == {name: " ".join(value.split()) for name, value in pair.items()}


@given(st.dictionaries(TEXT, TEXT | st.lists(TEXT, max_size=3), max_size=4))
@settings(max_examples=300, deadline=None)
def test_trailing_commas_go_and_strings_stay(content: dict[str, object]) -> None:
    plain = json.dumps(content, ensure_ascii=False)
    assert json.loads(without_trailing_commas(plain)) == content
    spoiled = json.dumps(content, indent=1, ensure_ascii=False)
    if content:
        spoiled = spoiled[:-1].rstrip() + ",\n}"
        assert json.loads(without_trailing_commas(spoiled)) == content


def test_names_are_told_apart_without_case_and_further_fields_do_no_harm() -> None:
    text = '{"Message": " A  b\\n c ", "STORYLINE": "d", "notes": [1, 2]}'
    assert fields_of(Reply(text), NAMES) == {"message": "A b c", "storyline": "d"}


def test_a_line_break_inside_a_string_is_forgiven() -> None:
    assert fields_of(Reply('{"message": "a", "storyline": "b\nc"}'), NAMES)["storyline"] == "b c"


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("I'm sorry, but I can't help with that.", "refusal", "I'm sorry"),
        ("I cannot create this.", "refusal", "I cannot"),
        ("As an AI, I do not have a persona.", "refusal", "As an AI"),
        ("", "empty", "no words"),
        ("<think>only thoughts</think>", "empty", "no words"),
        ("Once there was a market.", "no JSON", "Once there was"),
        ('{"message": "a"}', "fields", "no storyline among message"),
        ('{"message": "a", "storyline": " "}', "fields", "storyline is empty"),
        ('{"message": ["a"], "storyline": "b"}', "fields", "message is a list"),
        ('{"message": "a", "storyline": "b', "no JSON", '{"message"'),
        ("{" * 5_000, "no JSON", "{{{"),
        ("[" * 100_000, "no JSON", "[[["),
    ],
)
def test_what_cannot_be_used_has_a_reason(text: str, code: str, detail: str) -> None:
    fault = unusable(text)
    assert fault.code == code
    assert detail in fault.detail


def test_the_endpoints_own_words_for_refusals_and_cuts() -> None:
    assert unusable("", refusal="I won't.").code == "refusal"
    assert unusable("{", finish="content_filter").code == "filtered"
    assert unusable('{"message": "a", "sto', finish="length").code == "cut off"


def test_a_refusal_inside_a_story_is_none() -> None:
    text = '{"message": "a b", "storyline": "I cannot, says a sign."}'
    assert fields_of(Reply(text), NAMES)["storyline"] == "I cannot, says a sign."


def test_values_of_other_kinds_are_left_as_they_are() -> None:
    assert object_of(Reply('{"choice": 3}'), ("choice",)) == {"choice": 3}


@pytest.mark.parametrize(
    "content", [{}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": None}]}]
)
def test_what_is_no_completion(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="an answer without"):
        reply_of(content)


def test_a_completion_in_parts_and_without_usage() -> None:
    message = {"content": [{"type": "text", "text": "a"}, {"text": "b"}], "refusal": None}
    assert reply_of({"choices": [{"message": message}]}) == Reply("ab")

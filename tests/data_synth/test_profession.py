"""What a persona is, in one word, and where that word gives it away."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from vidvec_msg.data_synth.filters.contract import Draft
from vidvec_msg.data_synth.filters.profession import named_in, plural_of, profession_of
from vidvec_msg.data_synth.filters.stated import PersonaLeak
from vidvec_msg.data_synth.filters.words import words_of
from vidvec_msg.formats.pairs import Pair, read_pairs

OURS = read_pairs(Path(__file__).parents[2] / "data/pairs.jsonl")


@pytest.mark.parametrize(
    ("persona", "noun"),
    [
        ("a retired nurse in Leeds who keeps bees", "nurse"), ("An aspiring chef from Italy", "chef"),
        ("A doctor turned poet", "doctor"), ("a make-up artist, twice divorced", "artist"),
        ("a former ski-jumper in Innsbruck", "jumper"), ("Nurse", "nurse"), ("the CEO of a bank", "ceo"),
        ("a nurse passionate about cats", "nurse"), ("a very tall basketball scout", "scout"),
        ("A 35-year-old software engineer working at a start-up", "engineer"),
        # nobody in particular
        ("a mother of two", ""), ("a computer science student", ""), ("a saffron picker's son in Herat", ""),
        ("someone who loves trains", ""), ("a person", ""), ("", ""), (", ,", ""), ("an MP in York", ""),
    ],
)  # fmt: skip
def test_professions(persona: str, noun: str) -> None:
    assert profession_of(persona) == noun


@pytest.mark.parametrize(
    ("noun", "plural"),
    [("nurse", "nurses"), ("secretary", "secretaries"), ("coach", "coaches"), ("fireman", "firemen"),
     ("boy", "boys"), ("actress", "actresses")],
)  # fmt: skip
def test_plurals(noun: str, plural: str) -> None:
    assert plural_of(noun) == plural


@pytest.mark.parametrize(
    ("noun", "message", "storyline", "place"),
    [
        ("nurse", "Listen first.", "A nurse waits.", "storyline"),
        ("nurse", "A nurse listens.", "", "message"),
        ("nurse", "Nurses listen.", "", "message"),
        ("nurse", "The nurses' rest counts.", "", "message"),
        ("nurse", "Listen.", "The nurse's shoe.", "storyline"),
        ("nurse", "Listen.", "Two nurses wait.", ""),
        ("driver", "Drive slowly.", "She drives on, driving fast.", ""),
        ("nurse", "He nursed a grudge.", "", ""),
    ],
)
def test_where_a_profession_stands(noun: str, message: str, storyline: str, place: str) -> None:
    assert named_in(noun, words_of(message), words_of(storyline)) == place


def test_a_lone_profession_is_found_in_either_text_and_hardly_ever_where_it_is_not() -> None:
    """Of the project's pairs none goes; with the persona's noun put into them all go that have one; of
    strangers' pairs, in which a guard or a driver passes by chance, three in a thousand do."""
    leak = PersonaLeak()
    assert [one.id for one in OURS if leak.reason(Draft(one))] == []
    named = [(one, noun) for one in OURS if (noun := profession_of(str(one.provenance["persona"])))]
    assert len(named) > 0.9 * len(OURS)
    for one, noun in named:
        for anchor, positive in (
            (f"{one.anchor} A {noun} looks up.", one.positive), (one.anchor, f"Even a {noun} needs rest."),
            (one.anchor, f"{plural_of(noun).capitalize()} carry more than they tell."),
        ):  # fmt: skip
            assert leak.reason(Draft(Pair(anchor, positive, provenance=one.provenance))), (noun, positive)
    dice = random.Random(0)
    strangers = [
        Pair(other.anchor, other.positive, provenance=one.provenance)
        for one in OURS for other in dice.sample(OURS, 5)
    ]  # fmt: skip
    assert sum(leak.reason(Draft(one)) is not None for one in strangers) < 0.006 * len(strangers)

"""Filters: cases for each, the project's own 600 pairs untouched, and every option with its effect."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_synth.letter_embedders import Counting, Letters
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.data_synth.clusters import grouped, split_of
from vidvec_msg.data_synth.diversity import distinct, diversity, entropy_growth, tfidf
from vidvec_msg.data_synth.filter_verb import filter_pairs
from vidvec_msg.data_synth.filters import density, phrases
from vidvec_msg.data_synth.filters.chain import apply_filters, build_filters
from vidvec_msg.data_synth.filters.contract import Draft, DraftFilter, SetFilter
from vidvec_msg.data_synth.filters.density import Density, last_sentence
from vidvec_msg.data_synth.filters.duplicates import MessageDuplicates, StorylineDuplicates
from vidvec_msg.data_synth.filters.language import LANGUAGES, Language, language_of
from vidvec_msg.data_synth.filters.lengths import Lengths
from vidvec_msg.data_synth.filters.meaning import (
    MessageMeanings,
    StatedMeaning,
    TextVectors,
    near_vectors,
    vectors_of,
)
from vidvec_msg.data_synth.filters.phrases import Phrases
from vidvec_msg.data_synth.filters.stated import PersonaLeak, Stated
from vidvec_msg.data_synth.filters.watched import Watched
from vidvec_msg.data_synth.filters.words import content_stems, stem, words_of
from vidvec_msg.data_synth.near_sets import near_sets
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.pairs import Pair, read_pairs

ROOT = Path(__file__).parents[2]
OURS = read_pairs(ROOT / "data/pairs.jsonl")
SEEN = (
    "A woman opens a red umbrella at a bus stop. A boy beside her holds a paper bag over his head. She "
    "moves one step to the left. Rain runs off the umbrella onto his shoes; he looks down, then up. She "
    "hands him the handle and pulls her hood over her hair. The bus arrives and both climb on, "
    "dripping, without a glance."
)


PATIENCE = "Patience is a kind of courage that crowds, cameras and medals miss."
KEEPER = "a lighthouse keeper in Norway who writes crime novels about bakers"


def pair(
    message: str = "Strangers share shelter before they share names.", storyline: str = SEEN, **more: Any
) -> Pair:
    return Pair(storyline, message, provenance=more)


def code(one: DraftFilter, *given: Any, **more: Any) -> str | None:
    reason = one.reason(Draft(pair(*given, **more)))
    return None if reason is None else reason.code


# ---- the project's own pairs, written and read by people, are the false rejects' test


def test_of_the_600_pairs_of_the_project_none_is_rejected() -> None:
    kept, rejects, steps = apply_filters(OURS, build_filters(None, Problems("filters")))
    assert [str(one.reason) for one in rejects] == []
    assert kept == OURS
    assert [step.given for step in steps] == [600] * len(steps)


def test_shuffled_pairs_pass_too_but_copied_texts_do_not() -> None:
    """Filters look at wording; that a storyline is another message's only a judge can tell."""
    spoiled = [Pair(f"{one.anchor} {one.positive}", one.positive, id=one.id) for one in OURS[:50]]
    kept, rejects, _ = apply_filters([*spoiled, *OURS], build_filters(None, Problems("filters")))
    assert {one.filter for one in rejects} == {"stated"}
    assert len(rejects) == 50
    assert len(kept) == 600


# ---- words


@pytest.mark.parametrize(
    "forms",
    [
        "carry carries carried carrying", "run runs running", "hope hopes hoped hoping", "child children",
        "baker bakers baker's", "quiet quietly", "kind kindness", "box boxes", "neighbour neighbours",
        "stop stopped stopping", "buy bought", "glass glasses",
    ],
)  # fmt: skip
def test_inflections_share_a_stem(forms: str) -> None:
    assert len({stem(word) for word in forms.split()}) == 1


@pytest.mark.parametrize("words", ["rain ran", "bus bush", "friend friction", "word world", "thing thin"])
def test_other_words_do_not(words: str) -> None:
    one, other = words.split()
    assert stem(one) != stem(other)


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_stemming_takes_anything(text: str) -> None:
    for word in words_of(text):
        assert stem(word)


@given(st.text(st.sampled_from("aB9_ éß’'‘“”–—….,\n\t\x00\x1c\u00a0\u2028ﬁ"), max_size=30))
def test_words_are_found_as_an_expression_finds_them(text: str) -> None:
    assert words_of(text) == re.findall(r"\w+(?:'\w+)?", text.casefold().replace("’", "'"))


def test_content_words() -> None:
    assert content_stems(words_of("The Bakers don’t bake; they’re baking BREAD for a baker.")) == [
        "bak",
        "bread",
    ]


# ---- one pair at a time


@pytest.mark.parametrize(
    ("message", "storyline", "expected"),
    [
        ("Two words.", SEEN, "message too short"),
        (" ".join(["word"] * 19), SEEN, "message too long"),
        ("Four words are enough.", "A few words only.", "storyline too short"),
        ("Four words are enough.", " ".join(["word"] * 181), "storyline too long"),
        ("Four words are enough.", SEEN, None),
    ],
)
def test_lengths(message: str, storyline: str, expected: str | None) -> None:
    assert code(Lengths(), message, storyline) == expected


def test_bounds_of_lengths_are_inclusive() -> None:
    assert code(Lengths([1, 2], [1, 3]), "Two words.", "Just three words.") is None
    with pytest.raises(ValueError, match=r"message_words is \[5, 3\]; it is the least and the most"):
        Lengths([5, 3])


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Der Mann steht auf der Straße und wartet auf den Bus, der nicht kommt.", "de"),
        ("Une femme ouvre un parapluie rouge dans la rue et le vent est fort.", "fr"),
        ("La mujer abre un paraguas rojo en la calle y el viento es fuerte.", "es"),
        ("La donna apre un ombrello rosso nella strada e il vento è forte per tutti.", "it"),
        ("A mulher abre um guarda-chuva na rua e o vento não para, mas ela está feliz.", "pt"),
        ("De vrouw opent een rode paraplu op de straat en het waait er hard.", "nl"),
        ("Женщина открывает красный зонт на улице.", "ru"),
        ("女性が通りで赤い傘を開く。", "ja"),
        ("一个女人在街上打开一把红伞。", "zh"),
        ("한 여자가 거리에서 빨간 우산을 편다.", "ko"),
        ("امرأة تفتح مظلة حمراء في الشارع.", "ar"),
        (SEEN, "en"),
        ("Crème brûlée at the café is a résumé of naïve hopes.", "en"),
        ("Guten Tag", None),
        ("… 123 !", None),
    ],
)
def test_languages(text: str, language: str | None) -> None:
    assert language_of(text) == language
    assert language is None or language in LANGUAGES


def test_another_language_can_be_asked_for() -> None:
    german = (
        "Die Frau öffnet an der Haltestelle den roten Schirm und hält ihn über das Kind, das nicht lacht."
    )
    assert code(Language("de"), "Fremde teilen ein Dach, bevor sie sich mit Namen kennen.", german) is None
    assert code(Language(), "Strangers share a roof.", german) == "storyline not in en"
    assert code(Language("de")) == "storyline not in de"
    with pytest.raises(ValueError, match="language is 'tlh'; known: en, de"):
        Language("tlh")


@pytest.mark.parametrize(
    ("message", "storyline", "expected"),
    [
        (
            "Strangers share shelter before names.",
            f"{SEEN} Strangers sharing a shelter.",
            "message's words in the storyline",
        ),
        (
            "Umbrellas open doors that words close.",
            SEEN,
            None,
        ),  # one of five: "open", and umbrella makes two of five
        ("The umbrella is a bridge.", SEEN, None),  # one shared word is not enough
        (
            PATIENCE,
            f"{SEEN} It is a kind of courage.",
            "run of the message in the storyline",
        ),
        ("It is one of the best of all.", f"{SEEN} It is one of the few.", None),  # a run of function words
        ("A red umbrella at a bus stop moves hearts.", SEEN, "message's words in the storyline"),
    ],
)
def test_messages_that_are_stated(message: str, storyline: str, expected: str | None) -> None:
    assert code(Stated(), message, storyline) == expected


def test_options_of_stated() -> None:
    message, storyline = "Umbrellas open doors that words close.", SEEN
    assert code(Stated(share=0.3), message, storyline) == "message's words in the storyline"
    assert code(Stated(share=0.3, least=3), message, storyline) is None
    run = PATIENCE, f"{SEEN} It is a kind of courage."
    assert code(Stated(run=6), *run) is None
    assert code(Stated(run=0), *run) is None
    with pytest.raises(ValueError, match="share lies between 0 and 1"):
        Stated(share=2)


@pytest.mark.parametrize(
    ("persona", "storyline", "expected"),
    [
        ("a bus driver who collects umbrellas", SEEN, "persona in the texts"),
        ("a lighthouse keeper in Norway", f"{SEEN} A lighthouse keeper waves.", "persona in the texts"),
        (KEEPER, f"{SEEN} The lighthouse keeper waves.", "persona in the texts"),
        (KEEPER, f"{SEEN} The lighthouse is dark.", None),
        (KEEPER, f"{SEEN} The keeper waits.", "persona in the texts"),
        (KEEPER, f"{SEEN} Keepers and sailors wait.", None),
        ("a forty-year-old notary who fishes", f"{SEEN} A forty-year-old dog.", None),
        ("a chef", f"{SEEN} The chef waves.", "persona in the texts"),
        ("a chef", SEEN, None),
        ("", SEEN, None),
    ],
)  # fmt: skip
def test_personas_that_leak(persona: str, storyline: str, expected: str | None) -> None:
    assert code(PersonaLeak(), "A point.", storyline, persona=persona) == expected


def test_options_of_the_persona() -> None:
    given = {"persona": KEEPER}
    storyline = f"{SEEN} The lighthouse keeper waves."
    assert code(PersonaLeak(neighbours=False), "A point.", storyline, **given) == "persona in the texts"
    alone = {"neighbours": False, "profession": False}
    assert code(PersonaLeak(**alone), "A point.", storyline, **given) is None
    assert code(PersonaLeak(**alone, share=0.2), "A point.", storyline, **given) == "persona in the texts"
    assert code(PersonaLeak(**alone, share=0.2, least=3), "A point.", storyline, **given) is None
    with pytest.raises(ValueError, match="least is at least 1"):
        PersonaLeak(least=0)


ESSAY = (
    "The pursuit of success brings a profound struggle between ambition and humility in society. "
    "Identity and belief become a journey of growth, and every choice has its consequence. Culture "
    "keeps its traditions through memory."
)
THIN = " ".join(
    ["Quarterly procedures continue according to schedule despite administrative postponements."] * 5
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_watched_words_stand_in_every_match(data: st.DataObject) -> None:
    expressions = {**phrases.TASK, **phrases.WORN, **density.EXPLAINS}
    expression = data.draw(st.sampled_from(sorted(expressions)))
    around = st.sampled_from(["", "x", "_", "'", "'s", "’s", "é", " '"])
    match = data.draw(st.from_regex(re.compile(expression, re.IGNORECASE | re.MULTILINE | re.ASCII)))
    text = data.draw(around) + match + data.draw(around)
    words = Draft(Pair(text, "A point.")).words
    if re.search(expression, text, re.IGNORECASE | re.MULTILINE):
        assert not expressions[expression] or words & {*expressions[expression].split()}
        assert Watched({expression: expressions[expression]}).first(text, words)


@given(st.text(st.sampled_from("ab.!?…\"'”’)] \n"), max_size=30))
def test_the_last_sentence_is_that_of_splitting_them_all(text: str) -> None:
    text = text.strip()
    assert last_sentence(text) == re.split(r"(?<=[.!?…])[\"'”’)\]]*\s+", text)[-1]


@pytest.mark.parametrize(
    ("storyline", "expected"),
    [
        (SEEN, None),
        (f"{SEEN} The message is clear.", "storyline explains"),
        (f"{SEEN} The scene shows that people care.", "storyline explains"),
        (f"{SEEN} The umbrella symbolizes trust.", "storyline explains"),
        (f"{SEEN} She nods as if to say yes.", "storyline explains"),
        (f"{SEEN} Viewers realise what she did.", "storyline explains"),
        (ESSAY, "storyline abstract"),
        (THIN, "storyline shows little"),
        (f"{SEEN} In the end, kindness is what matters.", "storyline ends on a moral"),
        (f"{SEEN} Sometimes people never learn.", "storyline ends on a moral"),
        (f"{SEEN} The door is always open and a cat is on the table.", None),  # it shows something
        (f"{SEEN} The scene shows a second bus.", None),
        ("", "storyline without words"),
    ],
)
def test_density(storyline: str, expected: str | None) -> None:
    assert code(Density(), "A point.", storyline) == expected


def test_options_of_density() -> None:
    assert code(Density(abstract=0.5, concrete=0.0), "A point.", ESSAY) is None
    assert code(Density(concrete=0.0), "A point.", THIN) is None
    assert code(Density(concrete=0.9)) == "storyline shows little"
    with pytest.raises(ValueError, match="both lie between 0 and 1"):
        Density(concrete=3)


@pytest.mark.parametrize(
    ("message", "storyline", "expected"),
    [
        ("I'm sorry, but I can't do that.", SEEN, "refusal"),
        ("A point.", "As an AI, I cannot see clips.", "refusal"),
        ("A point.", f"{SEEN} The persona smiles.", "talks about the task"),
        ("[message]", SEEN, "talks about the task"),
        ("A point.", f"Storyline: {SEEN}", "talks about the task"),
        ("A point.", f"Here is the caption: {SEEN}", "talks about the task"),
        ("Her smile is a testament to hope.", SEEN, "boilerplate"),
        ("It's not about winning, it's about trying.", SEEN, "boilerplate"),
        ("Sorrow is a slow letter.", SEEN, None),
        ("A point.", f"{SEEN} Personal things lie there: a cup, a key.", None),
    ],
)
def test_phrases(message: str, storyline: str, expected: str | None) -> None:
    assert code(Phrases(), message, storyline) == expected


def test_options_of_phrases() -> None:
    assert code(Phrases(worn=False), "Her smile is a testament to hope.") is None
    assert code(Phrases(further=[r"\bumbrellas?\b"])) == "boilerplate"
    with pytest.raises(ValueError, match="is no regular expression"):
        Phrases(further=["("])


# ---- all pairs together


def codes(one: SetFilter, pairs: Sequence[Pair]) -> list[str | None]:
    return [None if reason is None else reason.code for reason in one.reasons(pairs)]


def test_messages_that_repeat() -> None:
    pairs = [
        pair("Old friends forgive late replies."),
        pair("old friends, forgive late replies"),
        pair("Old friends are forgiving of late replies."),
        pair("Old friends forgive everything else."),
        pair("Doors close quietly in big houses."),
    ]
    expected = [None, "message repeated", "message nearly repeated", None, None]
    assert codes(MessageDuplicates(), pairs) == expected
    assert codes(MessageDuplicates(1.1), pairs) == [None, "message repeated", None, None, None]
    assert codes(MessageDuplicates(0.4), pairs)[3] == "message nearly repeated"
    with pytest.raises(ValueError, match="must be above 0"):
        MessageDuplicates(0)


def test_of_three_in_a_row_the_first_stays_and_the_last_may() -> None:
    """b is near a, c is near b alone: b goes, and c has nobody left to be near to."""
    a, b, c = "one two three four five", "one two three four six", "one two nine four six"
    assert codes(MessageDuplicates(0.6), [pair(text) for text in (a, b, c)]) == [
        None,
        "message nearly repeated",
        None,
    ]


def test_storylines_that_repeat() -> None:
    words = SEEN.split()
    near = " ".join([*words[:-3], "under", "grey", "clouds."])
    pairs = [pair("a", SEEN), pair("b", SEEN.upper()), pair("c", near), pair("d", " ".join(reversed(words)))]
    assert codes(StorylineDuplicates(), pairs) == [
        None,
        "storyline repeated",
        "storyline nearly repeated",
        None,
    ]
    assert codes(StorylineDuplicates(1.0), pairs) == [None, "storyline repeated", None, None]


def test_filters_by_meaning() -> None:
    pairs = [
        pair("ant bee", "Ants go by. An ant; bees."),
        pair("apple bread", "Cows moo."),
        pair("cow", "Dogs."),
    ]
    assert codes(MessageMeanings(Letters()), pairs) == [None, "message means the same", None]
    assert codes(MessageMeanings(Letters(), cosine=1.01), pairs) == [None] * 3
    assert codes(
        StatedMeaning(Letters()), [pair("ant bee", "Dogs. Ant bee."), pair("ant bee", "Dogs. Cow.")]
    ) == [
        "a sentence means the message",
        None,
    ]


def test_a_text_that_cannot_be_embedded_is_near_nothing() -> None:
    vectors = vectors_of(["ant", "…", "ant"], Letters())
    assert not vectors[1].any()
    assert near_vectors(vectors, 0.5) == [(0, 2, 1.0)]


def test_near_vectors_are_those_of_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    from vidvec_msg.data_synth.filters import meaning

    vectors = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = vectors @ vectors.T
    expected = [(i, j) for i in range(60) for j in range(i + 1, 60) if whole[i, j] >= 0.8]
    monkeypatch.setattr(meaning, "_BLOCK", 7)
    assert [(one.one, one.other) for one in near_vectors(vectors, 0.8)] == expected


@given(
    st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), max_size=25),
    st.sampled_from([0.3, 0.5, 0.6, 0.8, 1.0]),
)
@settings(max_examples=200, deadline=None)
def test_near_sets_are_those_of_comparing_all_with_all(sets: list[frozenset[str]], least: float) -> None:
    firsts = [row for row, words in enumerate(sets) if words and sets.index(words) == row]
    expected = {
        (sets.index(words), row) for row, words in enumerate(sets) if words and sets.index(words) != row
    }
    for one in firsts:
        for other in firsts:
            shared = len(sets[one] & sets[other])
            if one < other and shared / len(sets[one] | sets[other]) >= least:
                expected.add((one, other))
    assert {(pair.one, pair.other) for pair in near_sets(sets, least=least)} == expected


@pytest.mark.parametrize("everywhere", [0, 6], ids=["counted", "looked up"])
def test_no_near_pair_is_missed_among_sets_of_the_same_words(everywhere: int) -> None:
    """Each of 40 words is in hundreds of sets; with six that all sets hold, pairs are looked up instead."""
    dice = random.Random(everywhere)
    words, shared = [f"w{n}" for n in range(40)], [f"a{n}" for n in range(everywhere)]
    drawn = (frozenset([*dice.sample(words, 5), *shared]) for _ in range(3_000))
    sets = list(dict.fromkeys(drawn))
    size = 5 + everywhere
    expected = {
        (one, other)
        for other in range(len(sets) - 100, len(sets))
        for one in range(other)
        if len(sets[one] & sets[other]) == size - 1
    }
    assert len(expected) > 50
    found = near_sets(sets, least=(size - 1) / (size + 1))
    assert {(pair.one, pair.other) for pair in found if pair.other >= len(sets) - 100} == expected


def test_each_message_is_embedded_once_in_a_whole_run(tmp_path: Path) -> None:
    """By two filters, by the groups and by the measures of variety."""
    Counting.asked.clear()
    rows = [{"anchor": one.anchor, "positive": one.positive} for one in OURS[:40]]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = {"message_meanings": {"cosine": 1.01}, "stated_meaning": {"cosine": 1.01}}
    spec = "data_synth.letter_embedders:Counting"
    filter_pairs(str(path), tmp_path / "out", embedder=spec, filters=options)
    times = Counter(Counting.asked)
    assert {times[one.positive] for one in OURS[:40]} == {1}
    assert max(times.values()) == 1
    steps = json.loads((tmp_path / "out" / "summary.json").read_text())["funnel"]
    assert [step["given"] for step in steps[-2:]] == [40, 40]


def test_vectors_that_are_kept_are_those_of_the_embedder() -> None:
    vectors = TextVectors(Letters())
    for texts in (["ant", "bee", "ant"], ["cow", "bee", "…"], []):
        assert np.array_equal(vectors.of(texts), vectors_of(texts, Letters()))
        assert np.array_equal(vectors.once(texts), vectors_of(texts, Letters()))


# ---- the chain


def test_options_reach_the_filters_and_null_leaves_one_out() -> None:
    problems = Problems("filters")
    built = build_filters(
        {"lengths": {"message_words": [1, 2]}, "density": None, "language": False}, problems
    )
    assert problems.found == []
    assert [one.name for one in built] == [
        "phrases", "lengths", "stated", "persona", "message_duplicates", "storyline_duplicates",
    ]  # fmt: skip
    _, rejects, steps = apply_filters([pair()], built)
    assert str(rejects[0].reason) == "message too long: 7 words, at most 2"
    assert {step.filter: step.rejected for step in steps}["lengths"] == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stated": {"share": 3}}, "filters: stated: share is 3"),
        (
            {"persona": {"proffesion": False}},
            "persona has no option 'proffesion' (did you mean 'profession'?)",
        ),
        ({"stated": 3}, "filters: stated is 3; it takes a table of share, least, run, or null"),
        ({"message_meanings": {}}, "message_meanings compares vectors; give --embedder SPEC"),
        ({"lengths": {"message_words": 3}}, "filters: lengths: "),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], told: str) -> None:
    problems = Problems("filters")
    build_filters(options, problems)
    assert told in problems.found[0]


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_no_pair_is_lost_or_doubled(seed: int) -> None:
    """Kept and rejected together are what came in, and the funnel adds up."""
    dice = random.Random(seed)
    given = [
        Pair(
            dice.choice([one.anchor, ESSAY, SEEN, "Short."]),
            dice.choice([one.positive, "No.", OURS[0].positive]),
            id=str(n),
        )
        for n, one in enumerate(dice.sample(OURS, 40))
    ]  # fmt: skip
    kept, rejects, steps = apply_filters(iter(given), build_filters(None, Problems("x")))
    assert sorted([one.id for one in kept] + [one.pair.id for one in rejects]) == sorted(
        one.id for one in given
    )
    assert [one.id for one in kept] == [one.id for one in given if one in kept]
    left = len(given)
    for step in steps:
        assert step.given == left
        left -= step.rejected
    assert left == len(kept)


# ---- groups, splits, variety


def test_near_messages_share_a_group_and_a_side() -> None:
    texts = [
        "Old friends forgive late replies.",
        "Old friends forgive replies.",
        "Friends forgive slow replies.",
        "Doors.",
    ]
    rows = grouped([Pair(SEEN, text, id=f"r{n}") for n, text in enumerate(texts)])
    assert [row.group for row in rows] == ["r0", "r0", "r0", None]
    for seed in range(40):
        assert len({split_of(row, 0.5, seed) for row in rows[:3]}) == 1
    assert {split_of(row, 0.5, seed) for seed in range(40) for row in rows[:1]} == {"train", "validation"}


def test_rows_that_came_in_one_group_stay_together_when_one_of_them_is_near_another() -> None:
    texts = ["Old friends forgive late replies", "Doors open for the patient", "Old friends forgive replies"]
    given = ["g", "g", None]
    rows = grouped([Pair(SEEN, text, id=f"r{n}", group=given[n]) for n, text in enumerate(texts)])
    assert [row.group for row in rows] == ["g", "g", "g"]
    rows = grouped([Pair(SEEN, texts[n], id=f"r{n}", group=given[n]) for n in (2, 0, 1)])
    assert [row.group for row in rows] == ["r2", "r2", "r2"]


def test_no_two_near_messages_lie_on_both_sides() -> None:
    dice = random.Random(0)
    words = [one.positive for one in OURS]
    texts = words + [" ".join(text.split()[:-1]) for text in dice.sample(words, 200)]
    rows = grouped([Pair(SEEN, text, id=str(n)) for n, text in enumerate(texts)])
    sides = [split_of(row, 0.3, 1) for row in rows]
    assert 0.2 < sides.count("validation") / len(sides) < 0.4
    stems = [set(content_stems(words_of(row.positive))) for row in rows]
    for one in range(len(rows)):
        for other in range(one):
            if (
                len(stems[one] & stems[other]) >= 0.75 * len(stems[one] | stems[other])
                and len(stems[one]) > 3
            ):
                assert sides[one] == sides[other], (rows[one].positive, rows[other].positive)


def test_distinct_by_hand() -> None:
    assert distinct([["a", "b", "a"], ["a", "b"]], 1) == 0.4
    assert distinct([["a", "b", "a"], ["a", "b"]], 2) == pytest.approx(0.6667, abs=1e-4)
    assert distinct([["a"]], 2) == 0.0


def test_variety_falls_when_pairs_repeat() -> None:
    fresh = diversity(OURS[:200])
    stale = diversity(OURS[:20] * 10)
    assert stale["messages"]["distinct_2"] < fresh["messages"]["distinct_2"]
    assert stale["self_similarity"]["nearest"] > 0.99 > fresh["self_similarity"]["nearest"]
    assert diversity(OURS[:1]) == {}
    assert (
        diversity(OURS[:50], vectors_of([one.positive for one in OURS[:50]], Letters()))["self_similarity"][
            "by"
        ]
        == "embedder"
    )


def test_entropy_is_one_for_an_even_space_and_falls_for_a_collapsed_one() -> None:
    even = np.repeat(np.eye(4, dtype=np.float32), 8, axis=0)[np.random.default_rng(0).permutation(32)]
    assert entropy_growth(even, 0)[-1]["entropy"] > 0.7
    one = np.tile(np.eye(4, dtype=np.float32)[:1], (32, 1))
    assert entropy_growth(one, 0)[-1]["entropy"] == 0.0
    assert tfidf([["the"], ["red", "door"]]).shape[0] == 2


# ---- the verb


def test_filter_pairs_writes_what_stays_and_why_the_others_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"query": one.anchor, "pos": [one.positive], "who": one.provenance["persona"]} for one in OURS[:30]
    ]
    rows[3]["query"] += f" {rows[3]['pos'][0]}"
    rows[4]["who"] = "a grey-haired woman at a café table who sketches gardens in yellow chalk"
    rows[4]["query"] = OURS[0].anchor + " She sips."
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    filter_pairs(str(path), tmp_path / "out", persona_column="who", validation_share=0.3)
    rejects = [
        json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text("utf-8").splitlines()
    ]
    assert {row["id"]: row["step"] for row in rejects} == {"row4": "stated", "row5": "persona"}
    assert rejects[0]["storyline"] == rows[3]["query"]
    assert len(read_pairs(tmp_path / "out" / "pairs.jsonl")) == 28
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["made_by"] == "vidvec-msg filter-pairs"
    assert summary["funnel"][3] == {
        "step": "stated",
        "given": 30,
        "left": 29,
        "reasons": {"message's words in the storyline": 1},
    }
    assert "persona in the texts" in capsys.readouterr().out
    assert (tmp_path / "out" / "funnel.png").read_bytes()[:4] == b"\x89PNG"
    assert "![What is left after each step](funnel.png)" in (tmp_path / "out" / "card.md").read_text()


def test_filter_pairs_leaves_the_folder_of_other_pairs_alone(tmp_path: Path) -> None:
    for name, some in (("one", OURS[:8]), ("other", OURS[8:12])):
        lines = [json.dumps({"anchor": one.anchor, "positive": one.positive}) for one in some]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    one, out = str(tmp_path / "one.jsonl"), tmp_path / "out"
    filter_pairs(one, out, validation_share=0.4)
    assert sorted(path.name for path in (out / "splits").iterdir()) == ["train.jsonl", "validation.jsonl"]
    with pytest.raises(RefusedRequest, match=r"holds other pairs, filtered: pairs was .*one.jsonl"):
        filter_pairs(str(tmp_path / "other.jsonl"), out)
    filter_pairs(one, out, filters={"stated": None})  # other filters on the same pairs
    assert len(read_pairs(out / "pairs.jsonl")) == 8
    assert list((out / "splits").iterdir()) == []  # nothing is left of the first run's splits


def test_filter_pairs_refuses_a_model_that_nobody_asks(tmp_path: Path) -> None:
    given = {"endpoint": "http://localhost:1/v1", "model": "m", "budget": 1.0}
    with pytest.raises(RefusedRequest, match="endpoint, model, budget: no model is asked; add --judge or"):
        filter_pairs(str(ROOT / "data/pairs.jsonl"), tmp_path / "o", **given)
    with pytest.raises(RefusedRequest, match=r"model: no model is asked; .* or leave it out"):
        filter_pairs(str(ROOT / "data/pairs.jsonl"), tmp_path / "o", model="m")
    with pytest.raises(RefusedRequest, match="concurrency, timeout: no model is asked"):
        filter_pairs(str(ROOT / "data/pairs.jsonl"), tmp_path / "o", concurrency=4, timeout=9.0)
    assert not (tmp_path / "o").exists()


def test_a_chain_of_near_messages_is_warned_of_with_its_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message shares two thirds of its words with the next one, and none with those further on."""
    words = [
        word for word in dict.fromkeys(words_of(" ".join(one.positive for one in OURS))) if len(word) > 5
    ]
    chain = [" ".join(words[start : start + 5]).capitalize() + "." for start in range(60)]
    for size, warned in ((60, True), (20, False)):
        rows = [{"anchor": one.anchor, "positive": chain[n]} for n, one in enumerate(OURS[:size])]
        rows += [{"anchor": one.anchor, "positive": one.positive} for one in OURS[100:130]]
        path = tmp_path / f"{size}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        caplog.clear()
        filter_pairs(str(path), tmp_path / f"out{size}", filters={"message_duplicates": None})
        largest = json.loads((tmp_path / f"out{size}" / "summary.json").read_text())["groups"]["largest"]
        told = f"the largest group of near messages has {largest} of {size + 30} pairs"
        assert (largest > 50, told in caplog.text) == (warned, warned)


def test_filter_pairs_refuses_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest) as caught:
        filter_pairs("none.jsonl", tmp_path / "o", filters={"stats": {}}, judge=True, validation_share=2)
    for told in ("unknown filter 'stats'", "give --model NAME", "no such file", "validation_share is 2"):
        assert told in str(caught.value)
    assert not (tmp_path / "o").exists()

"""How questions are drawn."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval.mcq.exams import MESSAGES, messages, question

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection, write_collection
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.mcq.protocols import make_exam
from vidvec_msg.retrieval.mcq.question import best_option, wording


def shown(exam) -> dict[str, tuple[list[str], int]]:
    return {one.id: ([option.id for option in one.options], one.right) for one in exam.questions}


# --- VidMsg ---------------------------------------------------------------------------------------------


def test_five_messages_of_the_clips_topic_one_of_them_right(tmp_path):
    collection = messages(tmp_path)
    exam = make_exam(collection)
    assert exam.protocol == "vidmsg"
    assert len(exam.questions) == len(collection.corpus)
    for one in exam.questions:
        ids = [option.id for option in one.options]
        assert len(set(ids)) == 5
        assert {name[:2] for name in ids} == {one.id[:2]}
        assert [name for name in ids if one.id in collection.qrels["test"][name]] == [ids[one.right]]
        assert one.groups == {"topic": f"topic {one.id[1]}", "mood": f"mood {one.id[-1]}"}


def test_the_seed_alone_decides_and_not_the_order_of_the_rows(tmp_path):
    exam = make_exam(messages(tmp_path / "a"), seed=3)
    assert shown(exam) == shown(make_exam(messages(tmp_path / "b", reverse=True), seed=3))
    assert shown(exam) != shown(make_exam(messages(tmp_path / "c"), seed=4))


def test_a_clip_is_asked_the_same_whatever_other_clips_there_are(tmp_path):
    few, many = make_exam(messages(tmp_path / "a", clips=1)), make_exam(messages(tmp_path / "b", clips=4))
    assert shown(few).items() <= shown(many).items()


def test_the_right_option_stands_at_every_letter_about_equally_often(tmp_path):
    exam = make_exam(messages(tmp_path, topics=2, clips=25))
    places = Counter(one.right for one in exam.questions)
    assert set(places) == set(range(5))
    assert min(places.values()) > 0.6 * len(exam.questions) / 5


def test_messages_that_are_right_for_the_clip_too_are_no_alternatives(tmp_path):
    collection = messages(tmp_path)
    qrels = {name: dict(clips) for name, clips in collection.qrels["test"].items()}
    qrels["t0m1"]["t0m0c0"] = 1
    both = Collection(collection.root, collection.corpus, collection.queries, {"test": qrels})
    asked = [one for one in make_exam(both).questions if one.clip.id == "t0m0c0"]
    assert [one.id for one in asked] == ["t0m0c0 | t0m0", "t0m0c0 | t0m1"]
    for one in asked:
        right = one.options[one.right].id
        assert right == one.id[-4:]
        assert {"t0m0", "t0m1"} & {option.id for option in one.options} == {right}


def test_a_message_of_the_same_words_is_no_alternative(tmp_path):
    collection = messages(tmp_path)
    rows = [
        {"_id": item.id, "text": "Apple  wisdom 0" if item.id == "t0m1" else item.text,
         "groups": dict(item.groups)}
        for item in collection.queries
    ]  # fmt: skip
    corpus = [{"_id": item.id, "text": item.text} for item in collection.corpus]
    write_collection(tmp_path, corpus=corpus, queries=rows, qrels=collection.qrels)
    exam = make_exam(Collection.load(tmp_path))
    (one,) = [one for one in exam.questions if one.id == "t0m0c0"]
    assert "t0m1" not in {option.id for option in one.options}
    assert len(one.options) == 5


def test_a_topic_with_few_messages_gives_fewer_options_and_says_so(tmp_path):
    collection = messages(tmp_path)
    qrels = {
        name: clips for name, clips in collection.qrels["test"].items() if name < "t0m3" or name[1] == "1"
    }
    exam = make_exam(Collection(collection.root, collection.corpus, collection.queries, {"test": qrels}))
    assert {len(one.options) for one in exam.questions if one.id.startswith("t0")} == {3}
    assert exam.remarks[0].startswith("9 questions have fewer than 5 options")
    assert {one.chance for one in exam.questions} == {1 / 3, 1 / 5}


def test_messages_without_the_group_are_refused(tmp_path):
    with pytest.raises(RefusedRequest, match=r"12 problems[\s\S]*'t0m0' has no group 'theme'"):
        make_exam(messages(tmp_path), group="theme")


def test_an_unknown_split_or_protocol_is_refused(tmp_path):
    with pytest.raises(RefusedRequest, match="split 'dev' does not exist; there are: test"):
        make_exam(messages(tmp_path), split="dev")
    with pytest.raises(RefusedRequest, match="it is auto, vidmsg, vhub, avmeme"):
        make_exam(messages(tmp_path), protocol="other")


# --- v-HUB ----------------------------------------------------------------------------------------------


def captions(folder, clips: int = 7) -> Collection:
    queries, qrels = [], {"test": {}, "descriptive": {}}
    for number in range(clips):
        for kind, split in (("creative", "test"), ("descriptive", "descriptive")):
            name = f"v{number}#{kind}"
            queries.append({"_id": name, "text": f"{kind} words {number}", "groups": {"caption": kind}})
            qrels[split][name] = {f"v{number}": 1}
    corpus = [{"_id": f"v{number}", "text": f"clip {number}"} for number in range(clips)]
    write_collection(folder, corpus=corpus, queries=queries, qrels=qrels)
    return Collection.load(folder)


def test_a_creative_caption_among_descriptive_ones_of_four_other_clips(tmp_path):
    exam = make_exam(captions(tmp_path))
    assert exam.protocol == "vhub"
    assert len(exam.questions) == 7
    for one in exam.questions:
        ids = [option.id for option in one.options]
        assert len(ids) == 5
        assert ids[one.right] == f"{one.clip.id}#creative"
        others = ids[: one.right] + ids[one.right + 1 :]
        assert all(name.endswith("#descriptive") and not name.startswith(one.clip.id) for name in others)


def test_captions_of_one_kind_alone_are_refused(tmp_path):
    with pytest.raises(RefusedRequest, match="creative and others with descriptive; there are 0 and 0"):
        make_exam(messages(tmp_path), protocol="vhub")


# --- AVMeme ---------------------------------------------------------------------------------------------


def own(folder, *rows) -> Collection:
    collection = messages(folder)
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return collection


ROW = {"_id": "a", "clip": "t0m0c0", "question": "Which system?", "options": ["Windows", "macOS", "Linux"],
       "answer": 1, "groups": {"question_type": "world"}}  # fmt: skip


def test_own_questions_keep_their_options_and_are_shuffled_by_the_seed(tmp_path):
    rows = [{**ROW, "_id": f"q{number}"} for number in range(30)]
    exam = make_exam(own(tmp_path, *rows))
    assert exam.protocol == "avmeme"
    assert {tuple(sorted(option.text for option in one.options)) for one in exam.questions} == {
        ("Linux", "Windows", "macOS")
    }
    assert {one.options[one.right].text for one in exam.questions} == {"macOS"}
    assert {one.right for one in exam.questions} == {0, 1, 2}
    assert exam.questions[0].groups == {"mood": "mood 0", "question_type": "world"}
    assert not exam.questions[0].alone


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clip": "nowhere"}, "line 1: the clip 'nowhere' is not in corpus.jsonl"),
        ({"answer": 3}, "the answer is 3 of 3 options"),
        ({"answer": "macOS"}, "it is a position from 0"),
        ({"options": ["a", "a"], "answer": 0}, "a list of different texts"),
        ({"options": ["a"], "answer": 0}, "1 options; there are letters for 2 to 26"),
    ],
)
def test_own_questions_that_cannot_be_asked_are_refused_by_line(change, words, tmp_path):
    with pytest.raises(RefusedRequest, match=words):
        make_exam(own(tmp_path, {**ROW, **change}))


def test_own_questions_without_a_field_or_with_an_id_twice_are_refused(tmp_path):
    broken = {key: value for key, value in ROW.items() if key != "answer"}
    with pytest.raises(RefusedRequest, match=r"2 problems[\s\S]*'answer' is missing[\s\S]*'a' stands twice"):
        make_exam(own(tmp_path, broken, ROW, ROW))


def test_clips_that_show_their_answer_are_heard_and_not_seen(tmp_path):
    folder = tmp_path / "clips"
    rows = [
        {"_id": "plain", "video": "a.mp4", "groups": {"visual_hint": "no text"}},
        {"_id": "shows", "video": "b.mp4", "ocr": "It was macOS", "transcript": "beep",
         "groups": {"visual_hint": "title/name, Visual contains solution"}},
        {"_id": "flagged", "video": "c.mp4", "start": 1.0, "groups": {"visual_cheat": "True"}},
        {"_id": "words", "text": "a storyline", "groups": {"visual_cheat": "True"}},
    ]  # fmt: skip
    write_collection(
        folder, corpus=rows, queries=[{"_id": "q", "text": "beep"}], qrels={"test": {"q": {"plain": 1}}}
    )
    asked = [{**ROW, "_id": row["_id"], "clip": row["_id"]} for row in rows]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    collection = Collection.load(folder)
    exam = make_exam(collection)
    clips = {one.id: one.clip for one in exam.questions}
    assert {name: clip.modality for name, clip in clips.items()} == {
        "plain": "video", "shows": "audio", "flagged": "audio", "words": "text",
    }  # fmt: skip
    assert clips["shows"].audio == collection.corpus[1].video
    assert (clips["shows"].ocr, clips["shows"].transcript, clips["flagged"].start) == (None, "beep", 1.0)
    assert exam.remarks == (
        "2 questions are about clips that show their answer (visual_cheat): they are asked with the sound "
        "alone, as AVMeme Exam does (§2.2)",
    )
    kept = make_exam(collection, visual_cheat="keep")
    assert {one.clip.modality for one in kept.questions} == {"video", "text"}
    assert "with their pictures, which AVMeme Exam leaves out" in kept.remarks[0]
    assert shown(kept) == shown(exam)
    with pytest.raises(RefusedRequest, match="visual_cheat is 'drop'; it is omit or keep"):
        make_exam(collection, visual_cheat="drop")


def test_without_the_file_there_are_no_own_questions(tmp_path):
    with pytest.raises(RefusedRequest, match=r"has no questions\.jsonl"):
        make_exam(messages(tmp_path), protocol="avmeme")


# --- a question -----------------------------------------------------------------------------------------


@given(count=st.integers(2, 26), right=st.integers(0, 25), by=st.integers(0, 60))
def test_a_rotated_question_is_the_same_question_at_other_letters(count, right, by):
    right %= count
    one = question("q", *(f"text {number}" for number in range(count)), right=right)
    turned = one.rotated(by)
    assert turned.options[turned.right] == one.options[one.right]
    assert turned.right == (right + by) % count
    assert set(turned.options) == set(one.options)
    assert one.rotated(by).rotated(count - by % count) == one


def test_every_letter_is_visited_by_all_rotations():
    one = question(right=2)
    assert {one.rotated(by).right for by in range(4)} == {0, 1, 2, 3}


def test_the_words_hold_every_option_and_say_when_the_clip_is_missing():
    one = question(clip=Item("c", text="secret", transcript="spoken words"))
    told = wording(one, with_clip=True)
    assert told.splitlines() == [
        "Which?", "A. apple pie", "B. bridge toll", "C. candle light", "D. dog days",
        "Answer with the letter of the right option alone.",
    ]  # fmt: skip
    blind = wording(one, with_clip=False, transcript=True)
    assert blind.startswith("You are not shown the clip. Guess the best option.")
    assert "spoken words" not in blind
    assert wording(one, with_clip=True, transcript=True).startswith("What is said in the clip: spoken words")


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.randoms())
def test_ties_go_by_the_id_and_never_by_the_position(scores, dice):
    ids = [f"id {number}" for number in range(len(scores))]
    place, tied = best_option(scores, ids)
    order = list(range(len(scores)))
    dice.shuffle(order)
    moved, also = best_option([scores[number] for number in order], [ids[number] for number in order])
    assert order[moved] == place
    assert also == tied == (scores.count(max(scores)) > 1)
    assert ids[place] == max(name for name, score in zip(ids, scores, strict=True) if score == max(scores))


def test_the_repositorys_storylines_make_416_questions():
    from pathlib import Path

    exam = make_exam(Collection.load(Path(__file__).parents[3] / "data" / "storylines52"))
    assert len(exam.questions) == 416
    assert {len(one.options) for one in exam.questions} == {5}
    assert MESSAGES == 6

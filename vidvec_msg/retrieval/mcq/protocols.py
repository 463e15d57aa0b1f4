"""How questions are made of a collection: VidMsg's, v-HUB's and AVMeme Exam's way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, positives, reverse
from vidvec_msg.retrieval.mcq.question import LETTERS, Option, Question

Protocol = Literal["auto", "vidmsg", "vhub", "avmeme"]
VisualCheat = Literal["omit", "keep"]

QUESTIONS = "questions.jsonl"  # a benchmark's own, beside corpus.jsonl
OPTIONS = 5
_KIND = "caption"  # group of a caption: creative or descriptive

ASK = {
    "vidmsg": "Which of these messages does the clip convey?",
    "vhub": "Which of these captions belongs to the clip?",
}


@dataclass(frozen=True, slots=True)
class Exam:
    """Questions, and how they were made.

    Args:
        protocol: its name.
        questions: at least one.
        remarks: what a reader of the accuracy has to know.
    """

    protocol: str
    questions: tuple[Question, ...]
    remarks: tuple[str, ...] = ()


def make_exam(
    collection: Collection,
    *,
    protocol: Protocol = "auto",
    split: str = "test",
    seed: int = 0,
    group: str = "topic",
    visual_cheat: VisualCheat = "omit",
) -> Exam:
    """The questions of a collection.

    The same seed gives the same questions, whatever the order of the rows: each one draws by its own id.

    Args:
        collection: of any modality.
        protocol: "vidmsg": the clip's message among messages of its topic. "vhub": its creative caption among
            descriptive captions of other clips. "avmeme": the benchmark's own questions (questions.jsonl).
            "auto": avmeme where that file is, vhub where captions are creative and descriptive, else vidmsg.
        split: whose judgements say what is right.
        seed: of the draw and the order of the options.
        group: that the messages of a question share.
        visual_cheat: of avmeme: "omit" the pictures of clips that show their answer, or "keep" them.

    Raises:
        RefusedRequest: the collection has not what the protocol needs.
    """
    if visual_cheat not in ("omit", "keep"):
        raise RefusedRequest(f"visual_cheat is {visual_cheat!r}; it is omit or keep")
    if protocol == "auto":
        protocol = _protocol_of(collection)
    makers: Mapping[str, Callable[[], Exam]] = {
        "vidmsg": lambda: _same_group(collection, split, seed, group),
        "vhub": lambda: _caption_matching(collection, split, seed),
        "avmeme": lambda: _own_questions(collection, seed, omit=visual_cheat == "omit"),
    }
    if protocol not in makers:
        raise RefusedRequest(f"protocol is {protocol!r}; it is auto, {', '.join(makers)}")
    exam = makers[protocol]()
    if not exam.questions:
        raise RefusedRequest(f"collection {collection.root}: the protocol {protocol} finds nothing to ask")
    return exam


def _protocol_of(collection: Collection) -> Protocol:
    if (collection.root / QUESTIONS).is_file():
        return "avmeme"
    kinds = {item.groups.get(_KIND) for item in collection.queries}
    return "vhub" if {"creative", "descriptive"} <= kinds else "vidmsg"


# --- VidMsg §5.3: five messages of the clip's topic, one of them right ----------------------------------


def _same_group(collection: Collection, split: str, seed: int, group: str) -> Exam:
    messages = _texts(collection.queries)
    wanted = _clips_to_texts(collection, split)
    members: dict[str, list[str]] = {}
    problems = Problems(f"collection {collection.root}")
    for name in sorted({text for texts in wanted.values() for text in texts}):
        if group not in messages[name].groups:
            problems.add(f"query {name!r} has no group {group!r}, from which its alternatives would be drawn")
        else:
            members.setdefault(messages[name].groups[group], []).append(name)
    problems.refuse_if_any()
    questions, short, alone = [], 0, 0
    for clip in collection.corpus:
        for name in wanted.get(clip.id, ()):
            others = _different([name], members[messages[name].groups[group]], wanted[clip.id], messages)
            if not others:
                alone += 1
                continue
            short += len(others) < OPTIONS - 1
            identity = clip.id if len(wanted[clip.id]) == 1 else f"{clip.id} | {name}"
            options = [Option(one, messages[one].full_text) for one in (name, *others)]
            groups = {group: messages[name].groups[group], **clip.groups}
            questions.append(_drawn(identity, clip, ASK["vidmsg"], options, groups, seed))
    remarks = []
    if short:
        remarks.append(
            f"{short:,} questions have fewer than {OPTIONS} options: their {group} has no more messages. "
            "Chance is computed per question"
        )
    if alone:
        remarks.append(f"{alone:,} clips are not asked about: their {group} has no other message")
    return Exam("vidmsg", tuple(questions), tuple(remarks))


# --- v-HUB §3.1: a creative caption, and descriptive captions of four other clips -----------------------


def _caption_matching(collection: Collection, split: str, seed: int) -> Exam:
    captions = _texts(collection.queries)
    of_kind = {
        kind: [name for name, item in captions.items() if item.groups.get(_KIND) == kind]
        for kind in ("creative", "descriptive")
    }
    if not all(of_kind.values()):
        counts = " and ".join(str(len(names)) for names in of_kind.values())
        raise RefusedRequest(
            f"collection {collection.root}: the protocol vhub needs queries with the group {_KIND!r} "
            f"creative and others with descriptive; there are {counts}"
        )
    judged = _all_judgements(collection)
    clips = {item.id: item for item in collection.corpus}
    own: dict[str, set[str]] = {}  # clip → its captions of either kind
    for name, documents in judged.items():
        for clip in documents:
            own.setdefault(clip, set()).add(name)
    right = positives(collection.qrels.get(split, {}))
    questions, short = [], 0
    for name in of_kind["creative"]:
        for clip in right.get(name, {}):
            others = _different([name], of_kind["descriptive"], own.get(clip, set()), captions)
            short += len(others) < OPTIONS - 1
            if others:
                options = [Option(one, captions[one].full_text) for one in (name, *others)]
                identity = f"{clip} | {name}"
                questions.append(
                    _drawn(identity, clips[clip], ASK["vhub"], options, clips[clip].groups, seed)
                )
    remarks = [f"{short:,} questions have fewer than {OPTIONS} options"] if short else []
    return Exam("vhub", tuple(questions), tuple(remarks))


# --- AVMeme Exam §3: the benchmark's own questions, options shuffled ------------------------------------


def _own_questions(collection: Collection, seed: int, *, omit: bool) -> Exam:
    path = collection.root / QUESTIONS
    if not path.is_file():
        raise RefusedRequest(
            f"collection {collection.root} has no {QUESTIONS}, which the protocol avmeme reads: a line "
            '{"_id": …, "clip": id of the corpus, "question": …, "options": […], "answer": position}'
        )
    clips = {item.id: item for item in collection.corpus}
    problems = Problems(f"questions {path}")
    questions, seen = [], set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            question = _read_question(json.loads(line), clips, seed)
            if question.id in seen:
                raise ValueError(f"the _id {question.id!r} stands twice")
            seen.add(question.id)
            questions.append(question)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            problems.add(f"line {number}: {reason}")
    problems.refuse_if_any()
    given_away = {
        one.id for one in questions if one.clip.modality == "video" and shows_its_answer(one.groups)
    }
    if not given_away:
        return Exam("avmeme", tuple(questions))
    told = (
        f"{len(given_away):,} questions are about clips that show their answer (visual_cheat): they are "
        "asked "
    )
    if omit:
        questions = [
            replace(one, clip=_heard(one.clip)) if one.id in given_away else one for one in questions
        ]
        return Exam("avmeme", tuple(questions), (told + "with the sound alone, as AVMeme Exam does (§2.2)",))
    return Exam(
        "avmeme", tuple(questions), (told + "with their pictures, which AVMeme Exam leaves out (§2.2)",)
    )


def shows_its_answer(groups: Mapping[str, str]) -> bool:
    """Whether annotators found the answer in the pictures: AVMeme's ``visual_cheat``, or the value "visual
    contains solution" among its ``visual_hint``s."""
    hints = groups.get("visual_hint", "").casefold()
    flagged = groups.get("visual_cheat", "").strip().casefold() in ("true", "1", "yes")
    return flagged or "visual contains solution" in hints or "visual_cheat" in hints


def _heard(clip: Item) -> Item:
    """The clip without its pictures and without what is written in them."""
    return replace(clip, video=None, audio=clip.video if isinstance(clip.video, Path) else None, ocr=None)


def _read_question(row: Mapping[str, object], clips: Mapping[str, Item], seed: int) -> Question:
    name, clip, texts, answer = str(row["_id"]), str(row["clip"]), row["options"], row["answer"]
    if clip not in clips:
        raise ValueError(f"the clip {clip!r} is not in corpus.jsonl")
    if not isinstance(texts, list) or len(set(texts)) != len(texts):
        raise ValueError(f"options are {texts!r}; they must be a list of different texts")
    if not isinstance(answer, int) or not 0 <= answer < len(texts) <= len(LETTERS):
        raise ValueError(f"the answer is {answer!r} of {len(texts)} options; it is a position from 0")
    own = row.get("groups") or {}
    groups = {**clips[clip].groups, **(own if isinstance(own, dict) else {})}
    texts = [texts[answer], *texts[:answer], *texts[answer + 1 :]]
    options = [Option(f"{name}#{text}", str(text)) for text in texts]
    return _drawn(name, clips[clip], str(row["question"]), options, groups, seed, alone=False, draw=False)


# --- what they share ------------------------------------------------------------------------------------


def _drawn(
    name: str,
    clip: Item,
    words: str,
    options: Sequence[Option],
    groups: Mapping[str, str],
    seed: int,
    *,
    alone: bool = True,
    draw: bool = True,
) -> Question:
    """A question of the first option, which is right, and of alternatives drawn from the others; shuffled."""
    dice = random.Random(f"{seed}/{name}")
    right, others = options[0], sorted(options[1:], key=lambda option: option.id)
    if draw:
        others = dice.sample(others, min(OPTIONS - 1, len(others)))
    shown = [right, *others]
    dice.shuffle(shown)
    return Question(name, clip, words, tuple(shown), shown.index(right), alone, groups)


def _different(
    right: Sequence[str], names: Sequence[str], excluded: Sequence[str] | set[str], texts: Mapping[str, Item]
) -> list[str]:
    """Alternatives: not right for the clip too, and each text once."""
    taken = {" ".join(texts[name].full_text.split()).casefold() for name in (*right, *excluded)}
    found = []
    for name in sorted(names):
        text = " ".join(texts[name].full_text.split()).casefold()
        if text not in taken:
            taken.add(text)
            found.append(name)
    return found


def _texts(items: Sequence[Item]) -> dict[str, Item]:
    texts = {item.id: item for item in items if item.modality == "text" and item.full_text}
    if len(texts) < len(items):
        raise RefusedRequest(f"{len(items) - len(texts)} queries are no text; options are texts")
    return texts


def _clips_to_texts(collection: Collection, split: str) -> dict[str, list[str]]:
    if split not in collection.qrels:
        raise RefusedRequest(f"split {split!r} does not exist; there are: {', '.join(collection.qrels)}")
    return {clip: sorted(texts) for clip, texts in reverse(positives(collection.qrels[split])).items()}


def _all_judgements(collection: Collection) -> Qrels:
    judged: Qrels = {}
    for qrels in collection.qrels.values():
        for name, documents in positives(qrels).items():
            judged.setdefault(name, {}).update(documents)
    return judged

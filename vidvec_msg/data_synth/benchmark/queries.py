"""The third and fourth stage: search queries made from a story, and which of them give the message away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vidvec_msg.data_synth.benchmark.disclosure import disclosed_words
from vidvec_msg.data_synth.benchmark.left_out import Account, Left
from vidvec_msg.data_synth.benchmark.stage_file import Form, Row, StageFile, source_of
from vidvec_msg.data_synth.benchmark.stories import Story
from vidvec_msg.data_synth.benchmark.task import Task
from vidvec_msg.data_synth.chat import Reply
from vidvec_msg.data_synth.filters.words import words_of
from vidvec_msg.data_synth.parsing import Unusable, object_of, truths_of, words_in

QUERIES = Form(
    "queries", "queries", "story_id", ("id",),
    {"id": (str,), "story_id": (str,), "message_id": (str,), "query": (str,)},
    "their story, the template or the model",
)  # fmt: skip
JUDGED = Form(
    "judged", "judged queries", "id", ("id",),
    {"id": (str,), "message_id": (str,), "query": (str,), "passed": (bool,), "why": (str, None)},
    "their query, story, message, the template or the model",
)  # fmt: skip

ASKED = ("related", "discloses")
_MOST_WORDS = 15  # of a query: beyond, it is a sentence


@dataclass(frozen=True, slots=True)
class Query:
    """What is typed into a search.

    Args:
        id: the story's, a point, and the number.
        story: that it was made from.
        text: the words.
    """

    id: str
    story: Story
    text: str


@dataclass(frozen=True, slots=True)
class Asking:
    """Has queries written.

    Args:
        task: asks for those of a story.
        file: of the stage.
        count: queries per story.
        account: of stories that got none.
    """

    task: Task
    file: StageFile
    count: int
    account: Account

    def run(self, stories: Sequence[Story]) -> list[Query]:
        """The queries that there are now."""
        by_id = {story.id: story for story in stories}
        questions = {
            story.id: self.task.question(story.id, story=story.text, count=str(self.count))
            for story in stories
        }

        def make(ids: Sequence[str]) -> dict[str, list[Row]]:
            answers = self.task.answers([questions[one] for one in ids])
            return {one: self._rows(by_id[one], answers[one]["queries"]) for one in answers}

        self.account.enter("queries", len(stories))
        sources = {one: source_of(self.task.kind.key(question)) for one, question in questions.items()}
        units = self.file.settle(sources, make)
        for story in stories:
            if story.id not in units:
                code, reason = self.task.failed.get(story.id, ("no answer", "no answer"))
                self.account.note(Left("queries", story.message.id, story.id, code, reason))
        self.task.refuse_to_go_on()
        return self._without_repetitions(
            [Query(row["id"], by_id[one], row["query"]) for one, rows in units.items() for row in rows]
        )

    def _without_repetitions(self, queries: Sequence[Query]) -> list[Query]:
        """Each query of a message once, whatever stories it was made from."""
        first: dict[tuple[str, str], Query] = {}
        for query in queries:
            message = query.story.message.id
            same = first.setdefault((message, " ".join(words_of(query.text))), query)
            if same is not query:
                told = f"{query.text!r} is {same.id} already"
                self.account.note(Left("queries", message, query.id, "same query again", told))
        self.account.given["queries"] = len(queries) + sum(
            left.stage == "queries" and left.code != "same query again" for left in self.account.left.values()
        )
        return list(first.values())

    def _rows(self, story: Story, texts: Sequence[str]) -> list[Row]:
        return [
            {
                "id": f"{story.id}.{number}",
                "story_id": story.id,
                "message_id": story.message.id,
                "message": story.message.text,
                "query": text,
            }
            for number, text in enumerate(texts[: self.count], start=1)
        ]


@dataclass(frozen=True, slots=True)
class Judging:
    """Has queries judged: related to the message, and silent about it.

    A query that uses the message's own words is not asked about: our own look at the words decides.

    Args:
        task: asks the judge.
        file: of the stage.
        share: of the message's content words that a query may use.
        account: of the queries that do not go on.
    """

    task: Task
    file: StageFile
    share: float
    account: Account

    def run(self, queries: Sequence[Query]) -> list[Query]:
        """The queries that may be searched with."""
        by_id = {query.id: query for query in queries}
        questions = {
            query.id: self.task.question(
                query.id, message=query.story.message.text, story=query.story.text, query=query.text
            )
            for query in queries
        }

        def make(ids: Sequence[str]) -> dict[str, list[Row]]:
            said = {
                one: disclosed_words(by_id[one].story.message.text, by_id[one].text, self.share)
                for one in ids
            }
            answers = self.task.answers([questions[one] for one in ids if not said[one]])
            return {
                one: [_judged_row(by_id[one], said[one], answers.get(one))]
                for one in ids
                if said[one] or one in answers
            }

        self.account.enter("judged", len(queries))
        sources = {
            one: source_of(self.task.kind.key(question), self.share) for one, question in questions.items()
        }
        units = self.file.settle(sources, make)
        for query in queries:
            self._note(query, units.get(query.id))
        self.task.refuse_to_go_on()
        return [by_id[one] for one, [row] in units.items() if row["passed"]]

    def _note(self, query: Query, rows: list[Row] | None) -> None:
        message = query.story.message.id
        if rows is None:
            code, reason = self.task.failed.get(query.id, ("no answer", "no answer"))
            self.account.note(Left("judged", message, query.id, code, reason))
            return
        row = rows[0]
        if not row["passed"]:
            why = str(row.get("why") or "")
            code = "message's words in the query" if row.get("shared") else "discloses the message"
            if not row.get("shared") and not row.get("discloses"):
                code = "not related" if row.get("related") is False else "not passed"
            self.account.note(Left("judged", message, query.id, code, f"{query.text!r}: {why or code}"))


def _judged_row(query: Query, shared: Sequence[str], answer: Mapping[str, Any] | None) -> Row:
    row: Row = {
        "id": query.id,
        "message_id": query.story.message.id,
        "message": query.story.message.text,
        "query": query.text,
        "passed": False,
    }
    if answer is None:
        why = f"it uses the message's own words: {', '.join(shared)}"
        return {**row, "related": None, "discloses": None, "shared": list(shared), "why": why}
    passed = answer["related"] and not answer["discloses"]
    return {**row, **answer, "passed": passed, "shared": [], "why": answer["why"]}


def read_queries(reply: Reply) -> Mapping[str, Any]:
    """The queries of an answer, each once, without quotation marks.

    Raises:
        Unusable: there is none, or one of them is no query.
    """
    found = object_of(reply, ("queries",))["queries"]
    if isinstance(found, str):
        found = found.split("\n")
    if not isinstance(found, list):
        raise Unusable("fields", f"queries is a {type(found).__name__}, not a list of texts")
    texts: dict[str, str] = {}
    for one in found:
        if not isinstance(one, str):
            raise Unusable("fields", f"one of the queries is {one!r}, not a text")
        text = " ".join(one.replace('"', " ").strip().strip("“”'*-•").split())
        if len(words_of(text)) > _MOST_WORDS:
            raise Unusable("fields", f"a query of {len(words_of(text))} words: {text[:80]!r}")
        if words_of(text):
            texts.setdefault(text.casefold(), text)
    if not texts:
        raise Unusable("fields", "queries holds no query")
    return {"queries": list(texts.values())}


def read_disclosure(reply: Reply) -> Mapping[str, Any]:
    """The judge's two answers, and why.

    Raises:
        Unusable: one of them is missing or neither true nor false.
    """
    return {**truths_of(reply, ASKED), "why": words_in(reply, "why")}

"""What a build would ask, and what it would cost at most, before it asks anything."""

from __future__ import annotations

from vidvec_msg.data_synth.benchmark.rankers import ByModel
from vidvec_msg.data_synth.benchmark.request import Build, Stages
from vidvec_msg.data_synth.benchmark.stories import wanted_story
from vidvec_msg.data_synth.benchmark.task import Task
from vidvec_msg.data_synth.chat import Prompt
from vidvec_msg.data_synth.estimate import CHARS_PER_ENGLISH_TOKEN
from vidvec_msg.data_synth.questions import Question

_SHOWN = 3  # prompts
_STORY = "x" * 550  # as long as a story of 90 words
_QUERY = "x" * 40
_ANSWER_TOKENS = {
    "stories": 130,
    "revisions": 130,
    "queries": 50,
    "critiques": 60,
    "judgements": 50,
    "relevance": 40,
}


def estimate(build: Build, what: Stages) -> str:
    """Prompts of the first stories, and requests, dollars and units of one round."""
    pipeline, messages = build.pipeline, build.messages
    writing, asking = pipeline.writing, pipeline.asking.task
    first = [writing.question(wanted_story(one, 1)) for one in messages[:_SHOWN]]
    lines = [f"--- system ---\n{first[0].prompt.system}\n"]
    lines += [f"--- {one.id} ---\n{one.prompt.user}\n" for one in first]
    stories = len(messages) * what.stories
    queries = stories * what.queries
    text = messages[0].text
    rows: list[tuple[str, int, Task, Prompt]] = [
        ("stories", stories, writing.task, first[0].prompt),
        ("queries", stories, asking, asking.question("", story=_STORY, count="2").prompt),
        (
            "judgements", queries, pipeline.judging.task,
            pipeline.judging.task.question("", message=text, story=_STORY, query=_QUERY).prompt,
        ),
    ]  # fmt: skip
    if pipeline.refinement is not None:
        critique = pipeline.refinement.critique
        asked = critique.question("", message=text, story=_STORY).prompt
        rows.append(("critiques", stories * (what.refine + 1), critique, asked))
        revision = pipeline.refinement.revision
        asked = revision.question("", message=text, story=_STORY, feedback=_QUERY * 3).prompt
        rows.append(("revisions", stories * what.refine, revision, asked))
    ranker = pipeline.ranking.ranker
    if isinstance(ranker, ByModel):  # one question a candidate: the most of all
        candidates = queries * what.per_query * len(build.providers)
        asked = ranker.task.question(
            "", message=text, title=_QUERY, length="100 s", description=_QUERY * 10
        ).prompt
        rows.append(("relevance", candidates, ranker.task, asked))
    most, priced = 0.0, True
    for name, count, task, prompt in rows:
        size = (len(prompt.system) + len(prompt.user)) / CHARS_PER_ENGLISH_TOKEN
        lines.append(
            f"{name}: at most {count:,} requests to {task.kind.model}, about {count * size:,.0f} tokens of "
            f"prompts and {count * _ANSWER_TOKENS[name]:,} of answers"
        )
        priced &= task.kind.price is not None
        most += count * task.kind.most(Question("", prompt, {}), batch=False)
    for provider in build.providers:
        told = provider.most(queries)
        lines.append(f"{provider.name}: at most {queries:,} searches{f', {told}' if told else ''}")
    lines.append(
        f"at most ${most:,.2f} a round, before unusable answers that are asked again"
        if priced
        else "no price of these models: give --prices TABLE.yaml for an estimate of the cost"
    )
    if pipeline.rounds > 1:
        lines.append(f"all of it up to {pipeline.rounds} times, for messages with few candidates (--rounds)")
    lines.append("dry run: nothing was asked")
    return "\n".join(lines) + "\n"

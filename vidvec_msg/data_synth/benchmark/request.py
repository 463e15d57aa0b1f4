"""What a build was asked for: every problem found before anything is asked, and the parts put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from vidvec_msg.data_synth.asking import Online
from vidvec_msg.data_synth.benchmark import candidates, messages, queries, ranking, stories
from vidvec_msg.data_synth.benchmark.left_out import Account
from vidvec_msg.data_synth.benchmark.messages import Message, read_messages
from vidvec_msg.data_synth.benchmark.pipeline import STAGES, Pipeline
from vidvec_msg.data_synth.benchmark.providers.contract import Provider
from vidvec_msg.data_synth.benchmark.providers.links import Links
from vidvec_msg.data_synth.benchmark.providers.registry import YouTubeOptions, providers_of
from vidvec_msg.data_synth.benchmark.rankers import (
    ByEmbedder,
    ByModel,
    BySearch,
    RankClip,
    Ranker,
    RankWith,
    read_score,
)  # fmt: skip
from vidvec_msg.data_synth.benchmark.stage_file import StageFile
from vidvec_msg.data_synth.benchmark.task import Correspondent
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.patience import PatientRequests
from vidvec_msg.data_synth.prices import Price, price_of
from vidvec_msg.data_synth.request import StructuredOption
from vidvec_msg.data_synth.template import Template, load_template
from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean

TEMPLATES: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "stories": ("story_v1", ("message", "topic"), ("story",)),
    "critique": ("critique_v1", ("message", "story"), (*stories.ASKED, "feedback")),
    "revision": ("revision_v1", ("message", "story", "feedback"), ("story",)),
    "queries": ("queries_v1", ("story", "count"), ("queries",)),
    "judged": ("disclosure_v1", ("message", "story", "query"), (*queries.ASKED, "why")),
    "ranked": ("relevance_v1", ("message", "title", "length", "description"), ("score", "why")),
}
"""Kind of question → shipped template, fields of a request, fields of an answer."""

STORY_SHARE = 0.4  # of the message's content words that a story may use: as the filter `stated` has it
_JUDGE_TOKENS = 300  # of an answer of a few fields
RANKERS = ("auto", "embedder", "llm", "provider")


@dataclass(frozen=True, slots=True)
class Models:
    """Options about language models.

    Args:
        writer, judge: names, as the endpoint calls them.
        endpoint: address; None takes it from the environment.
        key_env: environment variable of the key.
        structured: how the form of an answer is told.
        temperature: of stories and queries; judges answer at 0.
        max_tokens: of a story, or of a story's queries.
        concurrency: requests at a time.
        timeout: seconds a request, to a model or a provider.
        retries, backoff, patience: with both; see the verb.
        tries: answers to one question that may be unusable.
        prices, budget: table, and dollars.
        templates: kind of question → file or name.
        seed: of axes and sampling.
    """

    writer: str
    judge: str
    endpoint: str | None
    key_env: str
    structured: str
    temperature: float
    max_tokens: int
    concurrency: int
    timeout: float
    retries: int
    backoff: float
    patience: float
    tries: int
    prices: Path | None
    budget: float | None
    templates: Mapping[str, str]
    seed: int


@dataclass(frozen=True, slots=True)
class Stages:
    """Options about what is made.

    Args:
        stories, rounds, enough, refine, queries, disclosed_share, per_query, max_seconds, top: see the verb.
        rank, rank_with, rank_clip, embedder: see the verb.
        until: stage after which to stop.
    """

    stories: int
    rounds: int
    enough: int
    refine: int
    queries: int
    disclosed_share: float
    per_query: int
    max_seconds: float
    top: int
    rank: str
    rank_with: str
    rank_clip: str
    embedder: str | None
    until: str


@dataclass(frozen=True, slots=True)
class Build:
    """A request that can be carried out.

    Args:
        messages: as they were read.
        pipeline: the stages.
        files: of the stages, that of the messages first.
        providers: of clips.
        asker: of the writer, for what it tells.
        writer: asks for stories and queries.
        account: of what is left out.
    """

    messages: list[Message]
    pipeline: Pipeline
    files: list[StageFile]
    providers: list[Provider]
    asker: Online
    writer: Correspondent
    account: Account


def prepared(
    source: Path, out: Path, provider: list[str], models: Models, what: Stages, youtube: YouTubeOptions
) -> Build:
    """Checks everything and puts the parts together; asks nobody anything.

    Raises:
        RefusedRequest: with every problem, those of edited files in the folder included.
    """
    problems = Problems("build-benchmark")
    _check_numbers(models, what, youtube, problems)
    found = _attempt(problems, lambda: read_messages(source)) or []
    templates = _templates(models.templates, problems)
    vectors = MessageVectors(what.embedder)
    vectors.check(problems)
    retrying = PatientRequests(
        "the provider", retries=max(models.retries, 0), backoff=max(models.backoff, 0),
        patience=max(models.patience, 0),
    )  # fmt: skip
    reached = what.until in STAGES and STAGES.index(what.until) >= STAGES.index("candidates")
    providers: list[Provider] = []
    if reached:
        providers = providers_of(
            provider, problems, folder=out, youtube=youtube, vectors=vectors, retrying=retrying,
            timeout=models.timeout,
        )  # fmt: skip
        _check_ranking(what, providers, problems)
    correspondents = _correspondents(out, models, problems)
    files = {
        form.name: StageFile(out, form)
        for form in (
            messages.FORM, stories.STORIES, stories.REFINED, queries.QUERIES, queries.JUDGED, candidates.FORM,
            ranking.FORM,
        )
    }  # fmt: skip
    for file in files.values():
        file.read(problems)
    problems.refuse_if_any()
    for one in providers:
        if isinstance(one, Links):
            one.tell_unused({message.id for message in found} | files["messages"].units.keys())
    if correspondents is None:
        raise RefusedRequest("build-benchmark: the request cannot be carried out")  # noted above
    writer, judge, asker = correspondents
    account = Account()
    pipeline = _pipeline(writer, judge, templates, files, providers, vectors, models, what, out, account)
    return Build(found, pipeline, list(files.values()), providers, asker, writer, account)


def _pipeline(
    writer: Correspondent,
    judge: Correspondent,
    templates: Mapping[str, Template],
    files: Mapping[str, StageFile],
    providers: list[Provider],
    vectors: MessageVectors,
    models: Models,
    what: Stages,
    out: Path,
    account: Account,
) -> Pipeline:
    free: dict[str, Any] = {"temperature": models.temperature, "max_tokens": models.max_tokens}
    strict: dict[str, Any] = {"temperature": 0.0, "max_tokens": _JUDGE_TOKENS}
    task: dict[str, Any] = {
        "stories": writer.task("stories", templates["stories"], stories.read_story, **free),
        "queries": writer.task("queries", templates["queries"], queries.read_queries, **free),
        "revision": writer.task("revisions", templates["revision"], stories.read_story, **free),
        "critique": judge.task("critiques", templates["critique"], stories.read_critique, **strict),
        "judged": judge.task("judgements", templates["judged"], queries.read_disclosure, **strict),
        "ranked": judge.task("relevance", templates["ranked"], read_score, **strict),
    }
    refinement = None
    if what.refine:
        refinement = stories.Refinement(
            task["critique"], task["revision"], files["refined"], what.refine, STORY_SHARE, account
        )
    ranker: Ranker
    how = ("embedder" if what.embedder else "llm") if what.rank == "auto" else what.rank
    if how == "embedder":
        ranker = ByEmbedder(
            vectors, "clip" if what.rank_clip == "clip" else "words", out / "vectors", providers
        )
    else:
        ranker = BySearch() if how == "provider" else ByModel(task["ranked"])
    return Pipeline(
        stories.Writing(task["stories"], files["stories"], models.seed, account),
        refinement,
        queries.Asking(task["queries"], files["queries"], what.queries, account),
        queries.Judging(task["judged"], files["judged"], what.disclosed_share, account),
        candidates.Searching(providers, files["candidates"], what.per_query, what.max_seconds, account),
        ranking.Ranking(ranker, files["ranked"], what.top, account),
        what.stories,
        what.rounds,
        what.enough or what.top,
        "story" if what.rank_with == "story" else "message",
        account,
    )


def _correspondents(
    out: Path, models: Models, problems: Problems
) -> tuple[Correspondent, Correspondent, Online] | None:
    """Who writes, who judges, and how the first is asked."""
    made: list[Correspondent] = []
    askers: list[Online] = []
    for model in (models.writer, models.judge):
        if not model.strip():
            problems.add("model is empty; give its name as the endpoint calls it")
            continue
        connection = _attempt(
            problems,
            lambda model=model: ChatEndpoint(
                model, base_url=models.endpoint, key_env=models.key_env, timeout=models.timeout
            ),
        )
        price = _price(model, models, problems)
        if connection is None:
            continue
        retrying = PatientRequests(
            connection.host, retries=max(models.retries, 0), backoff=max(models.backoff, 0),
            patience=max(models.patience, 0),
        )  # fmt: skip
        form: Any = None if models.structured == "auto" else models.structured
        askers.append(Online(connection, retrying, max(models.concurrency, 1), models.budget, form))
        made.append(Correspondent(askers[-1], model, price, out, models.tries, models.seed))
        if models.judge == models.writer:
            return made[0], made[0], askers[0]
    return (made[0], made[1], askers[0]) if len(made) == 2 else None


def _price(model: str, models: Models, problems: Problems) -> Price | None:
    try:
        price = price_of(model, models.prices)
    except RefusedRequest as refusal:
        problems.add(str(refusal).replace("\n", "\n  "))
        return None
    if models.budget is not None and price is None:
        where = "give --prices TABLE.yaml" if models.prices is None else f"add it to {models.prices}"
        problems.add(f"budget is ${models.budget:g}, and there is no price of {model!r}: {where}")
    return price


def _templates(given: Mapping[str, str], problems: Problems) -> dict[str, Template]:
    for name in given:
        if name not in TEMPLATES:
            known = ", ".join(TEMPLATES)
            problems.add(f"templates: unknown kind {name!r}{did_you_mean(name, TEMPLATES)}; known: {known}")
    found: dict[str, Template] = {}
    for name, (shipped, fields, answers) in TEMPLATES.items():
        source = given.get(name, shipped)
        template = _attempt(
            problems,
            lambda source=source, fields=fields, answers=answers: load_template(
                source, fields=fields, answers=answers
            ),
        )
        if template is not None:
            found[name] = template
            if template.axes and name != "stories":
                problems.add(f"template {source}: axes are for stories; write the values into the words")
    return found


def _check_numbers(models: Models, what: Stages, youtube: YouTubeOptions, problems: Problems) -> None:
    least: dict[str, tuple[float, float]] = {
        "stories": (what.stories, 1), "rounds": (what.rounds, 1), "enough": (what.enough, 0),
        "refine": (what.refine, 0), "queries": (what.queries, 1), "per_query": (what.per_query, 1),
        "max_seconds": (what.max_seconds, 1e-3), "top": (what.top, 1), "pages": (youtube.pages, 1),
        "quota": (youtube.quota, 0), "temperature": (models.temperature, 0),
        "max_tokens": (models.max_tokens, 1), "concurrency": (models.concurrency, 1),
        "timeout": (models.timeout, 1e-3), "retries": (models.retries, 0), "backoff": (models.backoff, 0),
        "patience": (models.patience, 0), "tries": (models.tries, 1),
        "budget": (models.budget or 0, 0),
    }  # fmt: skip
    for name, (value, bound) in least.items():
        if not value >= bound:
            problems.add(f"{name} is {value}; it must be at least {bound:g}")
    if not 0 <= what.disclosed_share <= 1:
        problems.add(f"disclosed_share is {what.disclosed_share}; it lies between 0 and 1")
    words: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("structured", models.structured, get_args(StructuredOption)),
        ("rank", what.rank, RANKERS),
        ("rank_with", what.rank_with, get_args(RankWith)),
        ("rank_clip", what.rank_clip, get_args(RankClip)),
        ("until", what.until, STAGES),
    )
    for name, word, known in words:
        if word not in known:
            problems.add(f"{name} is {word!r}{did_you_mean(word, known)}; accepted: {', '.join(known)}")


def _check_ranking(what: Stages, providers: list[Provider], problems: Problems) -> None:
    if what.rank == "embedder" and what.embedder is None:
        problems.add("rank is 'embedder': give --embedder SPEC")
    if what.rank_clip == "clip":
        if what.rank not in ("embedder", "auto") or what.embedder is None:
            problems.add("rank_clip is 'clip', and no embedder ranks: give --embedder SPEC")
        if any(one.name == "youtube" for one in providers):
            problems.add("rank_clip is 'clip', and clips of YouTube are addresses: give --rank_clip words")


def _attempt(problems: Problems, make: Any) -> Any:
    """What is made, or None with the problem noted."""
    try:
        return make()
    except RefusedRequest as refusal:
        problems.add(str(refusal).replace("\n", "\n  "))
        return None

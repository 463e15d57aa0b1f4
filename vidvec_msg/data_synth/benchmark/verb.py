"""The verb ``build-benchmark``: messages → clips that imply them, for people to rate → a collection."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.data_synth.benchmark.account import SETTINGS, write_summary
from vidvec_msg.data_synth.benchmark.estimate import estimate
from vidvec_msg.data_synth.benchmark.messages import settled
from vidvec_msg.data_synth.benchmark.pipeline import STAGES, Stage
from vidvec_msg.data_synth.benchmark.providers.registry import YouTubeOptions
from vidvec_msg.data_synth.benchmark.providers.youtube_client import BASE_URL
from vidvec_msg.data_synth.benchmark.rankers import RankClip, RankWith
from vidvec_msg.data_synth.benchmark.rating import check_options, collect_ratings, export
from vidvec_msg.data_synth.benchmark.request import Build, Models, Stages, prepared
from vidvec_msg.data_synth.benchmark.task import REPLIES
from vidvec_msg.data_synth.funnel import terminal_table
from vidvec_msg.data_synth.request import StructuredOption
from vidvec_msg.errors import JobFailed, Problems, RefusedRequest, TooManyFailures
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.runs import only_writer, require_new, write_json

log = logging.getLogger(__name__)


def build_benchmark(
    messages: Path,
    model: str,
    provider: list[str],
    out: Path,
    *,
    ratings: list[Path] | None = None,
    rule: Path | None = None,
    files: Path | None = None,
    collection: Path | None = None,
    collecting: dict[str, Any] | None = None,
    tasks: dict[str, Any] | None = None,
    until: Stage = "tasks",
    endpoint: str | None = None,
    judge_model: str | None = None,
    templates: dict[str, str] | None = None,
    stories: int = 1,
    refine: int = 0,
    queries: int = 2,
    disclosed_share: float = 0.25,
    per_query: int = 25,
    max_seconds: float = 180.0,
    rounds: int = 3,
    enough: int = 0,
    embedder: str | None = None,
    rank: Literal["auto", "embedder", "llm", "provider"] = "auto",
    rank_with: RankWith = "message",
    rank_clip: RankClip = "words",
    top: int = 10,
    youtube: dict[str, Any] | None = None,
    pages: int = 1,
    quota: int = 10_000,
    youtube_key_env: str = "YOUTUBE_API_KEY",
    youtube_url: str = BASE_URL,
    temperature: float = 1.0,
    max_tokens: int = 700,
    structured: StructuredOption = "auto",
    concurrency: int = 32,
    timeout: float = 120.0,
    retries: int = 6,
    backoff: float = 0.5,
    patience: float = 900.0,
    tries: int = 3,
    key_env: str = "OPENAI_API_KEY",
    prices: Path | None = None,
    budget: float | None = None,
    seed: int = 0,
    dry_run: bool = False,
    max_failures: float = 0.05,
) -> Path:
    """Finds clips that imply messages without stating them, for people to rate; ratings make a collection.

    A model writes a story for each message, and from the story queries that do not name the message; a judge
    and a comparison of words check them; providers are searched; candidates are ranked. Every stage has a
    file in the folder that may be opened and edited: the next run follows it. Killed at any moment, the same
    command asks exactly what is missing. Nothing is downloaded.

    Args:
        messages: .jsonl, .csv or .parquet with message, id and topic, or .txt with one message a line.
        model: that writes stories and queries, as the endpoint calls it.
        provider: where clips are searched, one or several: youtube, local:FOLDER (an index, a collection, a
            folder of clips), links:FILE (a table of addresses).
        out: folder to make, or to go on with.
        ratings: tables of people's ratings; ranked.jsonl is taken as it is and becomes OUT/collection.
        rule: YAML file that says which candidates stay, by their ratings; VidMsg's rule if not given.
        files: folder of clips, or a table of clip_id and file, for candidates that are addresses; with
            ratings.
        collection: folder to make of the ratings; OUT/collection if not given.
        collecting: further options of that, for example {"grades": "mean", "licence": "cc-by-4.0"};
            docs/rating.md lists them.
        tasks: options of the tasks, for example {"raters": ["Ann", "Bo", "Cleo"], "per_message": 8};
            docs/rating.md lists them.
        until: stage after which to stop, to look at its file.
        endpoint: address up to and without /chat/completions, for example http://localhost:8000/v1;
            OPENAI_BASE_URL from the environment, or OpenAI's own, if not given.
        judge_model: that judges, and ranks with --rank llm, at the same endpoint; the same model if not
            given.
        templates: kind of question (stories, critique, revision, queries, judged, ranked) → a YAML file.
        stories: per message and round.
        refine: revisions of a story at most, by what a judge says about it; 0 takes stories as they come.
        queries: per story.
        disclosed_share: of a message's content words that a query may use.
        per_query: clips per query and provider.
        max_seconds: that a clip is shorter than.
        rounds: times that messages with too few candidates get further stories, the first included.
        enough: candidates of a message that need no further round; 0: as many as --top.
        embedder: spec of an embedder that ranks, and that searches folders and lists.
        rank: who orders candidates: an "embedder", the "llm" that judges, or the "provider" by its own order;
            "auto": the embedder, if there is one, or else the llm.
        rank_with: what an embedder compares clips with: the "message", or its "story" (the nearest one).
        rank_clip: what an embedder compares: the "words" known of a clip, or the "clip" itself, if it is a
            file.
        top: candidates of each message that people rate.
        youtube: parameters of YouTube's search, for example {"relevanceLanguage": "en", "regionCode": "US"}.
        pages: of 50 results each that a query may take at YouTube, 100 units a page.
        quota: units of the YouTube Data API a day; it stops before, and goes on the next day. 0: no limit.
        youtube_key_env: environment variable that holds the key of the YouTube Data API.
        youtube_url: address of that service.
        temperature: of stories and queries; judges answer at 0.
        max_tokens: of a story, or of a story's queries.
        structured: how the form of an answer is told to the endpoint: "json_schema", "json_object", "none"
            (by the prompt alone), or "auto", the strictest that it takes.
        concurrency: requests to the model at a time.
        timeout: seconds one request may take.
        retries: times a request is sent again after a 5xx, a time-out or a cut connection.
        backoff: seconds before the first of them; doubles.
        patience: seconds that a service may answer nothing but 429 before the job gives up.
        tries: answers to one question that may be unusable before it counts as failed.
        key_env: environment variable that holds the model's key; may be empty for endpoints that need none.
        prices: YAML table of models and their prices; configs/synth/prices.yaml shows the form.
        budget: dollars that the answers in the folder may cost in all; it stops cleanly before.
        seed: of the axes of stories and of the model's sampling.
        dry_run: print prompts and an estimate, and ask nothing.
        max_failures: messages that may end without a candidate: a count, or a share if below 1.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request or the endpoint; nothing was written.
        JobFailed: a budget or quota is used up, or somebody does not answer any more; what there is stays.
        TooManyFailures: all was written, with more messages without a candidate than allowed.
    """
    options = dict(locals())
    problems = Problems("build-benchmark")
    check_options(tasks, collecting, problems)
    note_max_failures(max_failures, problems)
    given = {"rule": rule, "files": files, "collection": collection, "collecting": collecting}
    without = [f"--{name}" for name, value in given.items() if value is not None]
    if without and not ratings:
        problems.add(f"{', '.join(without)}: about ratings; give --ratings FILE … with them")
    problems.refuse_if_any()
    if ratings:
        collect_ratings(out, ratings, collection, rule, files, collecting)
        return out
    models = Models(
        model, judge_model or model, endpoint, key_env, structured, temperature, max_tokens, concurrency,
        timeout, retries, backoff, patience, tries, prices, budget, templates or {}, seed,
    )  # fmt: skip
    what = Stages(
        stories, rounds, enough, refine, queries, disclosed_share, per_query, max_seconds, top, rank,
        rank_with, rank_clip, embedder, until,
    )  # fmt: skip
    of_youtube = YouTubeOptions(youtube or {}, pages, quota, youtube_key_env, youtube_url)
    require_new(out, option="--out", resumable=SETTINGS)
    build = prepared(messages, out, provider, models, what, of_youtube)
    if dry_run:
        sys.stdout.write(estimate(build, what))
        return out
    fresh = not out.is_dir() or not any(out.iterdir())
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out, what=f"--out {out}"):
        write_json(out / SETTINGS, _plain(options))
        try:
            _carried_out(build, out, until)
        except RefusedRequest as refusal:
            if any(path.stat().st_size for path in (out / REPLIES).glob("*.jsonl")):
                raise JobFailed(f"{refusal}\nWhat was made before is kept.") from None
            if fresh:
                shutil.rmtree(out)  # it was made above, and holds nothing but the request
            raise
        finally:
            for one in build.providers:
                one.close()
    if until == STAGES[-1]:
        export(out, tasks, seed=seed)
    _judge_failures(build, max_failures, out)
    return out


def _carried_out(build: Build, out: Path, until: Stage) -> None:
    """All stages, with the account of them, however they end."""
    found = settled(build.messages, build.files[0])
    build.account.enter("messages", len(found))
    try:
        if until != "messages":
            build.pipeline.run(found, until)
    except (JobFailed, KeyboardInterrupt) as end:
        write_summary(out, build, stopped=str(end) or "interrupted")
        raise
    write_summary(out, build, stopped="")
    sys.stdout.write(terminal_table(build.account.way()))
    made = {file.path.name: file.made for file in build.files if file.made}
    told = ", ".join(f"{count:,} in {name}" for name, count in made.items())
    log.info(f"made {out}: {f'new rows: {told}' if told else 'nothing was missing'}")


def _judge_failures(build: Build, max_failures: float, out: Path) -> None:
    without = [left for left in build.account.left.values() if left.stage == "messages"]
    count = build.account.given.get("messages", 0)
    if len(without) > allowed_failures(max_failures, count):
        named = ", ".join(left.message_id for left in without[:5]) + ", …" * (len(without) > 5)
        raise TooManyFailures(
            f"{len(without)} of {count} messages ended without a candidate ({named}); "
            f"{out / 'left_out.jsonl'} says why. The others were written; more --rounds, other templates or "
            "queries of your own in queries.jsonl may find some, --max_failures allows more."
        )


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """The request as ``--config`` reads it again."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return str(value) if isinstance(value, Path) else value

    return {name: plain(value) for name, value in options.items() if value is not None}

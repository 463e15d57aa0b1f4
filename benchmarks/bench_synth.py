"""What synthesis costs beside the model: requests in flight, CPU per request, filters, memory.

    python benchmarks/bench_synth.py                          # about two minutes on two cores
    python benchmarks/bench_synth.py --requests 2000 --pairs 7000
    python benchmarks/bench_synth.py --whole 7000 70000       # the verb from end to end, and nothing else
    python benchmarks/bench_synth.py --whole 70000 --asked 2000  # … going on after 68,000 answers

Requests go to a server on loopback (a process of its own) that answers each after 200 ms. One peer is
arithmetic: 64 requests in flight at 200 ms each are 320 a second, whoever sends them; ours are counted while
so many are in flight. The other is the official client as its documentation shows it, which keeps nothing.
Both clients are loaded before. Filters run on one core without an embedder, over the project's 600 pairs in
other and other words.
With --whole the server answers at once and each time in other words; the verb runs in a process of its own,
whose peak of resident memory is told.

One JSON object a line; a ratio is how many times better ours is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from resident import peak_megabytes

from vidvec_msg.data_synth.asking import Online
from vidvec_msg.data_synth.chat import Reply, Sampling, request_body
from vidvec_msg.data_synth.filters.chain import apply_filters, build_filters
from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.patience import PatientRequests
from vidvec_msg.data_synth.personas import sample_personas
from vidvec_msg.data_synth.questions import Kind
from vidvec_msg.data_synth.replies import Record, ReplyStore
from vidvec_msg.data_synth.request import begin, settings_of
from vidvec_msg.data_synth.synthesis import Synthesis, read_pair
from vidvec_msg.data_synth.template import load_template
from vidvec_msg.data_synth.verb import synth
from vidvec_msg.errors import Problems
from vidvec_msg.formats.pairs import Pair, read_pairs

DATA = Path(__file__).parents[1] / "data"
LATENCY = 0.2  # seconds
IN_FLIGHT = 64
CPU_BAR = 2e-3  # seconds per request
SHARE_BAR = 0.95  # of what the latency allows
FILTER_BAR = 5_000  # pairs a second
WHOLE_BAR, WHOLE_BAR_PER_PAIR = 400, 0.008  # MB: of the libraries, and of the texts, sets and keys of a pair


def answered(message: str, storyline: str) -> bytes:
    """An endpoint's answer with a pair in it, HTTP and all."""
    text = json.dumps({"message": message, "storyline": storyline})
    body = json.dumps(
        {
            "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 300, "completion_tokens": 150},
            "model": "m",
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


def serve(pipe: Connection, latency: float, varied: bool) -> None:
    """Answers every request after so many seconds, always alike or always otherwise; as little HTTP as the
    client needs."""
    same = answered("Doors close.", " ".join(["A red door closes."] * 30))
    others = (answered(pair.positive, pair.anchor) for pair in endless_pairs())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                received = await reader.readuntil(b"\r\n\r\n")
                length = int(received.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                await asyncio.sleep(latency)
                writer.write(next(others) if varied else same)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def loaded(endpoint: ChatEndpoint) -> None:
    """Imports the client and all that it loads on its first request."""
    await endpoint.ask({"model": "m", "messages": []})
    await endpoint.close()


class TimedStore(ReplyStore):
    """Knows when each answer was kept."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.kept_at: list[float] = []

    def keep(self, record: Record) -> None:
        """As always."""
        super().keep(record)
        self.kept_at.append(time.perf_counter())


async def official(url: str, bodies: Iterable[dict[str, Any]]) -> int:
    """The client as its documentation shows it, and as many at a time; how many it answered."""
    import openai

    answered, left = 0, iter(bodies)
    async with openai.AsyncOpenAI(api_key="none", base_url=url) as client:

        async def work() -> None:
            nonlocal answered
            for body in left:
                answer = await client.chat.completions.create(**body)
                answered += bool(answer.choices)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return answered


def measure_requests(requests: int) -> None:
    """Requests a second beside what the latency allows, and CPU of this process per request."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    server = context.Process(target=serve, args=(its, LATENCY, False), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{mine.recv()}/v1"
        endpoint = ChatEndpoint("m", base_url=url)
        personas = [f"a persona with the number {n}" for n in range(requests)]
        template = load_template("pair_v1", fields=("persona",), answers=("message", "storyline"))
        synthesis = Synthesis(personas, requests, template, 0)
        kind = Kind("m", Sampling(), read_pair)
        asyncio.run(loaded(endpoint))
        asker = Online(endpoint, PatientRequests(endpoint.host), IN_FLIGHT, None, "json_schema")
        with tempfile.TemporaryDirectory() as folder, TimedStore(Path(folder), "pairs") as store:
            before, began = time.process_time(), time.perf_counter()
            outcome = asker.ask_all(synthesis, kind, store, total=requests, what="bench")
            seconds, cpu = time.perf_counter() - began, time.process_time() - before
        bodies = [
            request_body("m", question.prompt, Sampling(), structured="json_schema")
            for question in itertools.islice(synthesis, requests // 2)
        ]
        asyncio.run(official(url, bodies[:1]))  # what it loads on its first request
        before = time.process_time()
        theirs = asyncio.run(official(url, bodies))
        their_cpu = time.process_time() - before
    finally:
        server.terminate()
        server.join()
    if outcome.kept != requests or theirs != len(bodies):
        raise SystemExit(f"{outcome.kept} of {requests} and {theirs} of {len(bodies)} requests were answered")
    possible = IN_FLIGHT / LATENCY
    full = store.kept_at[IN_FLIGHT:-IN_FLIGHT]  # fewer are in flight before and after
    rate = (len(full) - 1) / (full[-1] - full[0])
    note = f"{requests:,} requests, {IN_FLIGHT} in flight, {LATENCY * 1e3:.0f} ms each, loopback"
    tell(
        "synth requests, beside concurrency ÷ latency",
        rate,
        possible,
        rate / possible,
        SHARE_BAR,
        "requests/s",
        f"{note}; start and end included {requests / seconds:.0f}",
    )
    per = cpu / requests
    tell(
        "synth CPU per request",
        per * 1e3,
        None,
        CPU_BAR / per,
        1.0,
        "ms",
        f"{note}; ratio: bar of 2 ms over it",
    )
    tell(
        "synth CPU per request, beside the official client's own",
        per * 1e3,
        their_cpu / theirs * 1e3,
        their_cpu / theirs / per,
        1.0,
        "ms",
        f"{note}; theirs: chat.completions.create, {theirs:,} requests, nothing kept",
    )


def measure_filters(pairs: int) -> None:
    """Pairs a second through all filters that need no model, on one core, and the memory of them all."""
    rows = varied_pairs(pairs)
    filters = build_filters(None, Problems("filters"))
    apply_filters(rows[:1_000], filters)  # stems are remembered
    before = peak_megabytes()
    began = time.process_time()
    kept, _, _ = apply_filters(rows, filters)
    seconds = time.process_time() - began
    grown = peak_megabytes() - before
    note = f"{pairs:,} pairs of 97 + 9 words, one core, {len(kept):,} stay; {grown:.0f} MB more at the peak"
    tell(
        "filters without an embedder",
        pairs / seconds,
        FILTER_BAR,
        pairs / seconds / FILTER_BAR,
        1.0,
        "pairs/s",
        note,
    )


def _varied(pair: Pair, number: int, words: Sequence[str]) -> Pair:
    """A pair in other words: every third one is drawn from all pairs', so that it is no duplicate."""
    dice = random.Random(number)

    def other(text: str) -> str:
        return " ".join(
            dice.choice(words) if place % 3 == number % 3 else word for place, word in enumerate(text.split())
        )

    return Pair(other(pair.anchor), other(pair.positive), id=str(number), provenance=pair.provenance)


def endless_pairs(first: int = 0) -> Iterator[Pair]:
    """Pairs of the project's words, none like another, from a number on."""
    ours = read_pairs(DATA / "pairs.jsonl")
    words = [word for pair in ours for word in pair.anchor.split()]
    return (_varied(ours[n % len(ours)], n, words) for n in itertools.count(first))


def varied_pairs(count: int) -> list[Pair]:
    """So many of them."""
    return list(itertools.islice(endless_pairs(), count))


def write_personas(path: Path, count: int) -> None:
    """Personas of nine words, hardly two of them near each other."""
    dice, words = random.Random(0), [pair.positive.split()[-1] for pair in read_pairs(DATA / "pairs.jsonl")]
    rows = (f"a {' '.join(dice.choices(words, k=9))}\n" for _ in range(count + count // 50))
    path.write_text("".join(rows))


def answer_ahead(personas: Path, out: Path, count: int, answered: int) -> None:
    """Leaves a run of the verb as a kill after so many answers would: its settings and its replies."""
    template = load_template("pair_v1", fields=("persona",), answers=("message", "storyline"))
    sampling = Sampling(seed=0)
    begin(out, settings_of("m", template, sampling, 0))
    synthesis = Synthesis(sample_personas(personas, count, seed=0).personas, count, template, 0)
    kind = Kind("m", sampling, read_pair)
    with ReplyStore(out / "replies", "pairs") as store:
        for question, pair in itertools.islice(
            zip(synthesis, endless_pairs(1_000_000), strict=False), answered
        ):
            text = json.dumps({"message": pair.positive, "storyline": pair.anchor})
            reply = Reply(text, 300, 150, "stop", model="m")
            record = kind.record(kind.key(question), question, reply, batch=False)
            store.keep({**record, "fields": dict(read_pair(reply)), "attempt": 0})


def run_whole(personas: Path, out: Path, url: str, count: int, pipe: Connection) -> None:
    """The verb, and what its process needed."""
    os.environ["OPENAI_API_KEY"] = ""
    before = peak_megabytes()
    began, cpu = time.perf_counter(), time.process_time()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        synth(personas, "m", out, endpoint=url, count=count, concurrency=IN_FLIGHT)
    summary = json.loads((out / "summary.json").read_text())
    peak = peak_megabytes()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    pipe.send((peak, before, seconds, cpu, summary["pairs"]))


def measure_whole(counts: Sequence[int], asked: int | None) -> None:
    """Peak memory of the verb from personas to the card."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    server = context.Process(target=serve, args=(its, 0.0, True), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{mine.recv()}/v1"
    try:
        for count in counts:
            sent = count if asked is None else min(asked, count)
            with tempfile.TemporaryDirectory() as folder:
                personas, out = Path(folder) / "personas.txt", Path(folder) / "D"
                write_personas(personas, count)
                if sent < count:
                    answer_ahead(personas, out, count, count - sent)
                run = context.Process(target=run_whole, args=(personas, out, url, count, its))
                run.start()
                while run.is_alive() and not mine.poll(1):
                    pass
                if not mine.poll():
                    raise SystemExit(f"the run of {count:,} ended without a result")
                peak, before, seconds, cpu, kept = mine.recv()
                run.join()
            bar = WHOLE_BAR + WHOLE_BAR_PER_PAIR * count
            note = (
                f"{count:,} requests, {sent:,} of them sent; {kept:,} pairs stay; {before:.0f} MB before it "
                f"began, {seconds:.0f} s, {cpu:.0f} s of CPU; ratio: bar of {bar:.0f} MB over it"
            )
            tell("synth from end to end, peak memory", peak, None, bar / peak, 1.0, "MB", note)
    finally:
        server.terminate()
        server.join()


def tell(claim: str, ours: float, peer: float | None, ratio: float, bar: float, unit: str, note: str) -> None:
    """One line for run.py."""
    line = {
        "claim": claim, "ours": ours, "peer": peer, "ratio": ratio, "bar": bar, "ok": ratio >= bar,
        "unit": unit, "note": note,
    }  # fmt: skip
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main(words: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=6_400)
    parser.add_argument("--pairs", type=int, default=70_000)
    parser.add_argument(
        "--whole", type=int, nargs="+", metavar="COUNT", help="runs of the whole verb instead"
    )
    parser.add_argument(
        "--asked", type=int, help="requests of each that are sent; the others are answered before"
    )
    options = parser.parse_args(words)
    if options.whole:
        measure_whole(options.whole, options.asked)
        return 0
    measure_requests(options.requests)
    measure_filters(options.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

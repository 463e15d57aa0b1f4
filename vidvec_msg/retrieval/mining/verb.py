"""The verb ``mine-negatives``: pairs and any embedder → the same pairs with hard negatives."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, get_args

from vidvec_msg.embedders.contract import ROLES, Embedder, Role
from vidvec_msg.embedders.load import check_spec, load_embedder
from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.pairs import SUFFIXES, Pair, read_pairs
from vidvec_msg.formats.pairs_file import as_row, as_table, write_pairs
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.retrieval.mining.choice import Rules, Sampling
from vidvec_msg.retrieval.mining.corpus import read_candidates
from vidvec_msg.retrieval.mining.rows import Mined, mined
from vidvec_msg.retrieval.mining.table import account
from vidvec_msg.retrieval.mining.texts import Candidates
from vidvec_msg.retrieval.mining.vectors import TextVectors, embed_texts, kept_until_written
from vidvec_msg.runs import digest_of

log = logging.getLogger(__name__)

PROVENANCE = "mined"
"""Column that says which embedder and options found a row's negatives, and how they scored."""

Existing = Literal["keep", "replace"]


def mine_negatives(
    pairs: str,
    embedder: str,
    out: Path,
    *,
    columns: dict[str, str] | None = None,
    corpus: str | None = None,
    num_negatives: int = 3,
    range_min: int = 0,
    range_max: int = 100,
    margin: float | None = None,
    relative_margin: float | None = 0.05,
    max_score: float | None = None,
    min_score: float | None = None,
    sampling: Sampling = "top",
    seed: int = 0,
    existing: Existing = "keep",
    anchor_role: Role = "document",
    vectors: Path | None = None,
    max_failures: float = 0,
) -> Path:
    """Finds hard negatives for training pairs: messages that lie near a storyline without belonging to it.

    Candidates of an anchor are the positives of all pairs, less those that share its anchor or its group
    anywhere in the file, and less those of the same words. An interrupted run goes on where it stopped.

    Args:
        pairs: a .jsonl, .csv or .parquet file, or module:function that yields rows.
        embedder: what makes the vectors: a folder, a YAML file, module:Class, or a short form (st:NAME).
        out: the file to make: .jsonl, .csv or .parquet.
        columns: name of the column per role (anchor, positive, negatives, group, id) where it differs.
        corpus: further candidates: a .txt file with a text a line, rows with a text (a BEIR corpus), or
            pairs.
        num_negatives: negatives per pair at most; a pair that finds fewer is kept with those.
        range_min: ranks that are skipped, of the candidates a pair may take: the nearest are often true.
        range_max: rank at which a pair stops looking.
        margin: least distance of a negative below the pair's own positive, in cosine.
        relative_margin: the same as a share of the positive's cosine. 0.05 leaves out what may well be true
            (NV-Retriever's value, Moreira et al. 2024); null turns it off.
        max_score: highest cosine of a negative.
        min_score: lowest cosine of a negative.
        sampling: "top" takes the nearest of what remains, "random" draws from it by the seed.
        seed: of the draw.
        existing: "keep" adds to the negatives that a pair has, "replace" drops those.
        anchor_role: how anchors are worded: "document" (storylines, the videos' stand-ins) or "query";
            candidates get the other role.
        vectors: folder that keeps the vectors for further runs with other options; by default they lie beside
            the file that is made until it is complete.
        max_failures: texts that may fail: a count, or a share of all texts if below 1.

    Returns:
        the file.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: the file was written, with more failed texts than allowed.
    """
    rules = Rules(
        num_negatives, range_min, range_max, margin, relative_margin, max_score, min_score, sampling, seed
    )
    read, further = _checked(
        pairs, embedder, out, columns, corpus, rules, existing, anchor_role, max_failures
    )
    if existing == "replace":
        read = [replace(pair, negatives=()) for pair in read]
    candidates = Candidates.of(read, further)
    loaded = load_embedder(embedder)
    options = {**asdict(rules), "existing": existing, "anchor_role": anchor_role}
    with kept_until_written(out, vectors) as folder:
        anchors, messages = _vectors(read, candidates, loaded, anchor_role, folder)
        found = mined(read, candidates, anchors, messages, rules)
        origin = {
            "embedder": loaded.card.name,
            "fingerprint": loaded.card.fingerprint,
            "options": digest_of([options, candidates.texts])[:16],
        }
        write_pairs(out, (_with(pair, one, origin) for pair, one in zip(read, found, strict=True)))
    sys.stdout.write(account(read, found, candidates, rules))
    count = sum(len(one.negatives) for one in found)
    log.info(f"made {out}: {len(read):,} pairs, {count:,} mined negatives ({loaded.card.name})")
    _judge([*anchors.failures, *messages.failures], len(anchors.rows) + len(messages.rows), max_failures, out)
    return out


def _vectors(
    pairs: Sequence[Pair], candidates: Candidates, embedder: Embedder, anchor_role: Role, folder: Path
) -> tuple[TextVectors, TextVectors]:
    """Vectors of the anchors, and of the messages in the other role; each distinct text once per role."""
    other: Role = "query" if anchor_role == "document" else "document"
    anchors = sorted({pair.anchor for pair in pairs})
    messages = sorted({pair.positive for pair in pairs} | set(candidates.texts))
    return (
        embed_texts(anchors, embedder, role=anchor_role, folder=folder),
        embed_texts(messages, embedder, role=other, folder=folder),
    )


def _with(pair: Pair, one: Mined, origin: dict[str, str]) -> Pair:
    """The pair with what was mined, and where that is from."""
    record: dict[str, Any] = {**origin, "positive_score": one.positive, "scores": list(one.scores)}
    return replace(
        pair,
        negatives=(*pair.negatives, *one.negatives),
        provenance={**pair.provenance, PROVENANCE: record},
    )


def _checked(
    pairs: str,
    embedder: str,
    out: Path,
    columns: dict[str, str] | None,
    corpus: str | None,
    rules: Rules,
    existing: str,
    anchor_role: str,
    max_failures: float,
) -> tuple[list[Pair], list[Pair | str]]:
    """The pairs and the further candidates; refuses everything that is wrong with the request at once."""
    problems = Problems("mine-negatives")
    rules.note_problems(problems)
    if existing not in get_args(Existing):
        problems.add(f"existing is {existing!r}; accepted: {', '.join(get_args(Existing))}")
    if anchor_role not in ROLES:
        problems.add(f"anchor_role is {anchor_role!r}; accepted: {', '.join(ROLES)}")
    note_max_failures(max_failures, problems)
    if out.suffix not in SUFFIXES:
        problems.add(f"--out {out}: unknown format; accepted: {', '.join(SUFFIXES)}")
    if out.exists():
        problems.add(f"--out {out} exists already; give another file, or remove it first")
    read: list[Pair] = []
    further: list[Pair | str] = []
    with _collecting(problems):
        check_spec(embedder)
    with _collecting(problems):
        read = read_pairs(pairs, columns)
        _refuse_unwritable(read, out)
    with _collecting(problems):
        further = [] if corpus is None else read_candidates(corpus)
    problems.refuse_if_any()
    return read, further


@contextmanager
def _collecting(problems: Problems) -> Iterator[None]:
    """Turns a refusal into one of several problems."""
    try:
        yield
    except RefusedRequest as refusal:
        problems.add(str(refusal).replace("\n", "\n  "))  # its own list, one level in


def _refuse_unwritable(pairs: Sequence[Pair], out: Path) -> None:
    """What cannot be written is found out before the hours of embedding."""
    rows = [as_row(pair) for pair in pairs]
    if out.suffix == ".parquet":
        as_table(rows)


def _judge(failures: Sequence[Failure], embedded: int, max_failures: float, out: Path) -> None:
    if not failures:
        return
    total = embedded + len(failures)
    named = (Failure(repr(one.item[:60]), one.reason) for one in failures)  # their ids are the texts
    told = (
        f"{len(failures)} of {total} texts cannot be embedded, so that their pairs find nothing and nobody "
        f"finds them: {first_failures(named, len(failures))}"
    )
    if len(failures) > allowed_failures(max_failures, total):
        raise TooManyFailures(f"{told}. {out} was written; --max_failures allows more.")
    log.warning(told)

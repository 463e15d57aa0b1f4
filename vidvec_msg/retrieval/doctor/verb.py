"""The verb ``doctor``: an embedder, and a collection if there is one → a table and an exit code."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from json import dumps
from pathlib import Path

from vidvec_msg.errors import JobFailed, Problems
from vidvec_msg.formats.collections import Collection
from vidvec_msg.retrieval.doctor.audit import audit
from vidvec_msg.retrieval.doctor.checks import examine
from vidvec_msg.retrieval.doctor.finding import Finding
from vidvec_msg.retrieval.doctor.table import as_object, drawn, summary
from vidvec_msg.retrieval.evaluation.cached_digests import digests_of_cache
from vidvec_msg.retrieval.evaluation.vector_cache import USER


def doctor(
    embedder: str,
    *,
    collection: Path | None = None,
    items: int = 8,
    decode_all: bool = False,
    budget: float = 60.0,
    json: bool = False,
    cache: str = USER,
) -> None:
    """Examines an embedder, and a collection, and says what is wrong with them; nothing is written but the
    digests of clips that it read, into the cache.

    A table goes to stdout. Exit code 0: nothing failed (warnings are allowed); 1: something failed.

    Args:
        embedder: what makes the vectors: a folder, a YAML file, module:Class, or a short form (st:NAME).
        collection: folder to audit, whose first items the embedder is tried on too.
        items: items of each side of the collection that are embedded, and whose files are opened.
        decode_all: open every clip, image and sound of the collection, not the first ones only.
        budget: seconds for the checks of the embedder, the first loading not counted; a soft limit. Slow
            models are tried on fewer items, and checks that did not fit are listed as skipped.
        json: prints one JSON object instead of the table.
        cache: clips that have not changed since their digest was made are not read for it again: "user" for
            the user's cache folder, as in evaluate, a folder, or "none".

    Raises:
        RefusedRequest: the embedder or the collection cannot be loaded.
        JobFailed: something failed; the table was printed.
    """
    _refuse_bad_options(items=items, budget=budget)
    began = time.perf_counter()
    loaded = None if collection is None else Collection.load(collection, unreachable="keep")
    with nullcontext() if loaded is None else digests_of_cache(cache):
        exam, checks = examine(embedder, collection=loaded, items=items, budget=budget)
        audited = [] if loaded is None else audit(loaded, decode=None if decode_all else items)
    seconds = time.perf_counter() - began
    if json:
        content = as_object(
            spec=embedder, card=exam.card, checks=checks, audited=audited, seconds=seconds,
            collection=None if loaded is None else str(loaded.root),
        )  # fmt: skip
        sys.stdout.write(dumps(content, ensure_ascii=False, indent=2) + "\n")
    else:
        card = exam.card
        about = f"embedder {card.name}: {', '.join(card.modalities)}; {card.dim} dimensions, {card.dtype}"
        groups = {f"{about}, {card.fingerprint}": checks}
        if loaded is not None:
            groups[f"collection {collection}"] = audited
        closing = f"{summary([*checks, *audited])}; {seconds:.0f} s"
        sys.stdout.write(drawn(groups, closing))
    _fail_if_any([*checks, *audited])


def _refuse_bad_options(*, items: int, budget: float) -> None:
    problems = Problems("doctor")
    if items < 1:
        problems.add(f"items is {items}; it must be at least 1 (items per side)")
    if not budget > 0:
        problems.add(f"budget is {budget}; it must be above 0 (seconds)")
    problems.refuse_if_any()


def _fail_if_any(findings: list[Finding]) -> None:
    failed = [finding.name for finding in findings if finding.verdict == "fail"]
    if failed:
        raise JobFailed(f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}")

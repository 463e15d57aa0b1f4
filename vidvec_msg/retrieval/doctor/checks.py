"""The table of checks of an embedder, and how it is worked through."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from vidvec_msg.embedders.check import CollapsedSpaceWarning
from vidvec_msg.embedders.contract import Embedder
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.precomputed import Precomputed
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.retrieval.doctor import contract_checks, cost, media_checks, same_vector, space_checks
from vidvec_msg.retrieval.doctor.examination import Examination, OutOfTime, one_line
from vidvec_msg.retrieval.doctor.finding import Finding, not_applicable
from vidvec_msg.retrieval.doctor.probes import (
    Probe,
    collection_probes,
    own_probes,
    stored_probes,
    unread_items,
)

USABLE = ("answers", "shape", "finite")
STEADY = (*USABLE, "repeatable")
TOGETHER = (*STEADY, "batch against single")


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Args:
        name: as in its finding.
        run: what it does; an exception that it lets through is a failed check.
        needs: checks whose failing leaves it nothing to compare: one fault is reported once.
    """

    name: str
    run: Callable[[Examination], Finding]
    needs: tuple[str, ...] = ()


# in the order of the table; what loads the embedder again comes last
CHECKS: tuple[Check, ...] = (
    Check("answers", contract_checks.answers),
    Check("float32", contract_checks.float32_arrays, ("answers",)),
    Check("shape", contract_checks.shape, ("answers",)),
    Check("empty input", contract_checks.empty_input, ("answers",)),
    Check("finite", contract_checks.finite, ("answers", "shape")),
    Check("unit norm", contract_checks.unit_norm, USABLE),
    Check("repeatable", same_vector.repeatable, USABLE),
    Check("batch against single", same_vector.batch_against_single, STEADY),
    Check("order", same_vector.order, TOGETHER),
    Check("roles", contract_checks.roles, STEADY),
    Check("collapsed space", space_checks.collapsed, USABLE),
    Check("anisotropy", space_checks.anisotropy, (*USABLE, "collapsed space")),
    Check("prompt", media_checks.prompt_present, ("answers",)),
    Check("cut words", media_checks.cut_words, ("answers",)),
    Check("frames", media_checks.frames_used, ("answers",)),
    Check("visual tokens", media_checks.visual_tokens, ("answers",)),
    Check("media matter", media_checks.pictures_matter, (*STEADY, "collapsed space")),
    Check("two readers", media_checks.two_readers, STEADY),
    Check("speed", cost.speed, USABLE),
    Check("memory", cost.memory),
    Check("padding", same_vector.padding, (*TOGETHER, "order")),
    Check("save and load", same_vector.save_and_load, STEADY),
    Check("dtype drift", same_vector.dtype_drift, STEADY),
)


def examine(
    embedder: Embedder | str,
    *,
    collection: Collection | None = None,
    items: int = 8,
    budget: float = 60.0,
) -> tuple[Examination, list[Finding]]:
    """Works through all checks.

    Args:
        embedder: a spec; or an object, for which the checks that load it again do not apply.
        collection: whose first items are tried too.
        items: of each side.
        budget: seconds that the checks may take, the first loading not counted; a soft limit. Probes shrink
            and later checks are skipped, and say so.

    Returns:
        the examination, for the card, and one finding per check, in the order of :data:`CHECKS`.

    Raises:
        RefusedRequest: the spec cannot be loaded, or the embedder lacks something that must be installed.
    """
    spec = embedder if isinstance(embedder, str) else None
    fresh = _without_cache(spec or "")
    reload = None if spec is None else partial(load_embedder, spec, **fresh)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="vidvec-doctor-") as scratch:
        warnings.simplefilter("ignore", CollapsedSpaceWarning)  # a check of its own says it
        importing = "torch" not in sys.modules  # then about half of the first loading is not repeated
        began = time.perf_counter()
        patient = load_embedder(embedder, **fresh) if isinstance(embedder, str) else embedder
        seconds = time.perf_counter() - began
        exam = Examination(
            patient, [], budget=budget, reload=reload, spec=spec,
            load_seconds=seconds / 2 if importing else seconds, first_load=seconds,
        )  # fmt: skip
        del patient  # the examination alone holds it, and lets it go before it loads another
        exam.probes = _probes(exam, Path(scratch), collection, items)
        exam.start_clock()
        return exam, list(_worked_through(exam))


def _without_cache(spec: str) -> dict[str, None]:
    """The option that makes an embedder compute each vector: a cache would answer with the first one again,
    and every comparison would be of a vector with itself."""
    return {"cache": None} if spec.startswith("openai:") else {}


def _probes(exam: Examination, folder: Path, collection: Collection | None, count: int) -> list[Probe]:
    embedder = exam.opened
    if not isinstance(embedder, Precomputed):
        own = own_probes(folder, exam.card.modalities)
        if collection is None:
            return own
        sides = (collection.corpus, collection.queries)
        exam.unread = unread_items(*sides, exam.card.modalities)
        return own + collection_probes(*sides, exam.card.modalities, count=count)
    if collection is not None:  # looking up costs nothing: every item, whatever it is made of
        return [
            Probe("corpus", collection.corpus, own=False),
            Probe("queries", collection.queries, "query", own=False),
        ]
    return stored_probes(embedder.ids)


def _worked_through(exam: Examination) -> Iterator[Finding]:
    failed: set[str] = set()
    for check in tqdm(CHECKS, desc="doctor", unit="check", leave=False, disable=not sys.stderr.isatty()):
        finding = _finding(check, exam, failed)
        if finding.verdict == "fail":
            failed.add(check.name)
        yield finding


def _finding(check: Check, exam: Examination, failed: set[str]) -> Finding:
    """What a check found; where it has nothing to stand on, why."""
    # an embedder that stumbles over some items is looked at with the others
    broken = [need for need in check.needs if need in failed and not (need == "answers" and exam.answered)]
    if broken:
        return not_applicable(check.name, f"nothing to compare: {broken[0]!r} failed")
    try:
        return check.run(exam)
    except OutOfTime as late:
        return Finding(check.name, "skipped", found=str(late), advice="give more time: --budget SECONDS")
    except RefusedRequest:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
            advice = "give it a machine with more memory"
            return Finding(check.name, "skipped", found=f"out of memory: {one_line(error)}", advice=advice)
        advice = "encode must not raise for items that it took before"
        return Finding(check.name, "fail", None, f"raised {one_line(error)}", advice)

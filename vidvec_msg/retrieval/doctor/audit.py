"""The audit of a collection: is it fit to measure with? Everything in one pass, nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from vidvec_msg.formats.collections import Collection
from vidvec_msg.retrieval.doctor import items_audit, media_audit, relevance_audit
from vidvec_msg.retrieval.doctor.finding import Finding

# in the order of the table
AUDITS: tuple[Callable[[Collection], Finding], ...] = (
    media_audit.missing,
    media_audit.odd_segments,
    items_audit.ids_that_read_alike,
    items_audit.odd_ids,
    items_audit.ids_on_both_sides,
    items_audit.empty_texts,
    items_audit.text_lengths,
    items_audit.same_texts,
    items_audit.same_media,
    items_audit.queries_in_the_corpus,
    relevance_audit.unreachable,
    relevance_audit.without_positives,
    relevance_audit.positives_per_query,
    relevance_audit.never_relevant,
    relevance_audit.overlapping_splits,
    relevance_audit.across_the_border,
)


def audit(collection: Collection, *, decode: int | None = 8) -> list[Finding]:
    """Looks for what makes numbers wrong or jobs end early.

    Args:
        collection: loaded with ``unreachable="keep"``, so that such judgements are found and not refused.
        decode: clips, images and sounds of each side that are opened, the first ones; None opens all.

    Returns:
        one finding per line of the table.
    """
    checks: tuple[Callable[[Collection], Finding], ...] = (
        *AUDITS,
        partial(media_audit.decodes, most=decode),
    )
    return [_size(collection), *(check(collection) for check in checks)]


def _size(collection: Collection) -> Finding:
    """What there is."""
    told = []
    for name, items in items_audit.sides(collection):
        kinds = Counter(item.modality for item in items)
        told.append(f"{name} {len(items)} ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())})")
    splits = f"splits {', '.join(collection.qrels)}"
    count = len(collection.corpus) + len(collection.queries)
    return Finding("size", "ok", count, f"{'; '.join(told)}; {splits}")

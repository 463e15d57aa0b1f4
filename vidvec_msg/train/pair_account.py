"""What a set of training pairs holds, what is odd about it, and which pairs have no negative.

Pure functions of the pairs; nothing here changes them. What counts as a negative is what
:func:`vidvec_msg.train.losses.cells.directions` says, computed here from counts instead of a matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from statistics import median

from vidvec_msg.formats.pairs import Pair


def account(pairs: Sequence[Pair], negatives: int | None = None) -> str:
    """One line: groups, distinct texts, repetitions, hard negatives per pair.

    Args:
        pairs: one or more.
        negatives: hard negatives per pair that train at most; None for all.
    """
    groups = {pair.group for pair in pairs if pair.group is not None}
    alone = sum(pair.group is None for pair in pairs)
    parts = [_counted(len(groups), "group") if groups else "no groups"]
    if groups and alone:
        parts[0] += f" and {_counted(alone, 'pair')} without one"
    texts = [text for pair in pairs for text in (pair.anchor, pair.positive)]
    distinct = len(set(texts))
    parts.append(
        f"{distinct:,} distinct texts in {len(texts):,} places ({1 - distinct / len(texts):.0%} repeated)"
    )
    counts = [len(pair.negatives) for pair in pairs]
    if not any(counts):
        parts.append("no hard negatives")
        return ", ".join(parts)
    parts.append(f"hard negatives per pair {min(counts)} to {max(counts)}, median {median(counts):g}")
    more = 0 if negatives is None else sum(count > negatives for count in counts)
    if more:
        drawn = "none of them trains" if negatives == 0 else "another draw of them trains each epoch"
        have = "1 pair has" if more == 1 else f"{more:,} pairs have"
        parts.append(f"{have} more than the {negatives} asked for: {drawn}")
    return ", ".join(parts)


def oddities(pairs: Sequence[Pair]) -> list[str]:
    """What is odd about the pairs without being an error, a sentence each, with the first pair concerned."""
    seen: set[tuple[str, str]] = set()
    repeated: list[str] = []
    for row, pair in enumerate(pairs):
        if (pair.anchor, pair.positive) in seen:
            repeated.append(_name(row, pair))
        seen.add((pair.anchor, pair.positive))
    itself = [_name(row, pair) for row, pair in enumerate(pairs) if pair.anchor == pair.positive]
    own = [
        _name(row, pair)
        for row, pair in enumerate(pairs)
        if not {pair.anchor, pair.positive}.isdisjoint(pair.negatives)
    ]
    found = []
    if repeated:
        found.append(f"{_pairs(repeated)} anchor and positive of an earlier pair again; each copy trains")
    if itself:
        found.append(f"{_pairs(itself)} the same text as anchor and as positive, which teaches nothing")
    if own:
        found.append(f"{_pairs(own)} the own anchor or positive among the negatives; that is left out")
    return found


def without_negative(batch: Sequence[Pair]) -> int:
    """Pairs of a batch whose anchor has no negative in it.

    Args:
        batch: the pairs of all ranks, with the hard negatives that they have in it.
    """
    anchors = Counter(pair.anchor for pair in batch)
    positives = Counter(pair.positive for pair in batch)
    groups = Counter(_group(row, pair) for row, pair in enumerate(batch))
    most = max(anchors.values()) + max(groups.values()) + 2 * max(positives.values())
    if most < len(batch):  # the usual case: nobody can share something with all others
        return 0
    counts: Counter[tuple[Hashable, Hashable, Hashable]] = Counter()
    for row, pair in enumerate(batch):
        for anchor in (pair.anchor, None):
            for positive in (pair.positive, None):
                for group in (_group(row, pair), None):
                    counts[anchor, positive, group] += 1  # None: whichever
    texts = {text for pair in batch for text in pair.negatives}
    starved = 0
    for row, pair in enumerate(batch):
        anchor, group = pair.anchor, _group(row, pair)
        # No negatives are the pairs of the same anchor or group, and of the others those whose positive is a
        # text of this pair. By inclusion and exclusion: the matrix of a batch of 30,000 would not fit.
        same = counts[anchor, None, None] + counts[None, None, group] - counts[anchor, None, group]
        for text in {pair.anchor, pair.positive}:
            same += counts[None, text, None] - counts[anchor, text, None]
            same += counts[anchor, text, group] - counts[None, text, group]
        negatives = len(texts) - len(texts & {pair.anchor, pair.positive})
        starved += same == len(batch) and not negatives
    return starved


def what_all_share(pairs: Sequence[Pair]) -> str:
    """Why no pair is another's negative, to finish a sentence; empty where several things come together."""
    for name, of in _ASPECTS:
        values = {of(pair) for pair in pairs}
        if len(values) == 1 and (value := values.pop()) is not None:
            shown = value if len(value) <= 60 else f"{value[:59]}…"
            return f"all {len(pairs):,} pairs share their {name}, {shown!r}"
    return ""


_ASPECTS: tuple[tuple[str, Callable[[Pair], str | None]], ...] = (
    ("group", lambda pair: pair.group),
    ("positive", lambda pair: pair.positive),
    ("anchor", lambda pair: pair.anchor),
)


def _group(row: int, pair: Pair) -> Hashable:
    """A pair without a group is a group of its own."""
    return row if pair.group is None else pair.group


def _counted(count: int, one: str) -> str:
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def _name(row: int, pair: Pair) -> str:
    return pair.id or f"pair {row + 1}"


def _pairs(names: Sequence[str]) -> str:
    """ "1 pair (pair 3) has" or "12 pairs (the first: pair 3) have"."""
    if len(names) == 1:
        return f"1 pair ({names[0]}) has"
    return f"{len(names):,} pairs (the first: {names[0]}) have"

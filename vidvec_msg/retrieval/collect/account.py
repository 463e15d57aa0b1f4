"""What a collection was made of, in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vidvec_msg.media.facts import MediaFacts
from vidvec_msg.retrieval.collect.candidates import Candidate, LeftOut

_REASONS = 6  # kinds of reasons that are listed
_GROUPS = 8  # values of a group that are listed


def account(
    rows: Sequence[Candidate],
    written: int,
    spoken: int,
    left_out: Sequence[LeftOut],
    facts: Sequence[MediaFacts],
    queries: int,
) -> list[str]:
    """The lines.

    Args:
        rows: what the sources hold and can be used.
        written: rows of the corpus, segments counted singly.
        spoken: of them, with a transcript.
        left_out: what became no row.
        facts: of the media that can be used.
        queries: rows of the other side.
    """
    kinds = Counter(next(iter(row.media), "text") for row in rows)
    lines = ["found " + (", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()) or "nothing")]
    lines[0] += f" → {written:,} rows"
    lines[0] += f", {spoken:,} with a transcript" if spoken else ""
    lines[0] += f", {queries:,} queries" if queries else ""
    if facts:
        lines.append(_of_media(facts))
    for name in dict.fromkeys(name for row in rows for name in row.groups):
        counts = Counter(row.groups[name] for row in rows if name in row.groups)
        shown = ", ".join(f"{value} {count:,}" for value, count in counts.most_common(_GROUPS))
        more = f", … {len(counts) - _GROUPS} more" if len(counts) > _GROUPS else ""
        lines.append(f"group {name}: {shown}{more}")
    if left_out:
        broken = sum(one.broken for one in left_out)
        reasons = Counter(_kind(one.reason) for one in left_out)
        lines.append(f"left out {len(left_out):,}, {broken:,} of them broken:")
        lines += [f"  {count:,} × {reason}" for reason, count in reasons.most_common(_REASONS)]
        if len(reasons) > _REASONS:
            lines.append(f"  and {len(reasons) - _REASONS} other reasons")
    return lines


def _kind(reason: str) -> str:
    """A reason without the file that it is about, so that equal ones can be counted."""
    return reason.partition(": /")[0].partition(", taken once")[0].partition(" as /")[0]


def _of_media(facts: Sequence[MediaFacts]) -> str:
    hours = sum(fact.duration for fact in facts) / 3600
    moving = [fact for fact in facts if fact.medium == "video"]
    codecs = Counter(f"{fact.codec} in {fact.container.partition(',')[0]}" for fact in facts if fact.codec)
    parts = [f"{len(facts):,} files looked into, {hours:,.2f} hours" if hours else f"{len(facts):,} files"]
    if codecs:
        parts.append(", ".join(f"{name} ×{count:,}" for name, count in codecs.most_common(4)))
    told = {
        "without sound": sum(not fact.has_sound for fact in moving),
        "turned": sum(fact.rotation != 0 for fact in moving),
        "with a variable rate": sum(fact.variable_rate for fact in moving),
        "that PyAV reads and decord cannot": sum(fact.reader == "pyav" for fact in moving),
        "with frames that do not decode": sum(
            fact.decoded_frames is not None and fact.decoded_frames < fact.frames for fact in moving
        ),
    }
    parts += [f"{count:,} {what}" for what, count in told.items() if count]
    return "; ".join(parts)

"""The words of a clip, for embedders that read text alone: which of its fields, in which order."""

from __future__ import annotations

from vidvec_msg.errors import did_you_mean
from vidvec_msg.formats.items import Item

CLIP_FIELDS = ("transcript", "ocr", "text", "title")


def clip_fields(spec: str | None) -> tuple[str, ...]:
    """The fields that a spec such as ``"transcript+ocr"`` names; none for None.

    Raises:
        ValueError: an unknown field, or one named twice.
    """
    names = () if spec is None else tuple(name.strip() for name in spec.split("+"))
    for name in names:
        if name not in CLIP_FIELDS:
            raise ValueError(
                f"clip_text is {spec!r}: {name!r} is no field of a clip{did_you_mean(name, CLIP_FIELDS)}; "
                f"it takes {', '.join(CLIP_FIELDS)}, joined by +, or none"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"clip_text is {spec!r}: a field stands twice")
    return names


def words_of_clip(item: Item, fields: tuple[str, ...]) -> str:
    """What these fields of a clip hold, a line break between them; blank fields are left out.

    Raises:
        ValueError: none of them holds anything; the message names what was looked for.
    """
    found = [(getattr(item, name) or "").strip() for name in fields]
    words = "\n".join(filter(None, found))
    if not words:
        advice = "; `vidvec-msg annotate` writes such fields" if {"transcript", "ocr"} & set(fields) else ""
        raise ValueError(
            f"the clip has no {' and no '.join(fields)}, which is all that this embedder reads of a clip "
            f"(clip_text={'+'.join(fields)}){advice}"
        )
    return words

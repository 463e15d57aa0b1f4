"""What an embedder is tried on: texts of every length, pictures, clips, sounds, and a collection's items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vidvec_msg.embedders.contract import Role
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.media.probe_clips import FPS, moving_square, write_clip, write_image, write_tone

TEXTS: tuple[str, ...] = (
    "a dog",
    "Patience outlasts every obstacle.",
    "Two friends share their last bread with a stranger on the road.",
    "The invoice of the second quarter was paid on 14 March 2023, two weeks too late: 1,250.00 EUR.",
    "Ein Kind lernt schwimmen, obwohl es das Wasser fürchtet.",
    "It rains on the roof of the garden shed.",
    "How do I restart the router after a power cut?",
    "In the first picture a man climbs a ladder. In the second the ladder breaks. In the third he builds a "
    "better one, slowly, with tools that his neighbour has lent him, and climbs again.",
    "Volcanic soils hold water well.",
    "She sang; nobody listened. She sang again, and one window opened, and then another, until the whole "
    "street stood at its windows in the cold.",
    "Keep the change!",
    # longer than all others together, so that a batch has much to fill up
    "The old harbour had a bell that rang whenever fog came in. When the keeper fell ill, nobody else knew "
    "how to ring it, and the boats waited outside through a long and windless night. In the morning a girl "
    "of nine climbed the tower, pulled the rope with all her weight, and heard the horns of the boats "
    "answer her one after another. The keeper recovered in spring. He taught her everything that he knew: "
    "the winds, the currents behind the pier, the names of the captains and of their children, and how to "
    "tell from the colour of the evening what the next day would bring. Years later, when the harbour got "
    "an electric signal, the two of them still met at the tower on foggy mornings, drank tea, and rang the "
    "bell three times, because somebody out there might be listening for it.",
)
"""Of two words to a hundred and fifty, in an order that mixes lengths."""


CLIP_FRAMES = {"clip-wide": 4 * FPS, "clip-high": 2 * FPS, "clip-short": 2}
"""Frames that the own clips have, by id."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Items that are encoded together.

    Args:
        name: "text", "image", "video", "audio"; a side of the collection or of stored vectors: "corpus",
            "queries"; or "stored" vectors of both.
        items: what is encoded.
        role: in which role.
        own: they are ours, so an embedder that refuses one of them is to blame; a collection's may be broken.
    """

    name: str
    items: tuple[Item, ...]
    role: Role = "document"
    own: bool = True


def own_probes(folder: Path, modalities: Sequence[Modality]) -> list[Probe]:
    """The probes of what an embedder says it reads; media files are written into the folder.

    Clips and pictures carry a transcript and a visible word, for embedders that read those.
    """
    made = {"text": _texts, "image": _images, "video": _clips, "audio": _sounds}
    return [Probe(name, tuple(make(folder))) for name, make in made.items() if name in modalities]


def _texts(folder: Path) -> list[Item]:
    return [Item(f"text-{number}", text=text) for number, text in enumerate(TEXTS, 1)]


def _images(folder: Path) -> list[Item]:
    wide = write_image(folder / "wide.png", moving_square(3, word="KEEP GOING")[1])
    high = write_image(folder / "high.png", moving_square(3, height=224, width=160, colour=2, word="STOP")[0])
    return [
        Item("image-wide", image=wide, text="keep going", ocr="KEEP GOING"),
        Item("image-high", image=high, text="stop", ocr="STOP"),
    ]


def _clips(folder: Path) -> list[Item]:
    wide = write_clip(folder / "wide.mp4", moving_square(CLIP_FRAMES["clip-wide"], word="KEEP GOING"))
    high = write_clip(
        folder / "high.mp4",
        moving_square(CLIP_FRAMES["clip-high"], height=224, width=160, colour=2, word="STOP"),
    )
    # 1–7 frames are 42% of one meme benchmark
    short = write_clip(folder / "short.mp4", moving_square(CLIP_FRAMES["clip-short"], colour=3, word="SHORT"))
    return [
        Item("clip-wide", video=wide, transcript="keep going until the wall breaks", ocr="KEEP GOING"),
        Item("clip-high", video=high, transcript="stop before it is too late", ocr="STOP"),
        Item("clip-short", video=short, transcript="a short one", ocr="SHORT"),
    ]


def _sounds(folder: Path) -> list[Item]:
    low = write_tone(folder / "low.wav", hertz=220)
    high = write_tone(folder / "high.wav", hertz=990, seconds=2)
    return [
        Item("sound-low", audio=low, transcript="a low tone"),
        Item("sound-high", audio=high, transcript="a high tone"),
    ]


def stored_probes(ids: Mapping[Role, tuple[str, ...]]) -> list[Probe]:
    """Everything that stored vectors know, without a collection that says what the ids stand for."""
    names: dict[Role, str] = {"document": "corpus", "query": "queries"}
    if len(ids) == len(names) and len(set(ids.values())) == 1:  # one file for both roles
        ids, names = {"document": ids["document"]}, {"document": "stored"}
    return [
        Probe(names[role], tuple(Item(one, text=one) for one in known), role, own=False)
        for role, known in ids.items()
    ]


def unread_items(
    corpus: Sequence[Item], queries: Sequence[Item], modalities: Sequence[Modality]
) -> list[tuple[str, bool]]:
    """The items of each side that the embedder does not read, in words, and whether these are all."""
    unread = []
    for name, items in (("corpus", corpus), ("queries", queries)):
        kinds = Counter(item.modality for item in items if item.modality not in modalities)
        if kinds:
            told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            unread.append((f"{name}: {told} of {len(items)}", kinds.total() == len(items)))
    return unread


def collection_probes(
    corpus: Sequence[Item], queries: Sequence[Item], modalities: Sequence[Modality], *, count: int
) -> list[Probe]:
    """The first items of each side that the embedder says it reads."""
    sides: dict[str, tuple[Sequence[Item], Role]] = {
        "corpus": (corpus, "document"),
        "queries": (queries, "query"),
    }
    probes = []
    for name, (items, role) in sides.items():
        readable = [item for item in items if item.modality in modalities][:count]
        if readable:
            probes.append(Probe(name, tuple(readable), role, own=False))
    return probes

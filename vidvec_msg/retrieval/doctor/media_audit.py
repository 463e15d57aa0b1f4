"""The media of a collection: whether the files are there, open, and hold the seconds that a row names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vidvec_msg.formats.collections import Collection, missing_media
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.images import ImageError, read_image
from vidvec_msg.media.limits import DecodePool, shared_pool
from vidvec_msg.media.sound import SoundError
from vidvec_msg.media.video import VideoError
from vidvec_msg.retrieval.doctor.finding import Finding, counted, not_applicable
from vidvec_msg.retrieval.doctor.items_audit import sides

SHORTEST = 0.2  # seconds; a segment below holds no more than a few frames
SLACK = 0.5  # seconds that a segment may end behind its file: containers round
_POLICY = FramePolicy(fps=1.0, max_frames=4)  # four frames over the whole clip: a torn end shows


def missing(collection: Collection) -> Finding:
    """Files that rows name and that are not there, or are empty."""
    cases = [
        f"{side}: {failure.item!r} {failure.reason}"
        for side, items in sides(collection)
        for failure in missing_media(items)
    ]
    return counted(
        "missing media", cases, otherwise="fail", what="rows without their file", none="every file is there",
        advice="paths are relative to the collection's folder; fetch the files, or remove the rows",
    )  # fmt: skip


def odd_segments(collection: Collection) -> Finding:
    """Rows with a start or end that means nothing, or next to nothing."""
    cases = []
    for side, items in sides(collection):
        for item in items:
            if item.start is None and item.end is None:
                continue
            if item.modality in ("text", "image"):
                cases.append(f"{side}: {item.id!r} is {item.modality} and has seconds")
            elif item.end is not None and item.end - (item.start or 0.0) < SHORTEST:
                seconds = item.end - (item.start or 0.0)
                cases.append(f"{side}: {item.id!r} is {seconds:.2g} s long")
    return counted(
        "odd segments", cases, otherwise="warn", what="rows whose seconds mean nothing, or next to nothing",
        none="start and end are seconds of a clip or sound", advice="start and end are seconds, not frames",
    )  # fmt: skip


def decodes(collection: Collection, *, most: int | None, timeout: float = 120.0) -> Finding:
    """Clips, images and sounds that open and hold what their row says.

    Args:
        collection: loaded.
        most: how many of a side are opened, the first ones; None opens all.
        timeout: seconds that one clip may take.
    """
    broken: list[str] = []
    tried = total = 0
    for side, items in sides(collection):
        media = [item for item in items if _file(item) is not None]
        total += len(media)
        chosen = media if most is None else media[:most]
        tried += len(chosen)
        broken += [f"{side}: {item.id!r} {reason}" for item, reason in _broken(chosen, timeout)]
    name = "media that do not decode"
    if not total:
        return not_applicable(name, "no media files are there")
    opened = f"{tried} of {total} opened" + ("" if tried == total else "; all: --decode_all")
    return counted(
        name, broken, otherwise="fail",
        what=f"broken files or segments ({opened})",
        none=f"no file is broken ({opened})", advice="fetch them again, or remove the rows",
    )  # fmt: skip


def _file(item: Item) -> Path | None:
    """The file of a row's medium; None where it is missing, which is a finding of its own."""
    source = next((one for one in (item.video, item.image, item.audio) if one is not None), None)
    return source if isinstance(source, Path) and source.is_file() and source.stat().st_size else None


def _broken(items: Sequence[Item], timeout: float) -> Iterator[tuple[Item, str]]:
    pool = shared_pool(2, timeout)
    for item in items:
        path = _file(item)
        if path is None:
            continue
        try:
            seconds = _seconds(item, path, pool)
        except (VideoError, ImageError, SoundError) as error:
            yield item, str(error)
            continue
        if item.end is not None and seconds is not None:
            lacking = item.end - (item.start or 0.0) - seconds
            if lacking > SLACK:
                yield item, f"ends {lacking:.1f} s behind the end of {path.name}"


def _seconds(item: Item, path: Path, pool: DecodePool) -> float | None:
    """Opens a file; how long its segment is, None for an image."""
    if item.video is not None:
        return pool.read(path, _POLICY, start=item.start, end=item.end).duration
    if item.image is not None:
        read_image(path)
        return None
    return pool.read_sound(path, start=item.start, end=item.end).duration

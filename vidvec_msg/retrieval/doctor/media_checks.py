"""What a model is given of a clip and of the words around it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vidvec_msg.embedders.contract import Inspection
from vidvec_msg.errors import ItemError
from vidvec_msg.formats.items import Item
from vidvec_msg.media.video import VideoError, read_frames
from vidvec_msg.retrieval.doctor.examination import Answers, Examination, one_line
from vidvec_msg.retrieval.doctor.finding import Finding, Verdict, judged, not_applicable
from vidvec_msg.retrieval.doctor.probes import CLIP_FRAMES
from vidvec_msg.retrieval.doctor.space import row_cosines, unit

DIFFERENT = 0.9999  # cosine below which clips that show different things have different vectors
READERS_AGREE = 0.999  # both decode with FFmpeg; colour conversion may round differently
READERS_DIFFER = 0.99
_CLIPS = 4  # that go through both readers
_WORDS_ONLY = "its model is given words, and no pixels"
_SILENT = "it does not say what its model is given (no method inspect)"


def pictures_matter(exam: Examination) -> Finding:
    """Media that differ get vectors that differ: nothing was turned into a word, or dropped."""
    name = "media matter"
    closest: list[tuple[float, str]] = []
    for kind in ("video", "image", "audio"):
        given = exam.answers.get(kind)
        if given is None or len(given.items) < 2:
            continue
        items = [_bare(item) for item in given.items] if exam.card.transcript != "none" else given.items
        rows = unit(given.matrix() if items is given.items else exam.encode(items, given.probe.role))
        cosines = rows @ rows.T - 2 * np.eye(len(rows))  # a row with itself does not count
        one, other = np.unravel_index(int(cosines.argmax()), cosines.shape)
        closest.append((float(cosines.max()), f"{items[int(one)].id} and {items[int(other)].id}"))
    if not closest:
        return not_applicable(name, "fewer than two clips, images or sounds were encoded")
    cosine, pair = max(closest)
    return judged(
        name, cosine < DIFFERENT, value=round(cosine, 6),
        found=f"the nearest two, {pair}, have cosine {cosine:.4f}",
        advice="what the media show does not reach the vector: check that pixels, not paths, go to the model",
    )  # fmt: skip


def _bare(item: Item) -> Item:
    return dataclasses.replace(item, text=None, title=None, transcript=None, ocr=None)


def two_readers(exam: Examination) -> Finding:
    """Frames that decord and PyAV read from the same file give the same vector."""
    name = "two readers"
    clips = [
        item
        for probe in ("video", "corpus", "queries")
        for item in (exam.answers[probe].items if probe in exam.answers else ())
        if isinstance(item.video, Path)
    ][:_CLIPS]
    if exam.looks_up or not clips or exam.card.frames is None:
        return not_applicable(name, "it sees no frames of clips")

    policy = exam.card.frames
    exam.reserve(*(probe for probe in ("video", "corpus") if probe in exam.answers))
    read: dict[str, list[Item]] = {"decord": [], "pyav": []}
    for item in clips:
        for reader, items in read.items():
            try:
                frames = read_frames(
                    Path(str(item.video)), policy, start=item.start, end=item.end, reader=reader,  # type: ignore[arg-type]  # a key above
                )  # fmt: skip
            except VideoError as error:
                advice = "one reader alone opens this clip"
                return Finding(name, "warn", reader, f"{item.id}: {error}", advice)
            items.append(dataclasses.replace(item, video=frames.pixels, start=None, end=None))
    pixels = max(_apart(one, other) for one, other in zip(*read.values(), strict=True))
    try:
        cosines = row_cosines(*(exam.encode(items, "document") for items in read.values()))
    except ItemError as error:
        return not_applicable(name, f"it takes no frames in memory: {one_line(error)}")
    worst = int(cosines.argmin())
    least = float(cosines[worst])
    verdict: Verdict = "ok" if least >= READERS_AGREE else "warn" if least >= READERS_DIFFER else "fail"
    found = (
        f"decord and PyAV, {len(clips)} clips: cosine from {least:.6f} ({clips[worst].id}), "
        f"pixels at most {pixels:g} of 255 apart"
    )
    advice = "embed the whole corpus with one reader; look at the clip's rotation and rate"
    return Finding(name, verdict, round(least, 6), found, "" if verdict == "ok" else advice)


def _apart(one: Item, other: Item) -> float:
    """Mean difference of the frames' pixels; 255 if they differ in number or size."""
    if not isinstance(one.video, np.ndarray) or not isinstance(other.video, np.ndarray):
        return 255.0
    if one.video.shape != other.video.shape:
        return 255.0
    return round(float(np.abs(one.video.astype(np.int16) - other.video).mean()), 2)


def frames_used(exam: Examination) -> Finding:
    """The model sees the frames that the policy asked for, as far as the clip has them."""
    name = "frames"
    found = _inspected(exam, "video")
    if isinstance(found, str):
        return not_applicable(name, found)
    if not any(one.frames_asked or one.frames_used for one in found):
        return not_applicable(name, _WORDS_ONLY)
    lost = [
        f"{one.item}: {one.frames_asked} asked, {one.frames_used} used"
        for one in found
        if one.frames_used < min(one.frames_asked, CLIP_FRAMES.get(one.item, one.frames_asked))
    ]
    told = ", ".join(f"{one.frames_used} of {one.frames_asked}" for one in found)
    readers = "/".join(sorted({one.reader for one in found if one.reader})) or "unknown reader"
    return judged(
        name, not lost, value=found[0].frames_used, examples=tuple(lost[:3]),
        found=f"used of asked: {told}; by {readers}",
        advice="frames get lost on the way: the processor must not sample again (do_sample_frames=False)",
    )  # fmt: skip


def visual_tokens(exam: Examination) -> Finding:
    """How many tokens a clip or an image becomes, and that the pixel budget holds."""
    name = "visual tokens"
    found: list[Inspection] = []
    why = ""
    for kind in ("video", "image"):
        some = _inspected(exam, kind)
        if isinstance(some, str):
            why = why or some
        else:
            found += some
    if not found:
        return not_applicable(name, why)
    if not any(one.frames_used or one.visual_tokens or one.size for one in found):
        return not_applicable(name, _WORDS_ONLY)
    told = ", ".join(f"{one.item} {one.visual_tokens}" for one in found)
    blind = [one.item for one in found if one.visual_tokens == 0]
    budget = exam.card.frames.max_pixels if exam.card.frames is not None else 0
    large = [
        f"{one.item}: {one.size[0]} x {one.size[1]}"
        for one in found
        if budget and one.size is not None and one.size[0] * one.size[1] > budget
    ]
    if blind or large:
        problem = f"none for {', '.join(blind)}" if blind else f"larger than max_pixels {budget}: {large[0]}"
        advice = "check what the processor is given"
        return Finding(name, "fail", found[0].visual_tokens, problem, advice, tuple(large[:3]))
    return Finding(name, "ok", found[0].visual_tokens, told)


def prompt_present(exam: Examination) -> Finding:
    """The wording that the card holds is in what the tokenizer gets, and so are the item's own words."""
    name = "prompt"
    if exam.card.prompt is None:
        return not_applicable(name, "its card holds no prompt")
    missing: list[str] = []
    seen = ""
    for kind in ("text", "video", "image", "audio"):
        found = _inspected(exam, kind)
        if isinstance(found, str):
            continue
        pieces = _pieces(getattr(exam.card.prompt, kind)) + _pieces(exam.card.prompt.instruction)
        for one, item in zip(found, exam.answers[kind].items, strict=True):
            own = [item.full_text] if kind == "text" and not one.cut_tokens else []
            wording = _plain(one.wording)
            missing += [f"{one.item}: {piece!r}" for piece in (*pieces, *own) if _plain(piece) not in wording]
        seen = seen or (pieces[-1] if pieces else "an empty prompt")
    if not seen:
        return not_applicable(name, _SILENT)
    return judged(
        name, not missing, value=seen, examples=tuple(missing[:3]),
        found=f"missing for {missing[0]}" if missing else f"{_plain(seen)!r} stands in the model's input",
        advice="vectors without the prompt of the training are other vectors: check the template",
    )  # fmt: skip


def cut_words(exam: Examination) -> Finding:
    """How many items have more words than ``max_tokens`` takes; those of a collection are a warning."""
    name = "cut words"
    cut: dict[bool, list[str]] = {True: [], False: []}  # of our own probes, of the collection
    looked = dict.fromkeys(cut, 0)
    for probe, given in exam.answers.items():
        found = _inspected(exam, probe)
        if not isinstance(found, str):
            own = given.probe.own
            looked[own] += len(found)
            cut[own] += [
                f"{probe} {one.item} loses {one.cut_tokens} tokens" for one in found if one.cut_tokens
            ]
    if not any(looked.values()):
        return not_applicable(name, _SILENT)
    limit = "" if exam.card.max_tokens is None else f" at max_tokens={exam.card.max_tokens}"
    told = [f"{len(cut[True])} of {looked[True]} probes"] if looked[True] else []
    told += [f"{len(cut[False])} of {looked[False]} items of the collection"] if looked[False] else []
    return judged(
        name, not cut[False], "warn", value=len(cut[True]) + len(cut[False]),
        found=f"cut{limit}: {', '.join(told)}",
        examples=tuple([*cut[False], *cut[True]][:3]),
        advice="raise max_tokens, or accept that only the beginning counts",
    )  # fmt: skip


def _inspected(exam: Examination, probe: str) -> Sequence[Inspection] | str:
    """What the model is given for a probe, or why that is not known."""
    given: Answers | None = exam.answers.get(probe)
    if given is None or not given.items:
        return f"no {probe} was encoded"
    found = exam.inspections(probe)
    return _SILENT if found is None else found


def _pieces(template: str) -> list[str]:
    """The words of a template around its slot."""
    return [piece.strip() for piece in re.split(r"\{(?:text|video|audio)\}", template) if piece.strip()]


def _plain(text: str) -> str:
    return " ".join(text.split())

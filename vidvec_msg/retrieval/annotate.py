"""What is said and written in clips becomes fields of their collection; the verb ``annotate``."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from tqdm import tqdm

from vidvec_msg.embedders.cascade.recognised_file import Recognised, RecognisedFile
from vidvec_msg.embedders.cascade.recognition import Recognition, has_pictures, has_sound
from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.collections import Side, load_side
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.write_back import side_rows, write_fields
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.media.screen_text import FRAMES, MAX_PIXELS, MIN_CONFIDENCE, ScreenTextReader
from vidvec_msg.media.speech import NO_SPEECH, Engine, open_speech
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures, refuse_missing_media
from vidvec_msg.runs import require_new, write_json_lines

log = logging.getLogger(__name__)

Field = Literal["transcript", "ocr"]


def annotate(
    collection: Path,
    *,
    side: Side = "corpus",
    asr: str | None = None,
    asr_engine: Engine = "auto",
    language: str | None = None,
    device: str = "auto",
    ocr: bool = False,
    ocr_frames: int = FRAMES,
    ocr_confidence: float = MIN_CONFIDENCE,
    ocr_max_pixels: int = MAX_PIXELS,
    threads: int = 0,
    redo: bool = False,
    out: Path | None = None,
    decode_timeout: float = 120.0,
    max_failures: float = 0,
) -> Path:
    """Recognises what is said and written in clips and writes it into the collection's rows.

    The fields are transcript and ocr, with transcript_info and ocr_info beside them. Rows change in place by
    default, by additions alone; an interrupted run goes on where it stopped.

    Args:
        collection: folder with corpus.jsonl or queries.jsonl.
        side: which file is annotated: "corpus" or "queries".
        asr: Whisper model that recognises speech: a folder, a hub name, or a size (large-v3-turbo); without
            it no transcripts are made.
        asr_engine: "faster-whisper", "transformers", or "auto": by the model's form.
        language: spoken language of all clips, a code such as en; found out per clip if not given.
        device: of the speech model: "auto" (GPU if there is one), "cpu", "cuda".
        ocr: read on-screen text (RapidOCR).
        ocr_frames: frames per clip that are read, uniformly spaced.
        ocr_confidence: lines of text below it are left out, 0 to 1.
        ocr_max_pixels: height x width of a frame at most; 0 leaves it as it is.
        threads: of the on-screen text reader; 0 takes one per core.
        redo: recognise again where the collection has the field already.
        out: folder for an annotated copy (rows and judgements, media stay where they are); without it the
            collection itself is changed.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        max_failures: items that may fail: a count, or a share of the annotated items if below 1 (0.01 is 1%).

    Returns:
        the annotated collection.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: the collection was written, with more failed items than allowed.
    """
    items = load_side(collection, side)
    asked: dict[Field, bool] = {"transcript": asr is not None, "ocr": ocr}
    wanted = [name for name, wish in asked.items() if wish]
    settings: dict[Field, dict[str, tuple[object, object]]] = {  # option → its value and its default
        "transcript": {
            "language": (language, None),
            "asr_engine": (asr_engine, "auto"),
            "device": (device, "auto"),
        },
        "ocr": {
            "ocr_frames": (ocr_frames, FRAMES),
            "ocr_confidence": (ocr_confidence, MIN_CONFIDENCE),
            "ocr_max_pixels": (ocr_max_pixels, MAX_PIXELS),
            "threads": (threads, 0),
        },
    }
    _refuse_bad_request(wanted, settings, max_failures)
    target = collection if out is None or out.resolve() == collection.resolve() else out
    if target != collection:
        require_new(target, option="--out", resumable=_work_name(side))
    todo = _missing_fields(items, side_rows(collection, side), wanted, redo=redo)
    media = [item for item in items if item.id in todo]
    missing = refuse_missing_media(media, max_failures)  # before a model is loaded
    fields_asked = {name for names in todo.values() for name in names}
    try:
        pool = shared_pool(2, decode_timeout)
        screen = (
            ScreenTextReader(
                frames=ocr_frames, min_confidence=ocr_confidence, max_pixels=ocr_max_pixels, threads=threads
            )
            if "ocr" in fields_asked
            else None
        )
        speech = (
            open_speech(asr, engine=asr_engine, language=language, device=device)
            if asr is not None and "transcript" in fields_asked
            else None
        )
    except RefusedRequest:
        raise
    except ValueError as error:  # an option out of its range
        raise RefusedRequest(f"cannot annotate: {error}") from error
    tally = Tally(items=len(media), failures=list(missing.values()))
    with _working(target, side) as work:
        kept = RecognisedFile(work / "recognised.jsonl")
        recognition = Recognition(pool, speech=speech, screen=screen, kept=kept)
        present = [item for item in media if item.id not in missing]
        fields = _recognised(present, todo, recognition, tally, name=collection.name)
        write_fields(collection, side, fields, out=target)
        _write_failures(target / f"{side}.annotate-failures.jsonl", tally.failures)
    log.info("%s", tally.summary(side, target, wanted))
    _refuse_too_many(tally, allowed_failures(max_failures, len(media)), target, side)
    return target


@dataclass(slots=True)
class Tally:
    """What was found, for the closing line.

    Args:
        items: whose fields were missing.
        spoken: clips with a transcript.
        silent: clips without sound, or with nothing to hear.
        doubtful: transcripts that Whisper wrote where it heard no speech, by its own limit.
        loops: transcripts that run in a loop.
        written: clips with on-screen text.
        failures: items of which something could not be recognised.
    """

    items: int = 0
    spoken: int = 0
    silent: int = 0
    doubtful: int = 0
    loops: int = 0
    written: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, name: Field, found: Recognised) -> None:
        """Counts one result."""
        if name == "ocr":
            self.written += bool(found.text)
            return
        self.spoken += bool(found.text)
        self.silent += bool(found.info["silent"])
        self.loops += bool(found.info["repetition"])
        self.doubtful += (found.info["no_speech_probability"] or 0.0) > NO_SPEECH

    def summary(self, side: Side, target: Path, wanted: Sequence[Field]) -> str:
        """One line: what was found and where it is."""
        if not self.items:
            return f"{target}: every row of {side}.jsonl has its {' and '.join(wanted)}: nothing to annotate"
        parts = []
        if "transcript" in wanted:
            parts.append(
                f"{self.spoken} with a transcript ({self.doubtful} of them likely without speech, "
                f"{self.loops} in a loop), {self.silent} silent"
            )
        if "ocr" in wanted:
            parts.append(f"{self.written} with text on screen")
        parts.append(f"{len(self.failures)} failed")
        return f"{self.items} items annotated in {target / f'{side}.jsonl'}: {', '.join(parts)}"


def _recognised(
    items: Sequence[Item],
    todo: Mapping[str, Sequence[Field]],
    recognition: Recognition,
    tally: Tally,
    *,
    name: str,
) -> dict[str, dict[str, Any]]:
    """New fields by id; failures go to the tally, and what could be recognised of a failed item is kept."""
    readers = {"transcript": recognition.transcript, "ocr": recognition.screen_text}
    fields: dict[str, dict[str, Any]] = {}
    with tqdm(items, desc=f"annotate {name}", unit="item", disable=not sys.stderr.isatty()) as bar:
        for item in bar:
            reasons = []
            for kind in todo[item.id]:
                try:
                    found = readers[kind](item)
                except RefusedRequest:
                    raise
                except ValueError as error:  # VideoError, SoundError, ImageError
                    reasons.append(f"{kind}: {error}")
                    continue
                tally.add(kind, found)
                fields.setdefault(item.id, {}).update({kind: found.text, f"{kind}_info": dict(found.info)})
            if reasons:
                tally.failures.append(Failure(item.id, "; ".join(reasons)))
                bar.set_postfix(failed=len(tally.failures), refresh=False)
    return fields


def _missing_fields(
    items: Sequence[Item], rows: Iterator[Mapping[str, Any]], wanted: Sequence[Field], *, redo: bool
) -> dict[str, list[Field]]:
    """Which of the wanted fields each item lacks; items without a medium for a field do not lack it.

    An empty field counts as there if its info says that somebody looked.
    """
    lacking: dict[str, list[Field]] = {}
    for item, row in zip(items, rows, strict=True):
        for name in wanted:
            perceivable = has_sound(item) if name == "transcript" else has_pictures(item)
            there = bool((row.get(name) or "").strip()) or (
                row.get(name) is not None and bool(row.get(f"{name}_info"))
            )
            if perceivable and (redo or not there):
                lacking.setdefault(item.id, []).append(name)
    return lacking


def _refuse_bad_request(
    wanted: Sequence[Field],
    settings: Mapping[Field, Mapping[str, tuple[object, object]]],
    max_failures: float,
) -> None:
    problems = Problems("cannot annotate")
    if not wanted:
        problems.add(
            "nothing was asked for: give --asr MODEL for transcripts, --ocr for on-screen text, or both"
        )
    asking: dict[Field, str] = {"transcript": "--asr MODEL", "ocr": "--ocr"}
    for kind, options in settings.items():
        for name, (value, default) in options.items():
            if kind not in wanted and value != default:
                problems.add(f"{name} is {value!r}, and there is no {asking[kind]} that it could be for")
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()


@contextmanager
def _working(target: Path, side: Side) -> Iterator[Path]:
    """The folder of unfinished work inside the target; one process at a time. It goes when all is written."""
    work = target / _work_name(side)
    work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(work / "lock", timeout=0):
            yield work
    except Timeout:
        raise RefusedRequest(
            f"another process is annotating the {side} of {target}; wait until it ends."
        ) from None
    shutil.rmtree(work)


def _work_name(side: Side) -> str:
    return f".annotate-{side}"


def _write_failures(path: Path, failures: Sequence[Failure]) -> None:
    if not failures:
        path.unlink(missing_ok=True)  # of an earlier run
        return
    write_json_lines(path, map(asdict, failures))


def _refuse_too_many(tally: Tally, allowed: int, target: Path, side: Side) -> None:
    if len(tally.failures) <= allowed:
        return
    raise TooManyFailures(
        f"{len(tally.failures)} of {tally.items} items failed and {allowed} may (max_failures); the others "
        f"are annotated, the reasons in {target / f'{side}.annotate-failures.jsonl'}: "
        f"{first_failures(tally.failures, len(tally.failures))}. The same command tries the failed items "
        "again."
    )

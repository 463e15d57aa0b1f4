"""Judgements, kept clip by clip as they come: whatever ends a job, it goes on where it stopped."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.formats.kept_digests import DIGESTS, digests_kept_in
from vidvec_msg.retrieval.progress import progress
from vidvec_msg.retrieval.reranking.contract import Group, Judgement, Reranker, Unjudged
from vidvec_msg.runs import digest_of, only_writer

log = logging.getLogger(__name__)

JUDGEMENTS = "judgements.jsonl"

Pair = tuple[str, str]
"""Ids of a clip and of a text."""


class Judgements:
    """The judgements of a job on disk, a line per clip, appended and never rewritten.

    A judgement is found by its content: reranker, clip and text. Failures are not kept, so that they are
    tried again. Reading changes nothing on disk, also where nothing may be written; whoever adds says so
    before (:meth:`begin_adding`), and until the end of the ``with`` statement nobody else adds.

    Args:
        path: the file. Lines that are no judgements, a torn last one (of a killed process) too, are passed
            over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, tuple[float, float]] = {}
        self._adding = ExitStack()
        self._alone = False
        self._read_all()

    def __enter__(self) -> Judgements:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._alone = False
        self._adding.close()

    def _read_all(self) -> int:
        """Takes in what is on disk, and returns how many bytes of it are whole lines."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._kept.update(_read(line))
        return len(whole)

    def begin_adding(self) -> None:
        """Keeps others from adding, and takes in what they added since; does nothing the second time.

        Rerankings into other folders may add to the same file. A torn last line is taken away, so that a
        resumed job ends in the bytes of an undisturbed one.

        Raises:
            RefusedRequest: another process is adding.
            OSError: the file cannot be written.
        """
        if self._alone:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._adding.enter_context(
            only_writer(
                self.path.parent, what=f"judgements {self.path}", file=self.path.name,
                otherwise="or give another --judgements",
            )
        )  # fmt: skip
        whole = self._read_all()
        with self.path.open("ab") as stream:
            stream.truncate(whole)
        self._alone = True

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> tuple[float, float] | None:
        """Logarithms of the probabilities of yes and no, if they are there."""
        return self._kept.get(key)

    def add(self, clip: str, rows: Sequence[tuple[str, Judgement]], *, reranker: str) -> None:
        """Keeps the judgements of a clip, each with its key; they are on disk when this returns."""
        self.begin_adding()
        judged = [[one.text, key, one.yes, one.no] for key, one in rows]
        line = json.dumps({"reranker": reranker, "clip": clip, "judged": judged}, ensure_ascii=False)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._kept.update({key: (one.yes, one.no) for key, one in rows})


@dataclass(frozen=True, slots=True)
class Outcome:
    """All pairs of a job.

    Args:
        judged: pair → its judgement.
        failures: pairs without one.
        asked: pairs that the reranker judged now; the others were kept.
    """

    judged: dict[Pair, Judgement]
    failures: tuple[Unjudged, ...]
    asked: int


def judge_all(reranker: Reranker, groups: Sequence[Group], kept: Judgements) -> Outcome:
    """Judges what is not kept yet, and keeps it.

    Args:
        reranker: that judges.
        groups: each pair once.
        kept: earlier judgements; the new ones are added.

    Raises:
        RefusedRequest: pairs have no judgement, and their file cannot be written; nobody was asked.
    """
    with digests_kept_in(kept.path.parent / DIGESTS):
        keys = {
            (group.clip.id, text.id): key
            for group in groups
            for text, key in _keys(reranker.fingerprint, group)
        }
    open_ = _missing(groups, keys, kept)
    if open_:
        try:
            kept.begin_adding()
        except OSError as error:
            raise RefusedRequest(
                f"{_pairs(open_):,} of {len(keys):,} pairs have no judgement of {reranker.name} in "
                f"{kept.path}, and it cannot be added to ({error.strerror or error}). Make the folder "
                f"{kept.path.parent} and the file writable, or give a copy of the file elsewhere: "
                "--judgements COPY"
            ) from error
        open_ = _missing(groups, keys, kept)  # less what others judged since
    asked = _pairs(open_)
    log.info(
        "%s: %s pairs of %s clips to judge, %s kept from before",
        reranker.name, f"{asked:,}", f"{len(open_):,}", f"{len(keys) - asked:,}",
    )  # fmt: skip
    failures: list[Unjudged] = []
    done = 0
    with progress("rerank", asked, done=0, log=log) as tell:
        for group, outcome in zip(open_, reranker.judge(open_), strict=True):
            if outcome.judgements:
                rows = [(keys[one.clip, one.text], one) for one in outcome.judgements]
                kept.add(group.clip.id, rows, reranker=reranker.fingerprint)
            failures += outcome.failures
            done += len(group.texts)
            tell(done, len(failures))
    judged = {}
    for pair, key in keys.items():
        found = kept.get(key)
        if found is not None:
            judged[pair] = Judgement(*pair, *found)
    return Outcome(judged, tuple(failures), asked)


def _keys(fingerprint: str, group: Group) -> Iterator[tuple[Item, str]]:
    try:
        clip = item_digest(group.clip)
    except OSError:  # missing: it fails where it is decoded, but for a reranker that reads its words alone
        item = group.clip
        clip = digest_of(["missing", item.id, item.full_text, item.transcript, item.ocr])
    for text in group.texts:
        yield text, digest_of([fingerprint, clip, text.full_text])


def _missing(groups: Iterable[Group], keys: dict[Pair, str], kept: Judgements) -> list[Group]:
    """The pairs without a judgement; groups of which all have one are left out."""
    found = []
    for group in groups:
        texts = tuple(text for text in group.texts if kept.get(keys[group.clip.id, text.id]) is None)
        if texts:
            found.append(replace(group, texts=texts))
    return found


def _pairs(groups: Iterable[Group]) -> int:
    return sum(len(group.texts) for group in groups)


def _read(line: bytes) -> Iterable[tuple[str, tuple[float, float]]]:
    try:
        rows = json.loads(line)["judged"]
        return [(str(key), (float(yes), float(no))) for _, key, yes, no in rows]
    except (ValueError, KeyError, TypeError):
        return []

"""Vectors that were computed before, by content: a second evaluation with other metrics embeds nothing.

The key of a vector is everything that decides it. The embedder's fingerprint (weights, prompts, pooling,
layer, frames, …) and the role name a folder; in it, an item's key is the digest of its content (texts, frames
or the file with its size, its ends and its time of change), not its id. A vector is therefore found again in
another split, pool, collection or folder, and never for another checkpoint, prompt or text.

    CACHE/<fingerprint>/<role>/part-*.npy     (rows, dim) float32
    CACHE/<fingerprint>/<role>/part-*.json    keys of the rows, checksum of the .npy; written last
    CACHE/digests/part-*.bin                  digests of files that are not read again until they change

Parts are only added, under names of their own, so several processes may share a folder. Failures are not
kept: a failed item is tried again. To empty the cache, remove the folder.

Embedders that are identified by a name alone (an endpoint, a class of the user's own) are not cached unless a
folder is given by name: what stands behind the name may change.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.checksums import Checksum, checksum, named
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, EmbedderCard, Prepares, Role, Tallies, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.formats.kept_digests import digests_kept_in, parts_of
from vidvec_msg.runs import replacing, write_json

log = logging.getLogger(__name__)

NONE = "none"  # the option's word for no cache
USER = "user"  # and for the user's own cache folder
_SAVE_EVERY = 30.0  # seconds of work that a kill may cost
_BY_NAME = ("openai", "vectors", "cascade")  # specs whose vectors are not decided by weights that we hash


def user_folder() -> Path:
    """Where vectors are kept unless another folder is given: ``$XDG_CACHE_HOME/vidvec-msg/vectors``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vidvec-msg" / "vectors"


@contextmanager
def cached(embedder: Embedder, cache: str, *, spec: str, within_the_run: bool = False) -> Iterator[Embedder]:
    """The embedder, answering from a cache where it can; what it made is saved when the block ends.

    Args:
        embedder: what makes the vectors.
        cache: "user" for the user's cache folder, "none", or a folder.
        spec: what the embedder was loaded from.
        within_the_run: where nothing is cached on disk, keep vectors in memory until the block ends.

    Raises:
        RefusedRequest: the cache is a file.
    """
    folder = None
    if spec.partition(":")[0] != "vectors" and cache != NONE:
        if cache != USER:
            folder = Path(cache)
        elif identified_by_weights(spec, embedder.card):
            folder = user_folder()
        else:
            log.info("%s is known by its name alone: not cached (--cache FOLDER does)", embedder.card.name)
    if folder is None and not within_the_run:
        yield embedder
        return
    kind = TallyingCachedEmbedder if isinstance(embedder, Tallies) else CachedEmbedder
    made = kind(embedder, VectorCache(folder))
    with nullcontext() if folder is None else digests_kept_in(folder / "digests"):
        try:
            yield made
        finally:
            made.cache.save()
            if folder is not None and made.found:
                log.info("%d vectors from the cache %s, %d made", made.found, folder, made.made)


def identified_by_weights(spec: str, card: EmbedderCard) -> bool:
    """Whether the card's digest of weights was made by us from the files that were loaded."""
    form, colon, _ = spec.partition("?")[0].partition(":")
    path = Path(spec.partition("?")[0]).expanduser()
    ours = (path.is_dir() and not path.suffix) or not colon or form in ("mllm", "st", "clip", "videoprism")
    by_file = path.suffix in (".yaml", ".yml")  # class_path: a class of the user's own
    return bool(card.weights) and ours and not by_file and form not in _BY_NAME


class VectorCache:
    """A folder of vectors by fingerprint, role and content.

    Args:
        folder: made when something is written; None keeps vectors in memory only.

    Raises:
        RefusedRequest: the folder is a file.
    """

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and os.path.isfile(folder):  # noqa: PTH113 - Path.is_file raises where it cannot look
            raise RefusedRequest(f"cache {folder} is a file; give a folder, or 'none' for no cache")
        self.folder = folder
        self._read: dict[tuple[str, str], dict[str, tuple[Path | None, int]]] = {}
        self._arrays: dict[Path | None, Any] = {}
        self._pending: dict[tuple[str, str], dict[str, Vectors]] = {}
        self._saved = time.monotonic()

    def find(self, card: EmbedderCard, role: Role, keys: Sequence[str]) -> dict[str, Vectors]:
        """The vectors that are there, ``(dim,)`` each, by key."""
        place = (card.fingerprint, role)
        known, pending = self._index(place), self._pending.get(place, {})
        found: dict[str, Vectors] = {}
        for key in keys:
            if key in pending:
                found[key] = pending[key]
            elif key in known:
                path, row = known[key]
                found[key] = np.asarray(self._arrays[path][row])
        return {key: vector for key, vector in found.items() if vector.shape == (card.dim,)}

    def add(self, card: EmbedderCard, role: Role, keys: Sequence[str], vectors: Vectors) -> None:
        """Keeps vectors, ``(len(keys), dim)``; written after half a minute, or by :meth:`save`."""
        pending = self._pending.setdefault((card.fingerprint, role), {})
        pending.update(zip(keys, np.array(vectors, dtype=np.float32), strict=True))
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Writes what is not yet on disk; a folder that cannot be written is said once and left alone."""
        self._saved = time.monotonic()
        if self.folder is None:
            return
        for place, pending in self._pending.items():
            if pending:
                try:
                    self._write(self.folder.joinpath(*place), pending)
                except OSError as error:
                    log.warning("cache %s cannot be written (%s): going on without it", self.folder, error)
                    self.folder = None
                    return
                self._read.pop(place, None)
                pending.clear()

    def _write(self, folder: Path, pending: dict[str, Vectors]) -> None:
        stream = io.BytesIO()
        np.save(stream, np.stack(list(pending.values())))
        data = stream.getvalue()
        path = folder / f"part-{uuid.uuid4().hex}.npy"
        with replacing(path) as temporary:
            temporary.write_bytes(data)
        made = Checksum()
        made.update(data)
        write_json(path.with_suffix(".json"), {"keys": list(pending), "checksum": str(made)})

    def _index(self, place: tuple[str, str]) -> dict[str, tuple[Path | None, int]]:
        """Where each key of a fingerprint and role stands; parts that are damaged are left out."""
        if place in self._read:
            return self._read[place]
        index: dict[str, tuple[Path | None, int]] = {}
        parts = [] if self.folder is None else parts_of(self.folder.joinpath(*place), "part-*.json")
        for part in parts:
            path = part.with_suffix(".npy")
            try:
                content = json.loads(part.read_text(encoding="utf-8"))
                if path not in self._arrays:
                    expected = content["checksum"] if "checksum" in content else content["sha256"]
                    if checksum(path, like=expected) != named(expected):
                        raise ValueError("its checksum is wrong")
                    self._arrays[path] = np.load(path, mmap_mode="r", allow_pickle=False)
                index |= {key: (path, row) for row, key in enumerate(content["keys"])}
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("cache: %s is left out: %s", path, error)
        self._read[place] = index
        return index


class CachedEmbedder:
    """An embedder that encodes only what its cache lacks; the same contract, the same card.

    Args:
        embedder: makes the vectors.
        cache: keeps them.
    """

    def __init__(self, embedder: Embedder, cache: VectorCache) -> None:
        self.embedder, self.cache = embedder, cache
        self.found = self.made = 0

    @property
    def card(self) -> EmbedderCard:
        """Of the embedder."""
        return self.embedder.card

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """As the embedder's; items that it names in an ItemError are not cached."""
        keys = [content_key(item) for item in items]
        known = self.cache.find(self.card, role, keys)
        missing = [place for place, key in enumerate(keys) if key not in known]
        vectors = np.empty((len(items), self.card.dim), dtype=np.float32)
        for place, key in enumerate(keys):
            if key in known:
                vectors[place] = known[key]
        if missing:
            rest = [items[place] for place in missing]
            # what breaks the contract must not be kept
            made = check_vectors(self.embedder.encode(rest, role=role), rest, self.card)
            vectors[missing] = made
            self.cache.add(self.card, role, [keys[place] for place in missing], made)
        self.found += len(items) - len(missing)
        self.made += len(missing)
        return vectors

    def prepare(self, items: Sequence[Item]) -> None:
        """Passed on for items that will be encoded: the embedder keeps frames until they are."""
        if isinstance(self.embedder, Prepares):
            self.embedder.prepare(self._unknown(items))

    def _unknown(self, items: Sequence[Item]) -> list[Item]:
        items = [item for item in items if _is_there(item)]
        keys = [content_key(item) for item in items]
        roles: tuple[Role, ...] = ("query", "document")
        # which role comes is not said: an item that is known in either may not be asked for again
        known = set().union(*(self.cache.find(self.card, role, keys) for role in roles))
        return [item for item, key in zip(items, keys, strict=True) if key not in known]


class TallyingCachedEmbedder(CachedEmbedder):
    """Of an embedder that :class:`~vidvec_msg.embedders.contract.Tallies`."""

    @property
    def tally(self) -> object:
        """The embedder's: of what was made, not of what was found."""
        return self.embedder.tally if isinstance(self.embedder, Tallies) else ""


def _is_there(item: Item) -> bool:
    sources = (item.video, item.image, item.audio)
    return all(source.is_file() for source in sources if isinstance(source, Path))


def content_key(item: Item) -> str:
    """Digest of an item's content; of a media file its time of change counts too, so that a file that was
    edited in its middle is read again."""
    digest = item_digest(item)
    times = [
        str(source.stat().st_mtime_ns)
        for source in (item.video, item.image, item.audio)
        if isinstance(source, Path)
    ]
    return hashlib.sha256(" ".join([digest, *times]).encode()).hexdigest() if times else digest

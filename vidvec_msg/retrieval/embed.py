"""Items → a vectors folder, resumable at any moment; the verb ``embed``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.embedders.contract import Embedder, EmbedderCard, Prepares, Role, Tallies
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import Failure, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.collections import Side, open_side
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.kept_digests import DIGESTS, digests_kept_in
from vidvec_msg.formats.vectors import MANIFEST, VectorsFolder
from vidvec_msg.media.limits import clips_read, readers_since
from vidvec_msg.retrieval.disk_space import refuse_without_room
from vidvec_msg.retrieval.embedding.encoding import encode_batch, items_per_call
from vidvec_msg.retrieval.embedding.request import (
    StoredType,
    allowed_failures,
    digest_of_items,
    note_max_failures,
    refuse_bad_request,
    refuse_missing_media,
)
from vidvec_msg.retrieval.embedding.slices import SLICES, adopt, bounds, discard, folder_of, parse_slice
from vidvec_msg.retrieval.embedding.spec_paths import spec_from_anywhere
from vidvec_msg.retrieval.embedding.writing import VectorsWriter, is_complete, writing
from vidvec_msg.retrieval.progress import progress as progress_of
from vidvec_msg.runs import software_versions

log = logging.getLogger(__name__)

__all__ = [
    "StoredType",
    "allowed_failures",
    "digest_of_items",
    "embed",
    "embed_items",
    "encode_batch",
    "items_per_call",
    "note_max_failures",
    "refuse_bad_request",
    "refuse_missing_media",
    "spec_from_anywhere",
    "write_vectors",
]

SIDE_ROLES: dict[Side, Role] = {"corpus": "document", "queries": "query"}
_HOPELESS = 256  # items; if the first ones all failed, hours more would not help


def embed(
    collection: Path,
    embedder: str,
    out: Path,
    *,
    side: Side = "corpus",
    role: Literal["auto", "query", "document"] = "auto",
    batch_size: int = 0,
    shard_size: int = 50_000,
    shard: str | None = None,
    dtype: StoredType = "float32",
    max_failures: float = 0,
    engine: Literal["local", "ray"] = "local",
    actors: int = 0,
) -> Path:
    """Embeds one side of a collection into a vectors folder; an interrupted run goes on where it stopped.

    Args:
        collection: folder with corpus.jsonl and queries.jsonl (any BEIR folder is one).
        embedder: what makes the vectors: a folder, a YAML file, module:Class, or a short form (st:NAME).
        out: the vectors folder to make.
        side: which file is embedded: "corpus" or "queries".
        role: how items are worded; "auto" takes "document" for the corpus and "query" for the queries.
        batch_size: items per call of the embedder, which forms its own batches of them; 0: 1024 texts, or 32
            items of a side with media.
        shard_size: items per .npy file; also what memory holds at once.
        shard: "3/16" embeds the third of 16 slices into OUT/slices/, so that several processes or machines
            share the work; when all are there, the same command without it joins them.
        dtype: how vectors are stored; float16 halves the folder and rounds in the fourth digit.
        max_failures: items that may fail: a count, or a share of all items if below 1 (0.01 is 1%).
        engine: "local": this process; "ray": a Ray cluster, the one of RAY_ADDRESS or else one on this
            machine. The folder is the same, and either goes on where the other stopped.
        actors: processes of the cluster that hold the model; 0: one for each of its GPUs, or one for each
            machine if it has none.

    Returns:
        the vectors folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: the folder was written, with more failed items than allowed.
    """
    items = open_side(collection, side)
    refuse_bad_request(
        items, batch_size=batch_size, shard_size=shard_size, dtype=dtype, max_failures=max_failures
    )
    if actors < 0 or (actors and engine != "ray"):
        raise RefusedRequest(f"--actors {actors}: a number of processes, 1 or more, of --engine ray")
    target = out
    if shard is not None:
        if (out / MANIFEST).is_file():
            raise RefusedRequest(f"--out {out} is complete: there is no slice {shard} left to embed")
        number, count = parse_slice(shard)
        first, last = bounds(number, count, items=len(items), shard_size=shard_size)
        items, target = items[first:last], folder_of(out, number, count)
    refuse_missing_media(items, max_failures)  # before the embedder is loaded
    options: dict[str, Any] = {
        "role": SIDE_ROLES[side] if role == "auto" else role,
        "out": target,
        "batch_size": batch_size,
        "shard_size": shard_size,
        "dtype": dtype,
        "max_failures": max_failures,
        "side": side,
    }
    if engine == "ray":
        from vidvec_msg.retrieval.embedding.ray_engine import embed_on_cluster

        embed_on_cluster(items, embedder, actors=actors, **options)
    else:
        embed_items(items, load_embedder(embedder), spec=embedder, **options)
    return out


def embed_items(
    items: Sequence[Item],
    embedder: Embedder,
    *,
    role: Role,
    out: Path,
    batch_size: int = 0,
    shard_size: int = 50_000,
    dtype: StoredType = "float32",
    max_failures: float = 0,
    progress: bool = True,
    side: Side | None = None,
    spec: str | None = None,
    save_every: float = 30.0,
) -> VectorsFolder:
    """Embeds items into a vectors folder.

    Rows have the order of ``items``, without those that failed. Killed at any moment, the same call goes
    on and ends in the same bytes as an undisturbed one (with the same ``batch_size``, which is not part
    of the folder's key: a run that ran out of memory may go on with smaller batches). A complete folder of
    the same request is returned as it is.

    Args:
        items: what to embed; ids are unique.
        embedder: makes the vectors.
        role: "query" or "document".
        out: the vectors folder to make.
        batch_size: items per call of the embedder, which forms its own batches of them; 0 see
            :func:`items_per_call`. While it works on one call, it may read ahead for the next
            (:class:`~vidvec_msg.embedders.contract.Prepares`).
        shard_size: items per ``.npy`` file, which has as many rows, less the failed ones.
        dtype: how vectors are stored.
        max_failures: items that may fail: a count, or a share of all items if below 1.
        progress: shows a bar, if stderr is a terminal.
        side: recorded in the manifest.
        spec: what ``load_embedder`` made the embedder from; recorded (a path as an absolute one), so that
            search can load it again from any folder.
        save_every: seconds of work that a kill may cost; the call that is running comes on top.

    Returns:
        the complete folder.

    Raises:
        RefusedRequest: something is wrong with the request, more media is missing than may fail, or
            ``out`` holds something else; nothing was written.
        TooManyFailures: more items failed than allowed; the folder was written, unless no item has a vector.
        RuntimeError: the embedder failed in a way that is not about single items; a later call goes on.
    """
    refuse_bad_request(
        items, batch_size=batch_size, shard_size=shard_size, dtype=dtype, max_failures=max_failures, role=role
    )
    missing = refuse_missing_media(items, max_failures)
    size = batch_size or items_per_call(items)
    told_before = str(embedder.tally) if isinstance(embedder, Tallies) else ""
    read_before = clips_read()
    folder = write_vectors(
        items,
        embedder.card,
        lambda writer: _encoded_here(writer, items, embedder, role, missing, size, save_every),
        missing=missing,
        role=role,
        out=out,
        shard_size=shard_size,
        dtype=dtype,
        max_failures=max_failures,
        shown=progress,
        side=side,
        spec=spec,
    )
    if isinstance(embedder, Tallies) and (told := str(embedder.tally)) != told_before:
        log.info("%s was given so far: %s", embedder.card.name, told)
    if by := readers_since(read_before):
        log.info("%s", by)
    return folder


def write_vectors(
    items: Sequence[Item],
    card: EmbedderCard,
    fill: Callable[[VectorsWriter], Iterator[None]],
    *,
    missing: Mapping[str, Failure],
    role: Role,
    out: Path,
    shard_size: int,
    dtype: StoredType,
    max_failures: float,
    shown: bool = True,
    side: Side | None = None,
    spec: str | None = None,
) -> VectorsFolder:
    """The part of :func:`embed_items` that does not depend on who encodes.

    Args:
        items: what to embed, checked.
        card: of the embedder.
        fill: adds to the writer whatever is missing of the items, and yields now and then.
        missing: the items whose media file is missing, by id.
        role, out, shard_size, dtype, max_failures, side, spec: see there.
        shown: tells how far it is.

    Raises:
        RefusedRequest: ``out`` holds something else, or the disk has too little room.
        TooManyFailures: more items failed than allowed.
    """
    allowed = allowed_failures(max_failures, len(items))
    slices = sorted((out / SLICES).glob(f"*/{DIGESTS}"))
    with digests_kept_in(out / DIGESTS, known=slices):
        request: dict[str, Any] = {
            "fingerprint": card.fingerprint,
            "role": role,
            "side": side,
            "count": len(items),
            "items": digest_of_items(items, missing),
            "dim": card.dim,
            "dtype": dtype,
            "shard_size": shard_size,
        }
        if is_complete(out, request):
            log.info("vectors folder %s is complete already: nothing to embed", out)
        else:
            refuse_without_room(out, request)
            adopt(out, items, request, lambda part: digest_of_items(part, missing))
            with writing(out, request) as writer:
                if writer.processed:
                    log.info("going on after %d of %d items", writer.processed, len(items))
                _filled(writer, fill, allowed, shown)
                manifest = {
                    "card": card.to_dict(),
                    "embedder": None if spec is None else spec_from_anywhere(spec),
                    "role": role,
                    "side": side,
                    "versions": software_versions(),
                }
                writer.finish(items, manifest)
    discard(out)
    return _opened(out, allowed)


def _filled(
    writer: VectorsWriter, fill: Callable[[VectorsWriter], Iterator[None]], allowed: int, shown: bool
) -> None:
    """Lets an engine do its work, and watches it."""
    count = writer.request["count"]
    told = progress_of(f"embed {writer.out.name}", count, done=writer.processed, log=log)
    with told if shown else nullcontext(lambda done, failed: None) as tell:
        for _ in fill(writer):
            tell(writer.processed, writer.failed)
            _give_up_if_hopeless(writer, count, allowed)
    _give_up_if_hopeless(writer, count, allowed)  # an interrupted run may have ended there


def _encoded_here(
    writer: VectorsWriter,
    items: Sequence[Item],
    embedder: Embedder,
    role: Role,
    missing: Mapping[str, Failure],
    batch_size: int,
    save_every: float,
) -> Iterator[None]:
    """Batches from where the writer stands to the last item, none across a shard's end; if the embedder stops
    the job, or the user, what is done is saved."""
    saved = time.monotonic()
    while writer.done < len(items):
        size = min(batch_size, writer.shard_end - writer.done)
        try:
            if isinstance(embedder, Prepares):
                coming = tuple(items[writer.done : writer.done + 2 * batch_size])  # of this call and the next
                embedder.prepare([item for item in coming if item.id not in missing])
                batch = coming[:size]
            else:
                batch = tuple(items[writer.done : writer.done + size])
            encoded = encode_batch(batch, embedder, role=role, known=missing)
        except BaseException:
            writer.save()
            raise
        writer.add(*encoded)
        yield
        if time.monotonic() - saved >= save_every:
            writer.save()
            saved = time.monotonic()


def _give_up_if_hopeless(writer: VectorsWriter, count: int, allowed: int) -> None:
    """Ends a job without a single vector, which says that something is wrong with more than the items.

    Raises:
        TooManyFailures: nothing was kept, so that a later run tries again.
    """
    done = writer.processed
    if writer.failed == done and (done == count or done >= _HOPELESS > allowed):
        reasons = first_failures(writer.failures, done)
        writer.discard_work()
        which = "all" if done == count else "the first"
        raise TooManyFailures(f"{which} {done} items failed, nothing was written: {reasons}")


def _opened(out: Path, allowed: int) -> VectorsFolder:
    """The folder, with one closing line; raises TooManyFailures if it holds more than allowed."""
    folder = VectorsFolder.open(out)
    rows, failed = folder.count, int(folder.manifest["failed"])
    log.info("%d vectors of %d dimensions in %s, %d items failed", rows, folder.dim, out, failed)
    if failed > allowed:
        raise TooManyFailures(
            f"{failed} of {failed + rows} items failed and {allowed} may (max_failures); "
            f"the others are in {out}, the reasons in {out / 'failures.jsonl'}: "
            f"{first_failures(folder.read_failures(), failed)}. To try the failed items again, remove the "
            "folder."
        )
    return folder

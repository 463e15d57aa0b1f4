"""Items → a vectors folder, resumable at any moment; the verb ``embed``."""

from __future__ import annotations

import hashlib
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote, unquote

import numpy as np
from tqdm import tqdm

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import ROLES, Embedder, Prepares, Role, Tallies, Vectors
from vidvec_msg.embedders.load import SHORT_FORMS, load_embedder
from vidvec_msg.embedders.models import TINYWORLD
from vidvec_msg.errors import Failure, ItemError, JobFailed, Problems, RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Side, load_side, missing_media
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.formats.vectors import MANIFEST, VectorsFolder
from vidvec_msg.retrieval.slices import adopt, bounds, discard, folder_of, parse_slice
from vidvec_msg.retrieval.writing import VectorsWriter, is_complete, writing
from vidvec_msg.runs import digest_of, software_versions

log = logging.getLogger(__name__)

StoredType = Literal["float32", "float16"]
SIDE_ROLES: dict[Side, Role] = {"corpus": "document", "queries": "query"}
_TEXTS_PER_CALL, _MEDIA_PER_CALL = 1024, 32
_SHOWN = 3  # failures that a message spells out
_LISTED = 32  # ids of a batch that a message lists
_HOPELESS = 256  # items; if the first ones all failed, hours more would not help
_PATH_OPTIONS = ("adapter", "speech_model")  # of specs: options without which a model does not open


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

    Returns:
        the vectors folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: the folder was written, with more failed items than allowed.
    """
    items = load_side(collection, side)
    refuse_bad_request(
        items, batch_size=batch_size, shard_size=shard_size, dtype=dtype, max_failures=max_failures
    )
    target = out
    if shard is not None:
        if (out / MANIFEST).is_file():
            raise RefusedRequest(f"--out {out} is complete: there is no slice {shard} left to embed")
        number, count = parse_slice(shard)
        first, last = bounds(number, count, items=len(items), shard_size=shard_size)
        items, target = items[first:last], folder_of(out, number, count)
    refuse_missing_media(items, max_failures)  # before the embedder is loaded
    embed_items(
        items,
        load_embedder(embedder),
        role=SIDE_ROLES[side] if role == "auto" else role,
        out=target,
        batch_size=batch_size,
        shard_size=shard_size,
        dtype=dtype,
        max_failures=max_failures,
        side=side,
        spec=embedder,
    )
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
    allowed = allowed_failures(max_failures, len(items))
    batch_size = batch_size or items_per_call(items)
    request: dict[str, Any] = {
        "fingerprint": embedder.card.fingerprint,
        "role": role,
        "side": side,
        "count": len(items),
        "items": digest_of_items(items, missing),
        "dim": embedder.card.dim,
        "dtype": dtype,
        "shard_size": shard_size,
    }
    if is_complete(out, request):
        log.info("vectors folder %s is complete already: nothing to embed", out)
    else:
        told_before = str(embedder.tally) if isinstance(embedder, Tallies) else ""
        adopt(out, items, request, lambda part: digest_of_items(part, missing))
        with writing(out, request) as writer:
            for batch in _batches(writer, items, batch_size, save_every, progress):
                if isinstance(embedder, Prepares):
                    coming = items[writer.done : writer.done + 2 * batch_size]  # of this call and the next
                    embedder.prepare([item for item in coming if item.id not in missing])
                writer.add(*_encoded(writer, batch, embedder, role, missing))
                _give_up_if_hopeless(writer, items, allowed)
            _give_up_if_hopeless(writer, items, allowed)  # an interrupted run may have ended there
            manifest = {
                "card": embedder.card.to_dict(),
                "embedder": None if spec is None else spec_from_anywhere(spec),
                "role": role,
                "side": side,
                "versions": software_versions(),
            }
            writer.finish(items, manifest)
        if isinstance(embedder, Tallies) and (told := str(embedder.tally)) != told_before:
            log.info("%s was given so far: %s", embedder.card.name, told)
    discard(out)
    return _opened(out, allowed)


def _batches(
    writer: VectorsWriter, items: Sequence[Item], batch_size: int, save_every: float, progress: bool
) -> Iterator[Sequence[Item]]:
    """Batches from where the writer stands to the last item, none across a shard's end; shows the bar."""
    if writer.done:
        log.info("going on after %d of %d items", writer.done, len(items))
    saved = time.monotonic()
    with tqdm(
        total=len(items),
        initial=writer.done,
        desc=f"embed {writer.out.name}",
        unit="item",
        disable=not (progress and sys.stderr.isatty()),
    ) as bar:
        while writer.done < len(items):
            before = writer.done
            yield items[before : min(before + batch_size, writer.shard_end)]
            bar.set_postfix(failed=writer.failed, refresh=False)
            bar.update(writer.done - before)
            if time.monotonic() - saved >= save_every:
                writer.save()
                saved = time.monotonic()


def _encoded(
    writer: VectorsWriter,
    batch: Sequence[Item],
    embedder: Embedder,
    role: Role,
    missing: Mapping[str, Failure],
) -> tuple[Vectors, list[str], list[Failure]]:
    """What the writer takes of a batch; if the embedder stops the job, or the user, what is done is saved."""
    try:
        return encode_batch(batch, embedder, role=role, known=missing)
    except BaseException:
        writer.save()
        raise


def _give_up_if_hopeless(writer: VectorsWriter, items: Sequence[Item], allowed: int) -> None:
    """Ends a job without a single vector, which says that something is wrong with more than the items.

    Raises:
        TooManyFailures: nothing was kept, so that a later run tries again.
    """
    nothing = writer.failed == writer.done
    if nothing and (writer.done == len(items) or writer.done >= _HOPELESS > allowed):
        writer.discard_work()
        which = "all" if writer.done == len(items) else "the first"
        raise TooManyFailures(
            f"{which} {writer.done} items failed, nothing was written: {_summary(writer.failures)}"
        )


def encode_batch(
    batch: Sequence[Item], embedder: Embedder, *, role: Role, known: Mapping[str, Failure] | None = None
) -> tuple[Vectors, list[str], list[Failure]]:
    """Encodes what can be encoded of a batch.

    Args:
        batch: the items.
        embedder: makes the vectors; items that it names in an ItemError are left out and the rest is
            encoded again.
        role: "query" or "document".
        known: items that have failed already, by id.

    Returns:
        vectors (rows, dim), the ids of the rows, and the failures; both in the order of the batch.

    Raises:
        RuntimeError: the embedder failed otherwise, or returned vectors that break the contract; the
            message holds the ids of the batch.
    """
    failed = {item.id: known[item.id] for item in batch if known and item.id in known}
    while rest := [item for item in batch if item.id not in failed]:
        try:
            vectors = check_vectors(embedder.encode(rest, role=role), rest, embedder.card)  # (rest, dim)
        except ItemError as error:
            named = {failure.item: failure for failure in error.failures}
            strangers = named.keys() - {item.id for item in rest}
            if strangers or not named:
                raise RuntimeError(
                    f"embedder {embedder.card.name!r} raised an ItemError that names "
                    f"{sorted(strangers) or 'no item'}; it must name items of its batch: {_listed(rest)}"
                ) from error
            failed |= named
        except (RefusedRequest, JobFailed):
            raise  # says itself what to do: what to install, which endpoint does not answer
        except Exception as error:
            raise RuntimeError(
                f"embedder {embedder.card.name!r} failed on the batch of items {_listed(rest)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        else:
            break
    else:
        vectors = np.zeros((0, embedder.card.dim), dtype=np.float32)
    return vectors, [item.id for item in rest], [failed[item.id] for item in batch if item.id in failed]


def items_per_call(items: Sequence[Item]) -> int:
    """The batch size that 0 stands for.

    Texts by the thousand: an embedder that sorts them by length then pads little (tokens of every length from
    10 to 500, 1,024 at a time: 2% padding; 32 at a time: 35%). Clips a few at a time, whose frames are large.
    """
    return _MEDIA_PER_CALL if any(item.modality != "text" for item in items) else _TEXTS_PER_CALL


def refuse_bad_request(
    items: Sequence[Item],
    *,
    batch_size: int,
    shard_size: int,
    dtype: str,
    max_failures: float,
    role: str = "document",
) -> None:
    """Refuses what cannot be embedded, all problems in one message.

    Raises:
        RefusedRequest: no items, ids that are not unique, or an option out of its range.
    """
    problems = Problems("cannot embed")
    if not items:
        problems.add("there are no items; the collection's file is empty")
    for name, times in Counter(item.id for item in items).items():
        if times > 1:
            problems.add(f"id {name!r} stands {times} times; ids must be unique")
    if batch_size < 0:
        problems.add(f"batch_size is {batch_size}; it must be at least 1 (items per call), or 0 to choose it")
    if shard_size < 1:
        problems.add(f"shard_size is {shard_size}; it must be at least 1 (items per file)")
    if dtype not in get_args(StoredType):
        problems.add(f"dtype is {dtype!r}; it must be one of {', '.join(get_args(StoredType))}")
    if role not in ROLES:
        problems.add(f"role is {role!r}; it must be one of {', '.join(ROLES)}")
    if not (0 <= max_failures < 1 or (max_failures >= 1 and float(max_failures).is_integer())):
        problems.add(
            f"max_failures is {max_failures}; it must be a count (0, 1, 2, …) or a share below 1 (0.01)"
        )
    problems.refuse_if_any()


def refuse_missing_media(items: Sequence[Item], max_failures: float) -> dict[str, Failure]:
    """The items whose media file is missing, by id, if they are few enough.

    Raises:
        RefusedRequest: more are missing than may fail; the message lists them.
    """
    missing = missing_media(items)  # a list: an id may stand on both sides of a collection
    allowed = allowed_failures(max_failures, len(items))
    if len(missing) > allowed:
        problems = Problems(
            f"{len(missing)} of {len(items)} items lack their media and {allowed} may fail (max_failures)"
        )
        for failure in missing:
            problems.add(f"{failure.item}: {failure.reason}")
        problems.refuse_if_any()
    return {failure.item: failure for failure in missing}


def spec_from_anywhere(spec: str) -> str:
    """An embedder spec that also holds in another working folder: paths that exist become absolute, those
    inside another form (``cascade:ocr:st:FOLDER``, ``clip:open_clip:MODEL/FILE``) and in options too."""
    name, question, options = spec.partition("?")
    pairs = [pair.partition("=") for pair in options.split("&")]
    absolute = [
        f"{key}{equals}{quote(_absolute(unquote(value))) if key in _PATH_OPTIONS else value}"
        for key, equals, value in pairs
    ]
    return f"{_place_from_anywhere(name)}{question}{'&'.join(absolute)}"


def _place_from_anywhere(name: str) -> str:
    """A spec without its options, its path made absolute."""
    form, colon, rest = name.partition(":")
    if not name or name == TINYWORLD or form == "openai":  # names, also where a folder is called the same
        return name
    if Path(name).exists():
        return _absolute(name)
    if form == "cascade":
        condition, second, inner = rest.partition(":")
        return f"{form}{colon}{condition}{second}{_place_from_anywhere(inner)}"
    if form == "open_clip" and not Path(rest).exists():
        architecture, slash, weights = rest.partition("/")
        return f"{form}{colon}{architecture}{slash}{_absolute(weights)}"
    if form in SHORT_FORMS or form == "open_clip":
        return f"{form}{colon}{_place_from_anywhere(rest)}"
    return name


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if path and Path(path).exists() else path


def allowed_failures(max_failures: float, items: int) -> int:
    """How many of ``items`` may fail: the count itself, or the share below 1, rounded down."""
    if max_failures >= 1:
        return int(max_failures)
    return math.floor(max_failures * items + 1e-9)  # 0.29 * 100 is 28.999999999999996


def digest_of_items(items: Sequence[Item], missing: Mapping[str, Failure]) -> str:
    """SHA-256 over ids, groups and content of all items, in order; missing media counts as such."""
    whole = hashlib.sha256()
    for item in items:
        content = "missing" if item.id in missing else item_digest(item)
        whole.update(digest_of([item.id, dict(item.groups), content]).encode())
    return whole.hexdigest()


def _opened(out: Path, allowed: int) -> VectorsFolder:
    """The folder, with one closing line; raises TooManyFailures if it holds more than allowed."""
    folder = VectorsFolder.open(out)
    failures = folder.failures
    rows, dim = len(folder.ids), folder.dim
    log.info("%d vectors of %d dimensions in %s, %d items failed", rows, dim, out, len(failures))
    if len(failures) > allowed:
        raise TooManyFailures(
            f"{len(failures)} of {len(failures) + rows} items failed and {allowed} may (max_failures); "
            f"the others are in {out}, the reasons in {out / 'failures.jsonl'}: {_summary(failures)}. "
            "To try the failed items again, remove the folder."
        )
    return folder


def _summary(failures: Sequence[Failure]) -> str:
    rest = len(failures) - _SHOWN
    shown = "; ".join(f"{failure.item}: {failure.reason}" for failure in failures[:_SHOWN])
    return f"{shown}; … and {rest} more" if rest > 0 else shown


def _listed(items: Sequence[Item]) -> str:
    rest = len(items) - _LISTED
    shown = ", ".join(item.id for item in items[:_LISTED])
    return f"{shown}, … and {rest} more" if rest > 0 else shown

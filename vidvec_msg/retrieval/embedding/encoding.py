"""A batch of items → what of it has vectors, and why the rest has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.errors import Failure, ItemError, JobFailed, RefusedRequest
from vidvec_msg.formats.item_file import modalities_of
from vidvec_msg.formats.items import Item

_TEXTS_PER_CALL, _MEDIA_PER_CALL = 1024, 32
_LISTED = 32  # ids of a batch that a message lists


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
    return _TEXTS_PER_CALL if modalities_of(items) <= {"text"} else _MEDIA_PER_CALL


def _listed(items: Sequence[Item]) -> str:
    rest = len(items) - _LISTED
    shown = ", ".join(item.id for item in items[:_LISTED])
    return f"{shown}, … and {rest} more" if rest > 0 else shown

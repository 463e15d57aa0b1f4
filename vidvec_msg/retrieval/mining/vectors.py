"""Vectors of distinct texts, kept beside the result until it is written, so that a killed run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.errors import Failure
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.cosine import unit_vectors
from vidvec_msg.retrieval.embed import digest_of_items, embed_items
from vidvec_msg.runs import digest_of


@dataclass(frozen=True, slots=True)
class TextVectors:
    """Vectors of texts.

    Args:
        rows: text → its row; texts that cannot be embedded are not there.
        vectors: ``(texts, dim)`` float32, of norm 1.
        failures: texts that cannot be embedded (as ``item``), and why.
    """

    rows: dict[str, int]
    vectors: Vectors
    failures: tuple[Failure, ...]


@contextmanager
def kept_until_written(out: Path, folder: Path | None) -> Iterator[Path]:
    """A folder for vectors: the one given, which stays; or one beside ``out``, which stays if an error or
    Ctrl-C leaves the block, and goes otherwise."""
    beside = out.parent / f".{out.name}.vectors"
    yield beside if folder is None else folder
    if folder is None:
        shutil.rmtree(beside, ignore_errors=True)


def embed_texts(texts: Sequence[str], embedder: Embedder, *, role: Role, folder: Path) -> TextVectors:
    """Vectors of distinct texts; those of an interrupted run are taken up.

    Args:
        texts: distinct, in any order.
        embedder: makes the vectors.
        role: how the texts are worded.
        folder: where they are kept, in a folder of the request's own digest.

    Raises:
        TooManyFailures: not one text has a vector.
        RuntimeError: the embedder failed in a way that is not about single texts; a later call goes on.
    """
    items = [Item(str(number), text=text) for number, text in enumerate(texts)]
    name = digest_of([embedder.card.fingerprint, role, digest_of_items(items, {})])[:16]
    # all may fail here: the verb has its own account of what failed, after the result is written
    made = embed_items(items, embedder, role=role, out=folder / name, max_failures=len(items))
    kept = [texts[int(number)] for number in made.ids]
    return TextVectors(
        rows={text: row for row, text in enumerate(kept)},
        vectors=unit_vectors(made.matrix(), made.dim, name=lambda row: repr(kept[row])),
        failures=tuple(Failure(texts[int(one.item)], one.reason) for one in made.failures),
    )

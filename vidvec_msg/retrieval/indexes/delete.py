"""Items leave an index; the verb ``index-delete``. Their vectors go when the index is compacted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.retrieval.indexes.changes import changing, commit, open_items, tell_state, write_deleted
from vidvec_msg.retrieval.indexes.folder import engine_of

log = logging.getLogger(__name__)

Missing = Literal["refuse", "skip"]


def index_delete(
    index: Path,
    *,
    ids: list[str] | None = None,
    ids_file: Path | None = None,
    missing: Missing = "refuse",
    wait: float = 0,
) -> Path:
    """Deletes items of an index by their ids: no search finds them from now on.

    Their vectors and metadata stay in the folder until `index-compact`. A killed run leaves the index as it
    was.

    Args:
        index: an index folder.
        ids: of the items.
        ids_file: a file with an id a line, instead.
        missing: an id that is not in the index: "refuse" deletes nothing and names it, "skip" passes over it.
        wait: seconds to wait for another process that changes the index; 0 refuses at once.

    Returns:
        the index folder.

    Raises:
        RefusedRequest: an id that the index does not have, or no ids; nothing was deleted.
    """
    return delete_items(index, _asked(ids, ids_file), missing=missing, wait=wait)


def delete_items(index: Path, ids: Sequence[str], *, missing: Missing = "refuse", wait: float = 0) -> Path:
    """The verb, from Python.

    Raises:
        RefusedRequest: as the verb.
    """
    if engine_of(index) == "milvus":
        from vidvec_msg.retrieval.milvus.changes import delete_from_milvus

        return delete_from_milvus(index, ids, missing=missing, wait=wait)
    asked = list(dict.fromkeys(ids))
    with changing(index, wait=wait) as manifest:
        items, live = open_items(index, manifest)
        live = np.ones(items.num_rows, dtype=np.bool_) if live is None else live
        going = items.among(asked) & live
        if int(going.sum()) < len(asked):
            known = set(items.names(np.flatnonzero(going)))
            problems = Problems(f"index {index}: to delete")
            for name in asked:
                if name not in known:
                    problems.add(f"it has no item {name!r}")
            if missing == "refuse":
                problems.refuse_if_any()
            log.info("%d of %d ids are not in the index", len(problems.found), len(asked))
        if not going.any():
            return index
        changed = write_deleted(index, manifest, live & ~going)
        commit(index, changed)
        log.info("deleted %d items", int(going.sum()))
        tell_state(index, changed)
    return index


def _asked(ids: list[str] | None, ids_file: Path | None) -> list[str]:
    if (ids is None) == (ids_file is None):
        raise RefusedRequest("give what to delete: either --ids A B …, or --ids_file F with an id a line.")
    if ids_file is None:
        found = ids or []
    else:
        try:
            text = ids_file.read_text(encoding="utf-8-sig")  # line ends become \n
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedRequest(f"--ids_file {ids_file} cannot be read: {error}") from error
        # not splitlines: an id may hold U+2028, or another letter that it takes for the end of a line
        found = [line for line in text.split("\n") if line]
    if not found:
        raise RefusedRequest(f"{'--ids' if ids_file is None else f'--ids_file {ids_file}'} names no item.")
    return found

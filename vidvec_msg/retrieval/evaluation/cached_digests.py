"""Digests of clips in the folder of the vectors' cache, for verbs that look at clips and embed none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.kept_digests import digests_kept_in
from vidvec_msg.retrieval.evaluation import vector_cache


@contextmanager
def digests_of_cache(cache: str) -> Iterator[None]:
    """Within the block, digests of clips come from a cache and go there.

    Args:
        cache: "user" for the user's cache folder, "none", or a folder.

    Raises:
        RefusedRequest: the cache is a file.
    """
    if cache == vector_cache.NONE:
        yield
        return
    folder = vector_cache.user_folder() if cache == vector_cache.USER else Path(cache)
    if os.path.isfile(folder):  # noqa: PTH113 - Path.is_file raises where it cannot look
        raise RefusedRequest(f"cache {folder} is a file; give a folder, or 'none' for no cache")
    with suppress(OSError):  # that digests are not kept is told, and does not matter
        folder.mkdir(parents=True, exist_ok=True)
    with digests_kept_in(folder / "digests"):
        yield

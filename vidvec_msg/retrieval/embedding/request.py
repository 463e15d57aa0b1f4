"""What is asked of an embedding job: refused before the slow part, and told by a digest from another one."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from vidvec_msg.embedders.contract import ROLES
from vidvec_msg.errors import Failure, Problems
from vidvec_msg.formats.collections import missing_media
from vidvec_msg.formats.item_file import ItemFile
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.runs import digest_of

StoredType = Literal["float32", "float16"]


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
    counted = Counter() if isinstance(items, ItemFile) else Counter(item.id for item in items)
    for name, times in counted.items():  # of a file it is known since it was opened
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
    note_max_failures(max_failures, problems)
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


def note_max_failures(max_failures: float, problems: Problems) -> None:
    """Notes a number that is neither a count nor a share."""
    if not (0 <= max_failures < 1 or (max_failures >= 1 and float(max_failures).is_integer())):
        problems.add(
            f"max_failures is {max_failures}; it must be a count (0, 1, 2, …) or a share below 1 (0.01)"
        )


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

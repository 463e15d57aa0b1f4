"""The queries on which something is chosen that must not have seen the test."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.retrieval.evaluation.directions import Pool
from vidvec_msg.retrieval.evaluation.held_apart import refuse_shared_queries
from vidvec_msg.retrieval.evaluation.sides import Sides


def validation_sides(
    named: str,
    collection: Path,
    test: Sides,
    pool: Pool,
    *,
    option: str = "dual_softmax",
    what: str = "the temperatures of dual softmax",
) -> Sides:
    """Where something is chosen that must not have seen the test.

    Args:
        named: a split of the collection, or FOLDER:SPLIT of another.
        collection: that of the test.
        test: what must not be among them.
        pool: as of the test.
        option: that names it, for messages.
        what: is chosen, for messages.

    Raises:
        RefusedRequest: there is no such split, or it shares queries with the test, or holds copies of them.
    """
    folder, colon, split = named.rpartition(":")
    place = Path(folder) if colon else collection
    if not split:
        raise RefusedRequest(
            f"{option} names the queries for {what}: a split of the collection, or FOLDER:SPLIT; given was "
            f"{named!r}"
        )
    sides = Sides.of(Collection.load(place, split=split), split, pool)
    refuse_shared_queries(
        test,
        sides,
        what=what,
        same_folder=place.resolve() == collection.resolve(),
    )
    return sides

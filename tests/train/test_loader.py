"""The loader counts what it handed out, and goes on from there."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, Tokens
from vidvec_msg.train.loader import PairLoader
from vidvec_msg.train.plan import BatchPlan

PAIRS = [Pair(f"anchor {i}", f"positive {i}", id=str(i)) for i in range(12)]
Seen = list[tuple[int, list[str], int]]


def letters(text: str) -> Tokens:
    return Tokens([ord(letter) for letter in text])


def loader(ranks: int = 1, rank: int = 0, workers: int = 0, validating: bool = False) -> PairLoader:
    plan = BatchPlan([None] * 12, 4, ranks=ranks)
    return PairLoader(
        PAIRS, plan, Collate(letters), rank=rank, workers=workers, always_first_epoch=validating
    )


def seen(source: PairLoader, count: int) -> Seen:
    """The next batches, over as many epochs as it takes."""
    found: Seen = []
    while len(found) < count:
        for batch in islice(source, count - len(found)):
            found.append((batch.number, batch.names, batch.noise_seed))
    return found


@pytest.mark.parametrize("done", [1, 2, 3, 4, 5])
def test_it_goes_on_from_any_position(done: int) -> None:
    undisturbed = seen(loader(), 7)
    first = loader()
    before = seen(first, done)
    second = loader()
    second.load_state_dict(first.state_dict())
    assert before + seen(second, 7 - done) == undisturbed
    assert [number for number, *_ in undisturbed] == list(range(7))


def test_epochs_differ() -> None:
    batches = [names for _, names, _ in seen(loader(), 6)]
    assert batches[:3] != batches[3:]


def test_workers_read_ahead_but_only_what_was_handed_out_counts() -> None:
    source = loader(workers=1)
    assert [names for _, names, _ in seen(source, 1)] == [names for _, names, _ in seen(loader(), 1)]
    assert source.state_dict()["given"] == 1


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"pairs": PAIRS[::-1]}, r"pairs 12 \(\w{8}\) in it and 12 \(\w{8}\) here"),
        ({"batch_size": 6}, "pairs of a batch over all ranks 4 in it and 6 here"),
        ({"seed": 1}, "data.seed 0 in it and 1 here"),
        ({"per_group": 1}, "data.per_group None in it and 1 here"),
        ({"drop_last": False}, "data.drop_last True in it and False here"),
        ({"ranks": 2}, "ranks 1 in it and 2 here"),
    ],
)
def test_a_position_in_another_order_is_refused(other: dict[str, Any], told: str) -> None:
    def made(pairs: list[Pair] = PAIRS, **options: Any) -> PairLoader:
        plan = BatchPlan(list(range(12)), **{"batch_size": 4, **options})
        return PairLoader(pairs, plan, Collate(letters))

    position = {**made().state_dict(), "given": 2}
    with pytest.raises(RefusedRequest, match=rf"in another order .* \({told}\): .* or begin another"):
        made(**other).load_state_dict(position)
    resumed = made(**other)
    resumed.load_state_dict({"given": 2})  # of before the order was kept
    assert resumed.given == 2


def test_a_position_may_be_taken_up_with_other_workers() -> None:
    resumed = loader(workers=2)
    resumed.load_state_dict({**loader().state_dict(), "given": 2})
    assert resumed.given == 2


def test_ranks_share_a_batch_and_drop_differently() -> None:
    shares = [seen(loader(ranks=2, rank=rank), 3) for rank in (0, 1)]
    joined = [a + b for (_, a, _), (_, b, _) in zip(*shares, strict=True)]
    assert joined == [names for _, names, _ in seen(loader(), 3)]
    assert {seed for *_, seed in shares[0]}.isdisjoint({seed for *_, seed in shares[1]})


def test_validation_gives_the_same_batches_on_every_pass() -> None:
    source = loader(validating=True)
    assert [b.names for b in source] == [b.names for b in source]

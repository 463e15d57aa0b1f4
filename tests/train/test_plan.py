"""Batches of an epoch: counts never change, groups never meet, every rank has its share."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train.plan import BatchPlan


def flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


def test_an_epoch_sees_every_pair_once() -> None:
    plan = BatchPlan([None] * 12, 4)
    assert len(plan) == 3
    assert sorted(flat(plan.epoch(0))) == list(range(12))


def test_the_order_is_the_seeds_and_the_epochs() -> None:
    plan = BatchPlan([None] * 12, 4, seed=1)
    assert plan.epoch(0) == BatchPlan([None] * 12, 4, seed=1).epoch(0)
    assert plan.epoch(0) != plan.epoch(1)
    assert plan.epoch(0) != BatchPlan([None] * 12, 4, seed=2).epoch(0)


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [4, 4]), (False, [4, 4, 2])])
def test_the_last_batch(drop_last: bool, sizes: list[int]) -> None:
    plan = BatchPlan([None] * 10, 4, drop_last=drop_last)
    assert [len(batch) for batch in plan.epoch(0)] == sizes
    assert len(plan) == len(sizes)
    assert plan.used == sum(sizes)


@pytest.mark.parametrize(("total", "ranks", "batches"), [(9, 1, 2), (10, 1, 3), (10, 3, 2), (11, 3, 3)])
def test_a_last_batch_without_a_pair_for_each_rank_or_without_a_negative_is_dropped(
    total: int, ranks: int, batches: int
) -> None:
    assert len(BatchPlan([None] * total, 4, ranks=ranks, drop_last=False)) == batches


def test_dropped_pairs_change_from_epoch_to_epoch() -> None:
    plan = BatchPlan([None] * 10, 4)
    assert set(flat(plan.epoch(0))) != set(flat(plan.epoch(1)))


@pytest.mark.parametrize("size", [4, 5, 7])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_slices_of_ranks_join_to_the_batch_and_none_is_empty(size: int, ranks: int) -> None:
    plan = BatchPlan([None] * size, size, ranks=ranks, drop_last=False)
    batch = plan.epoch(0)[0]
    slices = [plan.slice_of(batch, rank) for rank in range(ranks)]
    assert flat(slices) == batch
    assert all(slices)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("sizes", "batch_size"),
    [([3] * 32, 32), ([1, 1, 1, 9], 2), ([5, 4, 3, 2, 1], 3), ([2] * 7, 5), ([40, 1, 1, 1], 3)],
)
def test_no_two_pairs_of_a_group_meet_in_a_batch(sizes: list[int], batch_size: int, seed: int) -> None:
    groups = [f"g{group}" for group, size in enumerate(sizes) for _ in range(size)]
    plan = BatchPlan(groups, batch_size, seed=seed, per_group=1)
    for epoch in range(3):
        batches = plan.epoch(epoch)
        assert len(batches) == len(plan) > 0  # fixed, whatever the draw
        assert all(len(batch) == batch_size for batch in batches)
        assert len(set(flat(batches))) == len(flat(batches))
        for batch in batches:
            assert len({groups[row] for row in batch}) == batch_size


def test_one_pair_per_group_wastes_nothing_when_groups_are_equal() -> None:
    groups = [f"g{row % 32}" for row in range(32 * 6)]
    plan = BatchPlan(groups, 32, per_group=1)
    assert len(plan) == 6
    assert sorted(flat(plan.epoch(0))) == list(range(192))


def test_pairs_without_a_group_are_groups_of_their_own() -> None:
    assert len(BatchPlan([None] * 8, 4, per_group=1)) == 2


def test_which_pairs_meet_changes_from_epoch_to_epoch() -> None:
    plan = BatchPlan([f"g{row % 4}" for row in range(40)], 4, per_group=1)
    assert {frozenset(b) for b in plan.epoch(0)} != {frozenset(b) for b in plan.epoch(1)}


def test_too_few_pairs_or_groups_are_refused_with_the_way_out() -> None:
    with pytest.raises(RefusedRequest, match=r"3 pairs do not fill one batch of 4.*Lower data.batch_size"):
        BatchPlan([None] * 3, 4)
    with pytest.raises(RefusedRequest, match=r"needs 3 groups; the pairs have 2.*per_group null"):
        BatchPlan(["a", "a", "b", "b"], 3, per_group=1)


# ---- groups that meet on purpose


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    hands=st.integers(1, 4),
    per_group=st.integers(1, 4),
    ranks=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_every_batch_holds_exactly_so_many_pairs_of_each_of_its_groups(
    sizes: list[int], hands: int, per_group: int, ranks: int, seed: int
) -> None:
    groups = [f"g{group}" for group, size in enumerate(sizes) for _ in range(size)]
    enough = sum(size >= per_group for size in sizes)
    if hands > enough:
        with pytest.raises(RefusedRequest, match=rf"needs {hands} groups.*the pairs have {enough}"):
            BatchPlan(groups, hands * per_group, per_group=per_group)
        return
    plan = BatchPlan(groups, hands * per_group, ranks=ranks, seed=seed, per_group=per_group)
    seen = set()
    for epoch in range(3):
        batches = plan.epoch(epoch)
        assert len(batches) == len(plan) > 0  # the same in every epoch
        assert plan.epoch(epoch) == batches  # whoever asks, and after a resumption
        assert len(set(flat(batches))) == len(flat(batches)) == plan.used
        for batch in batches:
            assert set(Counter(groups[row] for row in batch).values()) == {per_group}
            assert len(batch) == plan.batch_size
            assert flat([plan.slice_of(batch, rank) for rank in range(ranks)]) == batch
        seen |= set(flat(batches))
    never = {row for row, group in enumerate(groups) if groups.count(group) < per_group}
    assert seen.isdisjoint(never)
    assert plan.never_used == len(never)


def test_which_pairs_of_a_group_meet_changes_from_epoch_to_epoch() -> None:
    groups = [f"g{row // 8}" for row in range(16)]
    plan = BatchPlan(groups, 4, per_group=2)
    couples = [
        {frozenset(row for row in batch if groups[row] == "g0") for batch in plan.epoch(epoch)}
        for epoch in range(2)
    ]
    assert couples[0] != couples[1]


def test_a_group_that_does_not_fill_its_share_is_told_in_the_refusal() -> None:
    with pytest.raises(
        RefusedRequest, match=r"2 per group, needs 2 groups of at least 2 pairs; the pairs have 1\."
    ):
        BatchPlan(["a", "a", "b", None], 4, per_group=2)
    with pytest.raises(RefusedRequest, match="5 pairs over all ranks does not divide into groups of 2"):
        BatchPlan(["a", "a", "b", "b"], 5, per_group=2)

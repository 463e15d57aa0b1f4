"""The account is counted by hand; who has no negative agrees with the score matrix of the losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses import EncodedPairs, PairKeys
from vidvec_msg.train.losses.cells import directions
from vidvec_msg.train.pair_account import account, oddities, what_all_share, without_negative

PAIRS = st.lists(
    st.builds(
        Pair,
        anchor=st.sampled_from("abc"),
        positive=st.sampled_from("pqra"),
        negatives=st.lists(st.sampled_from("pqan"), max_size=2).map(tuple),
        group=st.sampled_from([None, "g", "h"]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(pairs=PAIRS)
def test_who_has_no_negative_is_what_the_cells_of_the_loss_say(pairs: Sequence[Pair]) -> None:
    keys = PairKeys.of(pairs)
    blank = torch.zeros(len(pairs), 1)
    own = EncodedPairs(blank, blank, torch.zeros(*keys.negatives.shape, 1), keys)
    forward = directions(own, own, 0, shared="positives", symmetric=False)[0]
    assert without_negative(pairs) == int((~forward.negative.any(1)).sum())


def test_the_account_of_a_few_pairs() -> None:
    pairs = [
        Pair("a", "p", group="g", negatives=("x", "y")),
        Pair("b", "p", group="g"),
        Pair("c", "q", negatives=("x",)),
    ]
    assert account(pairs) == (
        "1 group and 1 pair without one, 5 distinct texts in 6 places (17% repeated), "
        "hard negatives per pair 0 to 2, median 1"
    )
    assert account(pairs, negatives=0).endswith("2 pairs have more than the 0 asked for: none of them trains")
    assert (
        account([Pair("a", "p")])
        == "no groups, 2 distinct texts in 2 places (0% repeated), no hard negatives"
    )


def test_pairs_in_order_have_no_oddities() -> None:
    assert oddities([Pair("a", "p", negatives=("n",)), Pair("b", "p")]) == []
    twice = oddities([Pair("a", "p"), Pair("a", "p", id="x"), Pair("a", "p")])
    assert twice == [
        "2 pairs (the first: x) have anchor and positive of an earlier pair again; each copy trains"
    ]


def test_what_all_share_is_named_and_cut() -> None:
    assert what_all_share([Pair("a", "p"), Pair("b", "q")]) == ""
    assert what_all_share([Pair("a", "p"), Pair("a", "q")]) == "all 2 pairs share their anchor, 'a'"
    told = what_all_share([Pair("a", "p" * 90), Pair("b", "p" * 90)])
    assert told == f"all 2 pairs share their positive, '{'p' * 59}…'"

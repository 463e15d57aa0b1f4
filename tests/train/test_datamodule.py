"""Options of the data: each has its effect, wrong ones come in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.datamodule import PairsData, split


def data(pairs_file: Path, **options: object) -> PairsData:
    made = PairsData(str(pairs_file), **options)  # type: ignore[arg-type]
    made.read()
    return made


def test_batch_size_is_per_rank(pairs_file: Path) -> None:
    made = data(pairs_file, batch_size=4)
    assert len(made.plan(ranks=1)) == 6
    assert len(made.plan(ranks=2)) == 3
    assert len(made.plan(ranks=2).epoch(0)[0]) == 8


def test_the_plan_takes_the_options(pairs_file: Path) -> None:
    plan = data(pairs_file, batch_size=5, seed=3, one_per_group=True, drop_last=False).plan(ranks=1)
    assert (plan.batch_size, plan.seed, plan.one_per_group, plan.drop_last) == (5, 3, True, False)
    assert plan.groups[:3] == ["story 0", "story 0", "story 1"]


def test_validation_takes_whole_groups(pairs_file: Path) -> None:
    made = data(pairs_file, batch_size=4, validation_fraction=0.25)
    assert len(made.validation) == 6
    assert len(made.training) == 18
    assert {pair.group for pair in made.training}.isdisjoint({pair.group for pair in made.validation})
    again = data(pairs_file, batch_size=4, validation_fraction=0.25)
    assert again.validation == made.validation
    assert data(pairs_file, batch_size=4, validation_fraction=0.25, seed=1).validation != made.validation


def test_validation_may_have_its_own_source(pairs_file: Path) -> None:
    made = data(pairs_file, batch_size=4, validation=str(pairs_file))
    assert made.validation == made.training


def test_a_single_validation_pair_is_refused(pairs_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(pairs_file.read_text().splitlines()[0])
    with pytest.raises(RefusedRequest, match="1 pair validates; at least 2"):
        data(pairs_file, batch_size=4, validation=str(path))


def test_max_pairs_draws_by_the_seed(pairs_file: Path) -> None:
    made = data(pairs_file, batch_size=4, max_pairs=8)
    assert len(made.training) == 8
    assert made.training != data(pairs_file, batch_size=4, max_pairs=8, seed=1).training


def test_columns_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"caption": "a", "positive": "p"}\n{"caption": "b", "positive": "q"}\n')
    made = data(path, batch_size=2, columns={"anchor": "caption"})
    assert [pair.anchor for pair in made.training] == ["a", "b"]


def test_pairs_of_one_storyline_stay_together_without_groups() -> None:
    pairs = [Pair("a", "p"), Pair("a", "q"), Pair("b", "r"), Pair("b", "s")]
    training, validation = split(pairs, 0.5, seed=0)
    assert {pair.anchor for pair in training}.isdisjoint({pair.anchor for pair in validation})


def test_a_split_that_leaves_a_side_empty_is_refused() -> None:
    with pytest.raises(RefusedRequest, match=r"validation_fraction 0\.01 of 2 groups is 0 groups"):
        split([Pair("a", "p"), Pair("b", "q")], 0.01, seed=0)


def test_wrong_options_come_in_one_message() -> None:
    with pytest.raises(RefusedRequest) as refusal:
        PairsData(
            "x.jsonl",
            batch_size=1,
            validation="y.jsonl",
            validation_fraction=0.5,
            passages=0,
            num_workers=-1,
            max_pairs=1,
        )
    for told in ("batch_size is 1", "choose one", "passages is 0", "num_workers is -1", "max_pairs is 1"):
        assert told in str(refusal.value)
    with pytest.raises(RefusedRequest, match=r"validation_fraction is 1\.5; it must be at least 0"):
        PairsData("x.jsonl", validation_fraction=1.5)


def test_too_few_pairs_for_a_batch_are_refused_when_read(pairs_file: Path) -> None:
    with pytest.raises(RefusedRequest, match="24 pairs do not fill one batch of 25"):
        data(pairs_file, batch_size=25)


def test_without_a_module_there_is_no_loader(pairs_file: Path) -> None:
    with pytest.raises(RefusedRequest, match="needs a module with `tokenise`"):
        data(pairs_file, batch_size=4).train_dataloader()

"""Options of the data: each has its effect, wrong ones come in one message."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.mining.verb import mine_negatives
from vidvec_msg.train.batches import NO_TEXT, Tokens
from vidvec_msg.train.datamodule import PairsData, split
from vidvec_msg.train.hard_negatives import HardNegatives
from vidvec_msg.train.loader import PairLoader
from vidvec_msg.train.losses import EncodedPairs, InfoNCE


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
    plan = data(pairs_file, batch_size=6, seed=3, per_group=2).plan(ranks=1)
    assert (plan.batch_size, plan.seed, plan.per_group, plan.drop_last) == (6, 3, 2, True)
    assert data(pairs_file, batch_size=5, drop_last=False).plan(ranks=1).drop_last is False
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


def test_a_split_keeps_together_what_groups_and_anchors_connect() -> None:
    pairs = [Pair("a", "p", group="g"), Pair("a", "q"), Pair("b", "r", group="g"), Pair("b", "s", group="h")]
    pairs += [Pair(f"other {i}", f"t{i}") for i in range(3)] + [Pair("c", "u", group="h"), Pair("d", "v")]
    one = {"a", "b", "c"}
    for seed in range(8):
        training, validation = split(pairs, 0.4, seed)
        trained, validated = ({pair.anchor for pair in side} for side in (training, validation))
        assert trained.isdisjoint(validated)
        assert one <= trained or one <= validated
        assert split(pairs, 0.4, seed) == (training, validation)
    with pytest.raises(RefusedRequest, match=r"0\.5: the 5 pairs are all connected by a group or an anchor"):
        split([*pairs[:4], pairs[7]], 0.5, seed=0)


def test_messages_that_train_and_validate_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    split([Pair(f"a{i}", f"p{i}", group=f"g{i}") for i in range(4)], 0.5, seed=0)
    assert not caplog.text
    split([Pair(f"a{i}", "p", group=f"g{i}") for i in range(5)], 0.4, seed=0)
    assert "2 of 2 validation pairs have a positive that trains too, in another group" in caplog.text


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


def test_too_few_pairs_for_a_batch_are_refused_where_they_would_train(pairs_file: Path) -> None:
    made = data(pairs_file, batch_size=25)
    made.setup("validate")
    with pytest.raises(RefusedRequest, match="24 pairs do not fill one batch of 25"):
        made.setup("fit")


# ---- the account


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_setup_tells_what_the_pairs_hold_and_what_is_odd(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [
        {"anchor": f"a{i}", "positive": f"p{i}", "group": f"g{i // 2}"} for i in range(8)
    ]
    rows[0]["negatives"] = ["n1", "n2", "n3"]
    rows[1]["negatives"] = ["n1", "a1"]
    rows += [
        {"anchor": "a3", "positive": "p3", "group": "g1"},
        {"anchor": "x", "positive": "x", "group": "g9"},
    ]
    path = written(tmp_path / "p.jsonl", rows)
    made = data(path, batch_size=4, per_group=2, negatives=2)
    with caplog.at_level("INFO", logger="vidvec_msg"):
        made.setup("fit")
    told = [record.message for record in caplog.records]
    assert told == [
        "10 pairs train in 2 steps an epoch (8 pairs seen), 0 validate",
        "5 groups, 17 distinct texts in 20 places (15% repeated), hard negatives per pair 0 to 3, median 0, "
        "1 pair has more than the 2 asked for: another draw of them trains each epoch",
        "1 pair (pair 9) has anchor and positive of an earlier pair again; each copy trains",
        "1 pair (pair 10) has the same text as anchor and as positive, which teaches nothing",
        "1 pair (pair 2) has the own anchor or positive among the negatives; that is left out",
        "pairs that never train, as their group has fewer than data.per_group 2: 1",
    ]


def test_pairs_without_a_negative_in_their_batch_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"anchor": f"a{i}", "positive": f"p{i}", "group": "big" if i < 9 else f"g{i}"} for i in range(10)]
    made = data(written(tmp_path / "p.jsonl", rows), batch_size=2)
    with caplog.at_level("INFO", logger="vidvec_msg"):
        made.setup("fit")
    assert "8 of 10 pairs have no negative in their batch of the first epoch" in caplog.text
    plan = made.plan(ranks=1)
    lonely = next(batch[0] for batch in plan.epoch(0) if 9 not in batch)
    rows[lonely] |= {"negatives": ["n"]}
    made = data(written(tmp_path / "q.jsonl", rows), batch_size=2)
    assert made.checked_plan(ranks=1)[1] == 6  # a hard negative serves its batch, not its pair alone
    assert data(tmp_path / "q.jsonl", batch_size=2, negatives=0).checked_plan(ranks=1)[1] == 8


# ---- hard negatives on their way into the loss


def loaders(made: PairsData, ranks: int = 1) -> list[PairLoader]:
    """The training loader of each rank, as a trainer would ask for it."""
    found = []
    for rank in range(ranks):
        module = SimpleNamespace(tokenise=lambda text: Tokens([ord(letter) for letter in text]))
        made.trainer = SimpleNamespace(world_size=ranks, global_rank=rank, lightning_module=module)  # type: ignore[assignment]
        found.append(made.train_dataloader())
    return found


def test_mined_negatives_count_in_the_loss(tmp_path: Path) -> None:
    rows = [
        {"anchor": f"{animal} {animal}", "positive": f"{animal} {i}", "group": animal}
        for i, animal in enumerate(["apple", "dog", "bridge", "candle"] * 2)
    ]
    path = written(tmp_path / "p.jsonl", rows)
    further = [f"{animal} {animal} {animal} forest" for animal in ("apple", "dog", "bridge", "candle")]
    (tmp_path / "corpus.txt").write_text("\n".join(further))
    out = mine_negatives(
        str(path),
        "fakes:KeywordEmbedder",
        tmp_path / "mined.jsonl",
        corpus=str(tmp_path / "corpus.txt"),
        num_negatives=2,
        relative_margin=None,
    )
    counts = {}
    for source in (path, out):
        made = data(source, batch_size=4, per_group=1)
        made.setup("fit")
        batch = next(iter(loaders(made)[0]))
        random = torch.nn.functional.normalize(
            torch.randn(len(batch.texts), 8, generator=torch.Generator().manual_seed(0)), dim=-1
        )
        own = EncodedPairs(
            random[batch.anchors],
            random[batch.positives],
            random[batch.negatives.clamp(min=0)],
            batch.keys,
        )
        result = InfoNCE()(own, own, 0)
        counts[source] = (int(result.negatives), float(result.rows.mean()))
    assert counts[path][0] == 4 * 3
    # every mined message is of a group of the batch, but for those that the corpus brought
    assert counts[out][0] == 4 * 3 + 4 * 4
    assert counts[out][1] != counts[path][1]


def test_a_negative_that_belongs_to_another_pair_of_the_batch_is_left_out_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [
        {"anchor": "a", "positive": "p", "group": "g", "negatives": ["q2", "r2", "n"]},
        {"anchor": "b", "positive": "q", "group": "h", "negatives": ["p", "m"]},
        {"anchor": "b2", "positive": "q2", "group": "h"},
        {"anchor": "c", "positive": "r"},
        {"anchor": "c", "positive": "r2"},
    ]
    made = data(written(tmp_path / "p.jsonl", rows), batch_size=2, drop_last=False)
    hard = HardNegatives(made.training)

    def left(*batch: int) -> list[tuple[str, ...]]:
        return [pair.negatives for pair in hard.chosen(batch, batch, 0)]

    assert left(0, 1) == [("r2", "n"), ("m",)]  # q2 is of b's group, p is a's
    assert left(0, 3) == [("q2", "n"), ()]  # r2 is c's, in another row
    assert left(0, 0) == [("q2", "r2", "n")] * 2
    assert hard.left_out([0, 1]) == 2
    assert made.training[0].negatives == ("q2", "r2", "n")
    assert HardNegatives(made.training, most=1).chosen([0, 1], [1], 0)[0].negatives == ("m",)
    with caplog.at_level("INFO", logger="vidvec_msg"):
        data(tmp_path / "p.jsonl", batch_size=5).setup("fit")
    assert "3 hard negatives of the first epoch belong to another pair of their batch" in caplog.text


def test_ragged_negatives_are_drawn_by_seed_and_epoch_on_every_rank(tmp_path: Path) -> None:
    counts = [0, 5, 1, 0, 3, 0, 2, 7]
    rows = [
        {"anchor": f"a{i}", "positive": f"p{i}", "negatives": [f"n{i}.{k}" for k in range(count)]}
        for i, count in enumerate(counts)
    ]
    path = written(tmp_path / "p.jsonl", rows)

    def epochs(seed: int, done: int = 0, ranks: int = 2, most: int | None = 2) -> list[dict[str, set[str]]]:
        """Per epoch, each pair's negatives over all ranks; from the batch ``done`` on."""
        made = data(path, batch_size=2, seed=seed, negatives=most)
        given: dict[int, dict[str, set[str]]] = {}
        for loader in loaders(made, ranks):
            loader.load_state_dict({"given": done})
            for _ in range(2 - done // len(loader.plan)):
                for batch in loader:
                    seen = given.setdefault(batch.number // len(loader.plan), {})
                    for name, row in zip(batch.names, batch.negatives.tolist(), strict=True):
                        seen[name] = {batch.texts[place] for place in row if place != NO_TEXT}
        return [given[epoch] for epoch in sorted(given)]

    first, second = epochs(0)
    assert {name: len(found) for name, found in first.items()} == {
        f"pair {i + 1}": min(count, 2) for i, count in enumerate(counts)
    }
    assert first != second  # another draw
    assert epochs(0) == [first, second]
    assert epochs(0, done=1)[1] == second  # resumed: the same draw
    assert epochs(1) != [first, second]
    assert not any(epochs(0, most=0)[0].values())
    assert sorted(len(found) for found in epochs(0, most=None)[0].values()) == sorted(counts)


def test_without_a_module_there_is_no_loader(pairs_file: Path) -> None:
    with pytest.raises(RefusedRequest, match="needs a module with `tokenise`"):
        data(pairs_file, batch_size=4).train_dataloader()

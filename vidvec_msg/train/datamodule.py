"""Pairs as Lightning sees them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from pytorch_lightning import LightningDataModule

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.pairs import Pair, read_pairs
from vidvec_msg.train.batches import Collate, Tokenise
from vidvec_msg.train.hard_negatives import HardNegatives
from vidvec_msg.train.loader import NoPairs, PairLoader
from vidvec_msg.train.pair_account import account, oddities, what_all_share, without_negative
from vidvec_msg.train.plan import BatchPlan

log = logging.getLogger(__name__)


@runtime_checkable
class Tokenises(Protocol):
    """A module that says how its texts become tokens; prompt and tokenizer are the model's own matter."""

    @property
    def tokenise(self) -> Tokenise:
        """A text's tokens; picklable, for DataLoader workers."""


class PairsData(LightningDataModule):
    """Text pairs for training, and some kept aside for validation.

    Args:
        pairs: a .jsonl, .csv or .parquet file, or module:function that yields rows.
        columns: name of the column per role (anchor, positive, negatives, group, id) where it differs.
        batch_size: pairs per step per rank. Negatives grow with it; accumulating gradients adds none.
        validation: source of validation pairs, in the same layout.
        validation_fraction: share of the pairs kept aside, between 0 and 1, when there is no such source.
            Pairs that share their group or their anchor are kept aside together; messages that validate and
            train too, in other groups, are counted in a warning.
        per_group: pairs of each of its groups in a batch: 1 keeps groups apart, so that every other pair of
            the batch is a negative; with 2 or more a pair meets so many of its group, which are its positives
            too; by default as the order brings them.
        negatives: hard negatives per pair at most, drawn anew each epoch by the seed; all by default.
        drop_last: leave out the pairs of an epoch that do not fill a batch (others each epoch).
        seed: of the order of pairs, of the split and of dropout.
        num_workers: processes per rank that tokenise ahead; 0 tokenises in the training process.
        passages: forward passes per batch, each over texts of similar length; 2 separates long storylines
            from short messages and saves the padding.
        passage_tokens: if above 0, as many passages as it takes to hold each within so many tokens, padding
            counted, whatever `passages` says. With model.grad_cache this bounds the memory of a step. Not
            for sharded models (ZeRO-3), which need equal numbers of passages on all ranks.
        max_pairs: use only this many pairs, drawn by the seed; all by default.
    """

    def __init__(
        self,
        pairs: str,
        columns: dict[str, str] | None = None,
        batch_size: int = 32,
        validation: str | None = None,
        validation_fraction: float = 0.0,
        per_group: int | None = None,
        negatives: int | None = None,
        drop_last: bool = True,
        seed: int = 0,
        num_workers: int = 0,
        passages: int = 2,
        passage_tokens: int = 0,
        max_pairs: int | None = None,
    ) -> None:
        super().__init__()
        problems = Problems("data")
        if batch_size < 2:
            problems.add(f"batch_size is {batch_size}; at least 2 pairs are needed for one to be a negative")
        if not 0 <= validation_fraction < 1:
            problems.add(f"validation_fraction is {validation_fraction}; it must be at least 0 and below 1")
        if validation is not None and validation_fraction:
            problems.add("validation and validation_fraction are both given; choose one")
        if passages < 1:
            problems.add(f"passages is {passages}; it must be at least 1")
        if passage_tokens < 0:
            problems.add(f"passage_tokens is {passage_tokens}; it must be at least 0 (0: no bound)")
        if num_workers < 0:
            problems.add(f"num_workers is {num_workers}; it must be at least 0")
        if max_pairs is not None and max_pairs < 2:
            problems.add(f"max_pairs is {max_pairs}; it must be at least 2")
        if negatives is not None and negatives < 0:
            problems.add(f"negatives is {negatives}; it must be at least 0 (per pair), or null for all")
        if per_group is not None:
            _check_per_group(per_group, batch_size, drop_last, problems)
        problems.refuse_if_any()
        self.source = pairs
        self.columns: Mapping[str, str] | None = columns
        self.batch_size = batch_size
        self.validation_source = validation
        self.validation_fraction = validation_fraction
        self.per_group = per_group
        self.negatives = negatives
        self.drop_last = drop_last
        self.seed = seed
        self.num_workers = num_workers
        self.passages = passages
        self.passage_tokens = passage_tokens
        self.max_pairs = max_pairs
        self.training: list[Pair] = []
        self.validation: list[Pair] = []

    def read(self) -> None:
        """Reads and splits the pairs; done before the model is built, so that faults cost seconds."""
        if self.training:
            return
        pairs, validation = read_sources((self.source, self.validation_source), self.columns)
        if self.max_pairs is not None:
            order = np.random.default_rng((self.seed, 1)).permutation(len(pairs))[: self.max_pairs]
            pairs = [pairs[row] for row in sorted(order)]
        if self.validation_source is not None:
            self.training, self.validation = pairs, validation
        else:
            self.training, self.validation = split(pairs, self.validation_fraction, self.seed)
        if len(self.validation) == 1:
            raise RefusedRequest("data: 1 pair validates; at least 2 are needed for one to be a negative")

    def setup(self, stage: str) -> None:
        """Reads the pairs if that has not happened, and says what they hold."""
        self.read()
        if stage != "fit":
            return
        plan, starved = self.checked_plan(self._ranks)
        log.info(
            f"{len(self.training):,} pairs train in {len(plan)} steps an epoch "
            f"({plan.used:,} pairs seen), {len(self.validation):,} validate"
        )
        log.info(account(self.training, self.negatives))
        for oddity in oddities(self.training):
            log.info(oddity)
        if plan.never_used:
            log.info(
                f"pairs that never train, as their group has fewer than data.per_group {self.per_group}: "
                f"{plan.never_used:,}"
            )
        hard = HardNegatives(self.training, self.negatives, self.seed)
        if left_out := sum(hard.left_out(batch) for batch in plan.epoch(0)):
            log.info(
                f"{left_out:,} hard negatives of the first epoch belong to another pair of their batch and "
                "are left out there"
            )
        if starved:
            log.info(
                f"{starved:,} of {plan.used:,} pairs have no negative in their batch of the first epoch: all "
                "other pairs there share their anchor, positive or group"
            )

    def checked_plan(self, ranks: int) -> tuple[BatchPlan, int]:
        """The batches of training, and how many pairs of the first epoch have no negative in theirs.

        Raises:
            RefusedRequest: not one batch can be filled, or there is nothing to contrast.
        """
        plan = self.plan(ranks)
        starved = sum(without_negative(batch) for batch in self._first_epoch(plan))
        if starved == plan.used:
            why = what_all_share(self.training) or "those of each batch share anchor, positive or group"
            raise RefusedRequest(
                f"no pair has a negative in its batch of {plan.batch_size} pairs over all ranks: {why}. Give "
                "pairs of several groups and messages, raise data.batch_size, set data.per_group 1, or add "
                "hard negatives (`vidvec-msg mine-negatives`)."
            )
        return plan, starved

    def _first_epoch(self, plan: BatchPlan) -> Iterator[list[Pair]]:
        """Its batches over all ranks, each pair with the hard negatives that it has there."""
        hard = HardNegatives(self.training, self.negatives, self.seed)
        for batch in plan.epoch(0):
            yield hard.chosen(batch, batch, 0)

    def plan(self, ranks: int) -> BatchPlan:
        """The batches of training."""
        return BatchPlan(
            groups=[pair.group for pair in self.training],
            batch_size=self.batch_size * ranks,
            ranks=ranks,
            seed=self.seed,
            per_group=self.per_group,
            drop_last=self.drop_last,
        )

    def check_validation(self, ranks: int) -> None:
        """Refuses fewer validation pairs than ranks.

        Raises:
            RefusedRequest: some would have none.
        """
        if 0 < len(self.validation) < ranks:
            raise RefusedRequest(
                f"data: {len(self.validation)} pairs validate on {ranks} ranks; each needs one"
            )

    def train_dataloader(self) -> PairLoader:
        """This rank's share of every batch."""
        return self._own_loader(self.plan(self._ranks), validating=False)

    def val_dataloader(self) -> PairLoader | NoPairs | list[None]:
        """The validation pairs, in the same batches on every pass."""
        if not self.validation:
            # `validate` without validation pairs still has retrieval to measure: one empty step lets the
            # callbacks of validation run
            return NoPairs() if self.trainer and self.trainer.state.fn == "validate" else []
        self.check_validation(self._ranks)
        size = min(self.batch_size * self._ranks, len(self.validation))
        plan = BatchPlan(
            [None] * len(self.validation), size, ranks=self._ranks, seed=self.seed, drop_last=False
        )
        return self._own_loader(plan, validating=True)

    @property
    def _ranks(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    def _own_loader(self, plan: BatchPlan, *, validating: bool) -> PairLoader:
        """For this rank and the trainer's module."""
        trainer = self.trainer
        if trainer is None or not isinstance(trainer.lightning_module, Tokenises):
            raise RefusedRequest(
                "PairsData needs a module with `tokenise` (TextContrastive has it) to make batches for"
            )
        tokenise = trainer.lightning_module.tokenise
        return self.loader(tokenise, plan, rank=trainer.global_rank, validating=validating)

    def loader(
        self, tokenise: Tokenise, plan: BatchPlan, *, rank: int = 0, validating: bool = False
    ) -> PairLoader:
        """A rank's batches of the training pairs, or of the validation pairs, as the options show them."""
        return PairLoader(
            self.validation if validating else self.training,
            plan,
            Collate(tokenise, self.passages, self.passage_tokens),
            rank=rank,
            workers=self.num_workers,
            always_first_epoch=validating,
            negatives=self.negatives,
        )


def _check_per_group(per_group: int, batch_size: int, drop_last: bool, problems: Problems) -> None:
    if per_group < 1:
        problems.add(f"per_group is {per_group}; it must be at least 1 (pairs), or null")
        return
    if batch_size % per_group:
        problems.add(f"batch_size is {batch_size}; it must be a multiple of per_group, which is {per_group}")
    if not drop_last:
        problems.add("drop_last is false; with per_group every batch is full: leave one of the two out")


def read_sources(sources: Sequence[str | None], columns: Mapping[str, str] | None = None) -> list[list[Pair]]:
    """The pairs of each source, none where there is no source.

    Raises:
        RefusedRequest: with the problems of all sources.
    """
    found: list[list[Pair]] = []
    refusals: list[str] = []
    for source in sources:
        try:
            found.append([] if source is None else read_pairs(source, columns))
        except RefusedRequest as error:
            refusals.append(str(error))
    if refusals:
        raise RefusedRequest("\n".join(refusals))
    return found


def split(pairs: list[Pair], fraction: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and validation pairs; pairs of one group or with the same anchor stay together.

    So do pairs that others connect in this way. Positives connect nothing, because few messages may stand in
    many groups: how many of those that validate train too is logged.

    Args:
        pairs: all of them.
        fraction: share of the connected groups to keep aside, rounded; 0 keeps none aside.
        seed: of the choice.

    Raises:
        RefusedRequest: one of the two would be empty.
    """
    if not fraction:
        return pairs, []
    groups = _connected(pairs)
    distinct = list(dict.fromkeys(groups))
    if len(distinct) == 1:
        raise RefusedRequest(
            f"data.validation_fraction {fraction}: the {len(pairs):,} pairs are all connected by a group or "
            "an anchor that they share, and cannot be split. Give pairs of other storylines to validate with "
            "(data.validation), or set data.validation_fraction 0"
        )
    count = round(fraction * len(distinct))
    if not 0 < count < len(distinct):
        raise RefusedRequest(
            f"data.validation_fraction {fraction} of {len(distinct)} groups is {count} groups; "
            "training and validation both need at least one"
        )
    aside = {distinct[i] for i in np.random.default_rng((seed, 2)).permutation(len(distinct))[:count]}
    training = [pair for pair, group in zip(pairs, groups, strict=True) if group not in aside]
    validation = [pair for pair, group in zip(pairs, groups, strict=True) if group in aside]
    trained = {pair.positive for pair in training}
    if both := sum(pair.positive in trained for pair in validation):
        log.warning(
            f"{both:,} of {len(validation):,} validation pairs have a positive that trains too, in another "
            "group"
        )
    return training, validation


def _connected(pairs: list[Pair]) -> list[tuple[str, str]]:
    """A name per pair, the same for pairs that a chain of shared groups and anchors connects."""
    above: dict[tuple[str, str], tuple[str, str]] = {}

    def top(name: tuple[str, str]) -> tuple[str, str]:
        while (higher := above.setdefault(name, name)) != name:
            above[name] = name = above[higher]
        return name

    for pair in pairs:
        if pair.group:
            above[top(("group", pair.group))] = top(("anchor", pair.anchor))
    return [top(("anchor", pair.anchor)) for pair in pairs]

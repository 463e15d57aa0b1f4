"""Several readings of one model against each other: validation queries choose, the test is told once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from vidvec_msg.errors import JobFailed, RefusedRequest, did_you_mean
from vidvec_msg.retrieval.evaluation.directions import (
    Evaluation,
    Options,
    Score,
    check_sides,
    score_forward,
    score_reverse,
)
from vidvec_msg.retrieval.evaluation.paired_tests import Difference, paired_differences
from vidvec_msg.retrieval.evaluation.sides import Made, Sides, kind_of
from vidvec_msg.retrieval.metrics import MEDIANS, lower_is_better, parse_metrics
from vidvec_msg.retrieval.probing.choice import Choice, Values, choose
from vidvec_msg.retrieval.probing.halves import Halves

MOST_TIED = 0.5  # share of queries that tie at rank 1 from which a candidate is not chosen
DEFAULT_METRICS = ("map", "hit_rate@1", "recall@10", "mrr")
Way = Literal["forward", "reverse"]
WAYS: tuple[Way, ...] = ("forward", "reverse")


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides.

    Args:
        way: direction.
        metric: its mean over validation queries; the highest is chosen (of ranks, the lowest).
        metrics: all that are computed.
    """

    way: Way
    metric: str
    metrics: tuple[str, ...]

    @classmethod
    def of(cls, choose_by: str, metrics: Sequence[str] | None) -> Rule:
        """The rule of "forward/map" or "reverse/mrr".

        Raises:
            RefusedRequest: neither direction, an unknown metric, or a median.
        """
        way, slash, metric = choose_by.partition("/")
        if way not in WAYS or not slash:
            raise RefusedRequest(
                f"choose_by is {choose_by!r}{did_you_mean(way, WAYS)}; it is a direction and a metric, such "
                "as forward/map or reverse/mrr"
            )
        names = tuple(dict.fromkeys([metric, *(metrics or DEFAULT_METRICS)]))
        parse_metrics(names)
        if metric in MEDIANS:
            raise RefusedRequest(f"choose_by is {choose_by!r}; a median moves in steps, take a mean")
        return cls("forward" if way == "forward" else "reverse", metric, names)


@dataclass(frozen=True)
class Outcome:
    """What came out.

    Args:
        names: of the candidates; the first is the model as it was given.
        labels: of the directions.
        validation: way → metric → (candidates,) means.
        lows: way → (candidates,) lower ends of the rule's metric, on validation.
        highs: upper ends.
        tied: way → (candidates,) share of the validation queries that tie at rank 1.
        choices: way → the best by the rule's metric in that direction.
        tested: way → metric → scores on the test, of the chosen one and of the first.
        differences: way → metric → chosen less first on the test; empty if they are the same.
        chance: way → metric → value of a random ranking on the test.
    """

    rule: Rule
    names: tuple[str, ...]
    labels: dict[Way, str]
    validation: dict[Way, dict[str, Values]]
    lows: dict[Way, Values]
    highs: dict[Way, Values]
    tied: dict[Way, Values]
    choices: dict[Way, Choice]
    tested: dict[Way, dict[str, tuple[Score, Score]]]
    differences: dict[Way, dict[str, Difference]]

    @property
    def choice(self) -> Choice:
        """What the rule chose."""
        return self.choices[self.rule.way]

    @property
    def best(self) -> int:
        """Number of the chosen candidate."""
        return self.choice.best

    def to_dict(self) -> dict[str, Any]:
        """For a manifest: everything, the candidates' own parts apart."""
        way, metric = self.rule.way, self.rule.metric
        chosen, first = self.tested[way][metric]
        return {
            "choose_by": f"{way}/{metric}",
            "compared": len(self.names),
            "validation": self.choice.to_dict(),
            "best_by_direction": {way: self.names[choice.best] for way, choice in self.choices.items()},
            "test": {
                way: {
                    metric: {
                        "chosen": asdict(pair[0]),
                        "given": asdict(pair[1]),
                        "difference": asdict(self.differences[way][metric])
                        if self.differences[way]
                        else None,
                    }
                    for metric, pair in scores.items()
                }
                for way, scores in self.tested.items()
            },
            "labels": dict(self.labels),
            "optimism": {
                "validation": self.choice.value,
                "test": chosen.value,
                "given_test": first.value,
                "unseen": self.choice.unseen,
            },
        }

    def candidate(self, number: int) -> dict[str, Any]:
        """A candidate's values on validation."""
        return {
            way: {
                "metrics": {metric: float(values[number]) for metric, values in self.validation[way].items()},
                "low": float(self.lows[way][number]),
                "high": float(self.highs[way][number]),
                "tied": float(self.tied[way][number]),
            }
            for way in WAYS
        }


def compared(
    names: Sequence[str], vectors: Callable[[int], Made], halves: Halves, rule: Rule, *, seed: int
) -> Outcome:
    """Scores every candidate on validation, chooses, and scores the chosen one and the first on the test.

    Args:
        names: of the candidates; the first is the model as it was given.
        vectors: those of a candidate, of all items of both halves; asked for one candidate at a time.
        halves: who chooses and who tells.
        rule: what decides.
        seed: of resamples and sign patterns.
    """
    plain = Options(rule.metrics, intervals=False, chance=False, seed=seed, keep=1)
    means: dict[Way, dict[str, list[float]]] = {way: {m: [] for m in rule.metrics} for way in WAYS}
    deciding: dict[Way, list[Values]] = {way: [] for way in WAYS}
    asked: dict[Way, tuple[str, ...]] = {}
    tied: dict[Way, list[float]] = {way: [] for way in WAYS}
    for number in range(len(names)):
        found = scored(halves.validation, vectors(number), plain)
        for way in WAYS:
            direction = getattr(found, way)
            asked.setdefault(way, direction.query_ids)
            if direction.query_ids != asked[way]:
                raise JobFailed(
                    f"{names[number]!r} has vectors of other items than {names[0]!r}, so that their values "
                    "are not of the same queries; see failures.jsonl in the vectors' folders, and leave "
                    "those items or this candidate out"
                )
            tied[way].append(direction.tied_at_top / max(len(direction.query_ids), 1))
            deciding[way].append(direction.per_query[rule.metric])
            for metric in rule.metrics:
                means[way][metric].append(float(direction.metrics[metric].value or 0.0))
    sign = -1.0 if lower_is_better(rule.metric) else 1.0
    shares = {way: np.asarray(tied[way]) for way in WAYS}
    choices = {way: _signed(_chosen(sign * np.stack(deciding[way]), shares[way], seed), sign) for way in WAYS}
    ends = {way: _ends(np.stack(deciding[way]), seed) for way in WAYS}
    best = choices[rule.way].best
    told = replace(plain, intervals=True, chance=True)
    tests = [scored(halves.test, vectors(number), told) for number in dict.fromkeys([best, 0])]
    return Outcome(
        rule=rule,
        names=tuple(names),
        labels={"forward": tests[0].forward.label, "reverse": tests[0].reverse.label},
        validation={way: {m: np.asarray(v) for m, v in means[way].items()} for way in WAYS},
        lows={way: ends[way][0] for way in WAYS},
        highs={way: ends[way][1] for way in WAYS},
        tied=shares,
        choices=choices,
        tested={
            way: {
                metric: (getattr(tests[0], way).metrics[metric], getattr(tests[-1], way).metrics[metric])
                for metric in rule.metrics
            }
            for way in WAYS
        },
        differences={way: _differences(tests, way, seed) for way in WAYS},
    )


def scored(sides: Sides, made: Made, options: Options) -> Evaluation:
    """Both directions of one half.

    Args:
        sides: who takes part, candidates included.
        made: vectors of these items, and of others.
        options: how they are scored.
    """
    queries, corpus = {item.id for item in sides.queries}, {item.id for item in sides.corpus}
    left, right = kind_of(sides.queries), kind_of(sides.corpus)
    if left == right:  # "text → text" would not tell the directions apart
        left, right = f"{left} queries", f"{right} corpus"
    asking, answering = made.queries.take(queries), made.corpus.take(corpus)
    check_sides({"query": asking, "corpus": answering})
    return Evaluation(
        score_forward(asking, answering, sides.qrels, options, pool="corpus", label=f"{left} → {right}"),
        score_reverse(
            made.corpus_as_queries.take(corpus),
            made.queries_as_documents.take(queries),
            sides.qrels,
            options,
            label=f"{right} → {left}",
        ),
    )


def _chosen(values: Values, tied: Values, seed: int) -> Choice:
    """The best of those that tell items apart. Layer 0 at the last token reads one token of the prompt, the
    same for every item: its ranking is the order of the ids, whose value may be high by accident."""
    eligible = np.flatnonzero((tied <= MOST_TIED) | (np.arange(len(tied)) == 0))
    found = choose(values[eligible], seed=seed)
    shares = np.zeros(len(values))
    shares[eligible] = found.shares
    return replace(found, best=int(eligible[found.best]), shares=shares)


def _differences(tests: Sequence[Evaluation], way: Way, seed: int) -> dict[str, Difference]:
    """Chosen less given, where these are two."""
    if len(tests) < 2:
        return {}
    chosen, given = (getattr(one, way).per_query for one in tests)
    pairs = [(given[metric], chosen[metric]) for metric in chosen]
    return dict(zip(chosen, paired_differences(pairs, seed=seed), strict=True))


def _ends(values: Values, seed: int) -> tuple[Values, Values]:
    """95% bootstrap ends of each candidate's mean, (candidates,) each."""
    from vidvec_msg.retrieval.evaluation.intervals import bootstrap_intervals

    found = bootstrap_intervals({str(n): row for n, row in enumerate(values)}, seed=seed)
    pairs = [found[str(number)] for number in range(len(values))]
    return np.asarray([low for low, _ in pairs]), np.asarray([high for _, high in pairs])


def _signed(choice: Choice, sign: float) -> Choice:
    """A choice among negated values, in their own sign."""
    if sign > 0:
        return choice
    unseen = None if choice.unseen is None else -choice.unseen
    return replace(choice, value=-choice.value, low=-choice.high, high=-choice.low, unseen=unseen)

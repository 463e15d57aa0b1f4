"""Are the probabilities right? Reliability, and what is fitted on validation pairs to make them so.

Of pairs that get the probability 0.8, 80% should be right. The pairs are those that were reranked, and the
share of right ones among them depends on the depth: a calibration holds for that depth and first stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vidvec_msg.retrieval.reranking.scores import Calibration

Calibrate = Literal["temperature", "platt"]
Values = npt.NDArray[np.float64]

BINS = 10
TEMPERATURES = 0.02, 50.0
"""The least and the highest that are tried."""
_PLATT_PENALTY = 1e-6  # on the slope, where the pairs can be told apart and it would grow without end


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs of similar probability.

    Args:
        low: lower edge.
        high: upper edge.
        pairs: in it.
        probability: their mean.
        positive: share of them that is right.
    """

    low: float
    high: float
    pairs: int
    probability: float
    positive: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far probabilities can be taken at their word.

    Args:
        pairs: how many.
        positive: share of right pairs.
        ece: expected calibration error: the mean distance of a bin's probability and its share of right
            pairs, weighted by the pairs in it.
        brier: mean squared distance of a pair's probability and its outcome (0 or 1).
        log_loss: mean negative log-likelihood, in nats.
        bins: those that are not empty.
    """

    pairs: int
    positive: float
    ece: float
    brier: float
    log_loss: float
    bins: tuple[Bin, ...]

    def to_dict(self) -> dict[str, Any]:
        """Its part of ``report.json``."""
        return {**asdict(self), "bins": [asdict(one) for one in self.bins]}


def reliability(
    logits: Sequence[float], right: Sequence[bool], calibration: Calibration
) -> Reliability | None:
    """Reliability of calibrated logits; None without pairs.

    Args:
        logits: ``(pairs,)``.
        right: ``(pairs,)``.
        calibration: that is applied; :class:`Calibration`'s defaults leave them as they are.
    """
    if not len(logits):
        return None
    z = np.asarray(logits, dtype=np.float64) / calibration.temperature + calibration.bias  # (pairs,)
    outcome = np.asarray(right, dtype=np.float64)
    p = _sigmoid(z)
    place = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    bins = []
    for number in range(BINS):
        mine = place == number
        if mine.any():
            edges = number / BINS, (number + 1) / BINS
            bins.append(Bin(*edges, int(mine.sum()), float(p[mine].mean()), float(outcome[mine].mean())))
    ece = sum(one.pairs * abs(one.probability - one.positive) for one in bins) / len(p)
    return Reliability(
        len(p), float(outcome.mean()), ece, float(((p - outcome) ** 2).mean()), _loss(z, outcome), tuple(bins)
    )


def fit(logits: Sequence[float], right: Sequence[bool], how: Calibrate) -> Calibration:
    """The calibration of the highest likelihood.

    Args:
        logits: ``(pairs,)`` of validation pairs.
        right: ``(pairs,)``.
        how: "temperature" alone, which cannot move the share of pairs that are called right far, or "platt",
            a temperature and a bias.

    Returns:
        the calibration; a temperature at the end of its range (0.02 to 50) says that the logits tell
        nothing, or everything.
    """
    from scipy.optimize import minimize, minimize_scalar  # type: ignore[import-untyped]  # no types

    z, outcome = np.asarray(logits, dtype=np.float64), np.asarray(right, dtype=np.float64)
    ends = (float(np.log(TEMPERATURES[0])), float(np.log(TEMPERATURES[1])))
    best = minimize_scalar(lambda t: _loss(z / np.exp(t), outcome), bounds=ends, method="bounded")
    temperature = float(np.exp(best.x))
    if how == "temperature" or outcome.min() == outcome.max():
        return Calibration(temperature)

    def loss(at: Values) -> float:
        slope, bias = at
        return _loss(slope * z + bias, outcome) + _PLATT_PENALTY * float(slope**2)

    found = minimize(loss, x0=np.array([1 / temperature, 0.0]), method="L-BFGS-B",
                     bounds=[(1 / TEMPERATURES[1], 1 / TEMPERATURES[0]), (-50.0, 50.0)])  # fmt: skip
    slope, bias = found.x.tolist()
    return Calibration(1 / slope, bias)


def _loss(z: Values, outcome: Values) -> float:
    """Mean of -log P(outcome) for logits z."""
    return float((np.logaddexp(0.0, z) - outcome * z).mean())


def _sigmoid(z: Values) -> Values:
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)))

"""Frames to one vector: small tables worked out by hand."""

import numpy as np
import pytest

from vidvec_msg.embedders.dual.frame_pooling import FRAME_POOLING_KERNELS, FRAME_POOLINGS

# two clips: frames (3, 4) and (0, 2); frame (6, 8)
FEATURES = np.array([[3, 4], [0, 2], [6, 8]], dtype=np.float32)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[0.3, 0.9], [0.6, 0.8]]),  # ((0.6, 0.8) + (0, 1)) / 2; one frame is itself, of norm 1
        ("mean_raw", [[1.5, 3.0], [6.0, 8.0]]),  # a frame of norm 5 outweighs one of norm 2
    ],
)
def test_by_hand(pooling, expected):
    pooled = FRAME_POOLING_KERNELS[pooling](FEATURES, [2, 1])
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)


@pytest.mark.parametrize("pooling", FRAME_POOLINGS)
def test_as_clip4clip_does_it_with_padding_and_a_mask(pooling):
    """Clips of unequal length, padded with zeros to the longest and masked: the same means."""
    counts = [3, 1, 5]
    features = np.random.default_rng(0).normal(size=(sum(counts), 4)).astype(np.float32)
    padded = np.zeros((len(counts), max(counts), 4))
    mask = np.zeros((len(counts), max(counts), 1))
    for clip, part in enumerate(np.split(features, np.cumsum(counts)[:-1])):
        padded[clip, : len(part)], mask[clip, : len(part)] = part, 1
    if pooling == "mean":
        padded = padded / np.maximum(np.linalg.norm(padded, axis=2, keepdims=True), 1e-12)
    expected = (padded * mask).sum(axis=1) / mask.sum(axis=1)
    np.testing.assert_allclose(FRAME_POOLING_KERNELS[pooling](features, counts), expected, rtol=1e-5)


def test_every_frame_has_one_vote():
    """Scaling one frame's features moves the raw mean and not the mean of unit frames."""
    louder = FEATURES * np.array([[1], [10], [1]], dtype=np.float32)
    mean, raw = FRAME_POOLING_KERNELS["mean"], FRAME_POOLING_KERNELS["mean_raw"]
    np.testing.assert_allclose(mean(louder, [2, 1]), mean(FEATURES, [2, 1]), rtol=1e-6)
    assert np.abs(raw(louder, [2, 1]) - raw(FEATURES, [2, 1])).max() > 1


def test_a_frame_of_zeros_does_not_divide_by_zero():
    assert np.isfinite(FRAME_POOLING_KERNELS["mean"](np.zeros((2, 3), np.float32), [2])).all()

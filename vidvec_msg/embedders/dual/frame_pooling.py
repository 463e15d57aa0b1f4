"""Frames of a clip become one vector: the kernels, on features of clips of any length.

What is not here: pooling that depends on the query (X-Pool's attention, CLIP4Clip's tightTransf, X-CLIP's
prompts). It gives a clip another vector for every query; an index holds one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

FramePooling = Literal["mean", "mean_raw"]
FRAME_POOLINGS: tuple[FramePooling, ...] = get_args(FramePooling)
Features = npt.NDArray[np.float32]


def mean_of_unit_frames(features: Features, counts: Sequence[int]) -> Features:
    """Each frame to norm 1, then the mean: every frame has one vote (CLIP4Clip's meanP, arXiv 2104.08860;
    PE's ``encode_video`` with normalize=True).

    CLIP4Clip pads clips to one length and masks the padding; here nothing is padded, which is the same mean.

    Args:
        features: (frames, dim), the frames of all clips one after the other.
        counts: frames of each clip; their sum is ``frames``.

    Returns:
        (clips, dim), not of norm 1.
    """
    norms = np.linalg.norm(features, axis=1, keepdims=True)  # (frames, 1)
    return mean_of_frames(features / np.maximum(norms, 1e-12), counts)


def mean_of_frames(features: Features, counts: Sequence[int]) -> Features:
    """The mean of the features as they are: a frame with a larger norm weighs more.

    Args:
        features: (frames, dim), the frames of all clips one after the other.
        counts: frames of each clip; their sum is ``frames``.

    Returns:
        (clips, dim).
    """
    ends = np.cumsum(counts)[:-1]
    means = [clip.mean(axis=0, dtype=np.float64) for clip in np.split(features, ends)]
    return np.stack(means).astype(np.float32)  # (clips, dim)


FRAME_POOLING_KERNELS: dict[FramePooling, Callable[[Features, Sequence[int]], Features]] = {
    "mean": mean_of_unit_frames,
    "mean_raw": mean_of_frames,
}

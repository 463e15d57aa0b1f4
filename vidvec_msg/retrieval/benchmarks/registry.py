"""The benchmarks that can be read, by name."""

from __future__ import annotations

from collections.abc import Mapping

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.benchmarks.activitynet import ACTIVITYNET
from vidvec_msg.retrieval.benchmarks.avmeme import AVMEME
from vidvec_msg.retrieval.benchmarks.didemo import DIDEMO
from vidvec_msg.retrieval.benchmarks.drivelhub import DRIVELHUB
from vidvec_msg.retrieval.benchmarks.material import Benchmark
from vidvec_msg.retrieval.benchmarks.msrvtt import MSRVTT
from vidvec_msg.retrieval.benchmarks.msvd import MSVD
from vidvec_msg.retrieval.benchmarks.vatex import VATEX
from vidvec_msg.retrieval.benchmarks.vhub import VHUB
from vidvec_msg.retrieval.benchmarks.vidmsg import VIDMSG

BENCHMARKS: Mapping[str, Benchmark] = {
    one.name: one for one in (VIDMSG, DRIVELHUB, VHUB, AVMEME, MSRVTT, MSVD, VATEX, DIDEMO, ACTIVITYNET)
}


def known_benchmark(name: str) -> Benchmark:
    """The benchmark of a name.

    Raises:
        RefusedRequest: none has it; the message names all.
    """
    if name not in BENCHMARKS:
        raise RefusedRequest(
            f"--name {name!r} is no benchmark that can be read{did_you_mean(name, BENCHMARKS)}; there are: "
            f"{', '.join(BENCHMARKS)}. A BEIR folder needs no import: it is a collection; other tables of "
            "clips and captions: vidvec-msg collect"
        )
    return BENCHMARKS[name]

"""What it costs: items per second and peak memory, as measured while the checks ran."""

from __future__ import annotations

import sys
import time

from vidvec_msg.retrieval.doctor.examination import Examination
from vidvec_msg.retrieval.doctor.finding import Finding, not_applicable

_UNITS = {"text": "texts", "image": "images", "video": "clips", "audio": "sounds"}


def speed(exam: Examination) -> Finding:
    """Items per second of the probes' batches, warmed up; the better of two runs where there is time."""
    told = []
    first = 0.0
    for name, unit in _UNITS.items():
        given = exam.answers.get(name)
        if given is None or not given.items:
            continue
        seconds = given.seconds
        if seconds < exam.left:
            began = time.perf_counter()
            exam.encode(given.items, given.probe.role)
            seconds = min(seconds, time.perf_counter() - began)
        rate = len(given.items) / max(seconds, 1e-9)
        first = first or rate
        told.append(f"{f'{rate:.0f}' if rate >= 100 else f'{rate:.3g}'} {unit}/s (of {len(given.items)})")
    if not told:
        return not_applicable("speed", "nothing of its own was encoded")
    load = f"; loaded in {exam.first_load:.1f} s" if exam.first_load else ""
    return Finding("speed", "ok", round(first, 2), f"{', '.join(told)}{load}")


def memory(exam: Examination) -> Finding:
    """Highest memory of this process so far, and of the GPU's allocator."""
    peak = peak_resident()
    if peak is None:
        return not_applicable("memory", "this system does not say")
    told = f"peak of this process {peak / 2**30:.2f} GiB"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        told += f", of the GPU {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
    return Finding("memory", "ok", peak, told)


def peak_resident() -> int | None:
    """Bytes of the process's high-water mark; None where there is no such count (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB

"""Memory of this process, as Linux counts it.

Not ``resource.getrusage``: a process inherits the largest size of the one that started it.
"""

from __future__ import annotations

from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def megabytes_now() -> float:
    """Resident at this moment; millions of bytes."""
    return _megabytes("VmRSS")


def peak_megabytes() -> float:
    """Resident at most, since this process began or :func:`reset_peak`; millions of bytes."""
    return _megabytes("VmHWM")


def reset_peak() -> None:
    """The peak begins anew at what is resident now."""
    RESET.write_text("5", encoding="ascii")


def can_tell() -> bool:
    """True where memory can be told: on Linux."""
    return RESET.exists()


def _megabytes(field: str) -> float:
    for line in STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"{STATUS} has no {field}")

"""A daily quota, counted in a file: before each call, so that a killed process has not spent unseen."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vidvec_msg.data_synth.benchmark.providers.contract import Exhausted


def _pacific() -> tzinfo:
    try:
        return ZoneInfo("America/Los_Angeles")
    except ZoneInfoNotFoundError:  # a machine without the table of time zones
        return timezone(timedelta(hours=-8))


@dataclass(slots=True)
class Quota:
    """Units that calls cost, by day.

    Args:
        path: JSON lines, one a call.
        limit: units a day; 0 sets none of our own.
        spent: units by day, by the provider's clock: YouTube's quotas begin anew at midnight Pacific time.
    """

    path: Path
    limit: int
    spent: Counter[str] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_file():
            return
        with self.path.open(encoding="utf-8") as stream:
            for line in stream:
                try:
                    row = json.loads(line)
                    self.spent[str(row["day"])] += int(row["units"])
                except (ValueError, KeyError, TypeError):
                    continue  # torn by a kill

    def spend(self, units: int, call: str) -> None:
        """Counts a call that is about to be made.

        Raises:
            Exhausted: today's quota does not hold it.
        """
        today = datetime.now(_pacific()).date().isoformat()
        if self.limit and self.spent[today] + units > self.limit:
            raise Exhausted(
                f"today's quota of {self.limit:,} units is used up ({self.spent[today]:,} spent, {call} "
                f"costs {units}). What was found is kept; the same command goes on after midnight Pacific "
                "time, or now with a larger --quota, if YouTube grants you more."
            )
        self.spent[today] += units
        row = {
            "day": today,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "call": call,
            "units": units,
        }
        line = json.dumps(row).encode() + b"\n"
        with self.path.open("ab", buffering=0) as stream:
            if stream.seek(0, os.SEEK_END) and not _ends_well(self.path):
                stream.write(b"\n")
            stream.write(line)


def _ends_well(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"

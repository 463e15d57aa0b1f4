"""How far a long job is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

EVERY = 60.0  # seconds between two lines of a log

Tell = Callable[[int, int], None]


@contextmanager
def progress(name: str, total: int, *, done: int, log: logging.Logger) -> Iterator[Tell]:
    """Shows items per second, the time that is left, and the failures so far.

    Args:
        name: of the job.
        total: items of the whole job.
        done: items that an earlier run did; they do not count for the rate.
        log: gets the lines where stderr is not a terminal.

    Yields:
        a function to be told the items that are done, those of earlier runs included, and the failed ones.
    """
    if not sys.stderr.isatty():
        yield _Lines(name, total, done, log)
        return
    with tqdm(total=total, initial=done, desc=name, unit="item") as bar:

        def tell(now: int, failed: int) -> None:
            bar.set_postfix(failed=failed, refresh=False)
            bar.update(now - bar.n)

        yield tell


class _Lines:
    """A line a minute, from the first minute on: a short job stays silent."""

    def __init__(self, name: str, total: int, done: int, log: logging.Logger) -> None:
        self.name, self.total, self.before, self.log = name, total, done, log
        self.began = self.told = time.monotonic()

    def __call__(self, now: int, failed: int) -> None:
        moment = time.monotonic()
        if moment - self.told < EVERY or now >= self.total:
            return
        self.told = moment
        rate = max(now - self.before, 1) / (moment - self.began)  # items/s
        pace = f"{rate:,.1f} items/s" if rate >= 1 else f"{1 / rate:,.1f} s/item"
        left = tqdm.format_interval((self.total - now) / rate)
        self.log.info(
            "%s: %s of %s items (%d%%), %s, %s left, %s failed",
            self.name,
            f"{now:,}",
            f"{self.total:,}",
            100 * now // self.total,
            pace,
            left,
            f"{failed:,}",
        )

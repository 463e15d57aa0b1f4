"""``metrics.csv``: one row per step that logged something; a resumed run goes on in the same file."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from vidvec_msg.runs import replacing


class MetricsFile(Logger):
    """Writes metrics as CSV. Lightning's own CSV logger deletes the earlier part of a resumed run.

    Args:
        path: the file. Rows of an existing one are kept up to the first step that is logged anew; its
            own row is added to.
        every: seconds between two writes, beside those with a checkpoint and at the end. The file is written
            as a whole, so that a write after each step would cost more and more.
    """

    def __init__(self, path: Path, every: float = 5.0) -> None:
        super().__init__()
        self.path = path
        self.every = every
        self.rows: dict[int, dict[str, str]] = {}
        self._unwritten = False
        self._written_at = -math.inf
        self._continues = path.is_file()

    @property
    def name(self) -> str:
        """Lightning asks for one."""
        return "metrics"

    @property
    def version(self) -> int:
        """Lightning asks for one."""
        return 0

    @property
    def root_dir(self) -> str:
        """The run folder."""
        return str(self.path.parent)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Adds metrics to a step's row."""
        number = 0 if step is None else step
        if self._continues:
            # what was measured at the step that is resumed stays, as it is not measured again
            self.rows = {row: cells for row, cells in _read(self.path).items() if row <= number}
            self._continues = False
        row = self.rows.setdefault(number, {})
        row.update({name: f"{float(value):.6g}" for name, value in metrics.items()})
        self._unwritten = True

    def table(self) -> dict[int, dict[str, float]]:
        """All rows so far: step → metric → value."""
        rows = _read(self.path) if self._continues else self.rows
        return {step: {name: float(cell) for name, cell in cells.items()} for step, cells in rows.items()}

    @rank_zero_only
    def save(self) -> None:
        """Writes if it is time; Lightning asks after every step."""
        if time.monotonic() - self._written_at >= self.every:
            self.flush()

    @rank_zero_only
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """A checkpoint and the rows up to it go together."""
        self.flush()

    def flush(self) -> None:
        """Writes the file in one step: a reader sees the old or the new one.

        Another thread may ask for it, when the process must end while its main thread logs.
        """
        if not self._unwritten:
            return
        # dict.copy() is one step for other threads; a loop over the rows themselves would not be
        rows = {step: row.copy() for step, row in self.rows.copy().items()}
        names = sorted({name for row in rows.values() for name in row} - {"epoch"})
        with replacing(self.path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, ["step", "epoch", *names], restval="")
            writer.writeheader()
            writer.writerows({"step": str(step), **row} for step, row in sorted(rows.items()))
        self._unwritten = False
        self._written_at = time.monotonic()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Writes what is left."""
        self.flush()


def _read(path: Path) -> dict[int, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {
        int(row["step"]): {name: cell for name, cell in row.items() if name != "step" and cell}
        for row in rows
    }

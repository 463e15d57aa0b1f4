"""An error on one rank ends the job on all of them, with that rank's message as the last one.

Left alone, the others wait in a collective that never ends, or complain of a lost connection, at length and
after the message that says why. Here the rank that fails leaves a word in the key-value store through which
the ranks found each other; a thread on every other rank reads it, falls silent and ends its process, whatever
collective holds its main thread. So it goes whoever started the ranks: Lightning, torchrun or Slurm.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

import torch.distributed as dist
from pytorch_lightning import Trainer
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # not in its stubs

from vidvec_msg.errors import RefusedRequest

FAILED = "vidvec-msg/failed"
"""Key of the store: "RANK CODE" of the rank that failed first, whose exit code the others take over."""

SILENT = "vidvec-msg/silent"
"""Key of the store: how many of the others print nothing any more."""

EVERY = 0.2  # seconds between two looks
PATIENCE = 10.0  # seconds for the others to fall silent, and for processes to end


@contextmanager
def ending_together(trainer: Trainer) -> Iterator[None]:
    """While it lasts, an exception on any rank ends the processes of all; nothing with a single rank.

    The exception goes on where it came first, and nowhere else. Ctrl-C is not told to the others: the
    terminal sends it to all.
    """
    if trainer.world_size == 1:
        yield
        return
    watch = _Watch(trainer)
    watch.start()
    try:
        yield
        trainer.strategy.barrier("end of the job")  # rank 0 may still write: its error must find the others
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        watch.tell(error)
        raise
    finally:
        watch.over.set()


class _Watch(threading.Thread):
    """Looks whether another rank has failed, beside a main thread that may be held in a collective."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(name="ending-together", daemon=True)
        self.rank, self.ranks = trainer.global_rank, trainer.world_size
        self.launcher = trainer.strategy.launcher
        self.loggers = trainer.loggers
        self.over = threading.Event()

    @property
    def children(self) -> list[subprocess.Popen[bytes]]:
        """Ranks that this process has started: Lightning's first one starts the others of its machine."""
        return self.launcher.procs if isinstance(self.launcher, _SubprocessScriptLauncher) else []

    def run(self) -> None:
        """Ends this process when another rank has failed, or is gone without a word."""
        store = None
        while not self.over.wait(EVERY):
            if code := self._failed_child():
                self._follow(code)
            try:
                store = store or _store()
                word = store.get(FAILED).decode() if store and store.check([FAILED]) else ""
            except dist.DistError:
                word = "" if store or self.over.is_set() else self._lost()
                store = None  # once more: it may have been the network
            if word and _rank(word) != self.rank:
                self._leave(_code(word), store)

    def tell(self, error: BaseException) -> None:
        """Ends the other ranks, so that what is printed next is the last word.

        It returns on the rank that failed first; the processes of the others end here.
        """
        # connections are lost a moment before a process has ended
        if self._until(lambda: self._failed_child() != 0, seconds=5 * EVERY if self.children else 0):
            self.join()
        store = _store()
        if store is not None:
            own = f"{self.rank} {2 if isinstance(error, RefusedRequest) else 1}"
            first = store.compare_set(FAILED, "", own).decode()
            if first != own:
                self._leave(_code(first), store)
            self._until(lambda: store.add(SILENT, 0) >= self.ranks - 1, seconds=PATIENCE)
        self.over.set()
        self._end_children()

    def _follow(self, code: int) -> NoReturn:
        """Ends this process after one that it has started; that one has said why, unless it was killed."""
        if code > 0:
            self._leave(code, None)
        with suppress(dist.DistError):  # it said nothing: other machines hear it from here
            if (store := _store()) is not None:
                store.compare_set(FAILED, "", f"{self.rank} 1")
        self._end_children()
        self._write_logs()
        killed = next(rank for rank, child in enumerate(self.children, start=1) if child.returncode == code)
        sys.stderr.write(
            f"vidvec-msg: local rank {killed} was killed ({signal.Signals(-code).name}; the system sends "
            "SIGKILL when memory runs out), and the job ended with it\n"
        )
        sys.stderr.flush()
        os._exit(1)

    def _lost(self) -> str:
        """Says that the store is gone: with rank 0, which was killed, or behind a network that fails."""
        sys.stderr.write(
            f"vidvec-msg: rank {self.rank} no longer reaches rank 0 at {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']} (killed, or the network failed), and ends\n"
        )
        sys.stderr.flush()
        return "0 1"

    def _leave(self, code: int, store: PrefixStore | None) -> NoReturn:
        """Ends this process without a word, once the rank that failed has said its own."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        self._write_logs()  # before the rank that failed goes on: torchrun ends the others when it is gone
        with suppress(dist.DistError):
            if store is not None:
                store.add(SILENT, 1)
        # connections stay open meanwhile, so that nobody complains of a lost one
        if self.children:
            self._until(lambda: all(child.poll() is not None for child in self.children), seconds=PATIENCE)
            self._end_children()
        else:
            time.sleep(5 * EVERY)
        os._exit(code)

    def _write_logs(self) -> None:
        """Has the loggers write what they hold. Lightning does so where an exception comes by, and none does
        on a rank that is held in a collective.

        Each in a thread of its own: one that waits for a network or finds the disk full holds up nobody.
        """
        writing = [
            threading.Thread(target=logger.finalize, args=("failed",), daemon=True) for logger in self.loggers
        ]
        for one in writing:
            one.start()
        self._until(lambda: not any(one.is_alive() for one in writing), seconds=PATIENCE / 2)

    def _failed_child(self) -> int:
        """Exit code of a rank of this machine that has ended badly, negative if it was killed; 0 if none."""
        return next((child.returncode for child in self.children if child.poll()), 0)

    def _end_children(self) -> None:
        for child in self.children:
            child.kill()  # nothing, where it has ended
        for child in self.children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)

    @staticmethod
    def _until(true: Callable[[], bool], *, seconds: float) -> bool:
        """Waits until something is true, and says whether it became so in time."""
        end = time.monotonic() + seconds
        while not (found := true()) and time.monotonic() < end:
            time.sleep(EVERY / 4)
        return found


def _rank(word: str) -> int:
    return int(word.split()[0])


def _code(word: str) -> int:
    return int(word.split()[1])


def _store() -> PrefixStore | None:
    """The store of the ranks, by a connection of one's own; None before they have found each other."""
    if not dist.is_initialized():
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=PATIENCE)
    store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=patience)
    # torchrun keeps the store when it starts failed ranks again: a word is of one attempt
    return PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)

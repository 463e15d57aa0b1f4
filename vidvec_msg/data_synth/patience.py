"""The retries and the shared cool-down of the embeddings endpoint, for requests that are coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from vidvec_msg.embedders.endpoint.retries import Busy, Mishap, Retrying

Answer = TypeVar("Answer")


class PatientRequests(Retrying):
    """Decides as :class:`Retrying` does; waiting leaves the loop to the other requests."""

    async def run_async(self, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """What ``send`` returns in the end.

        Args:
            send: sends the request once; raises Busy, Mishap, or whatever is final.

        Raises:
            GaveUp: the budget is used up, or the endpoint stayed busy for longer than ``patience``.
        """
        failed = 0
        while True:
            while (left := self.seconds_to_wait()) > 0:
                await asyncio.sleep(left)
            sent = time.monotonic()
            try:
                answer = await send()
            except Busy as busy:
                self.cool_down(busy, sent)
            except Mishap as mishap:
                failed += 1
                await asyncio.sleep(self.pause_after(mishap, failed))
            else:
                self.answered()
                return answer

"""The two calls of the YouTube Data API v3 that a search takes, kept so that none is paid for twice.

https://developers.google.com/youtube/v3/docs/search/list, …/videos/list. The key goes in a header, not into
the address, so that no address that is logged or kept holds it.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from vidvec_msg.data_synth.benchmark.providers.contract import Exhausted
from vidvec_msg.data_synth.benchmark.providers.quota import Quota
from vidvec_msg.data_synth.replies import ReplyStore, read_records
from vidvec_msg.embedders.endpoint.retries import Busy, GaveUp, Mishap, Retrying, retry_after
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.runs import digest_of

log = logging.getLogger(__name__)

BASE_URL = "https://www.googleapis.com/youtube/v3"
COSTS: Mapping[str, int] = {"search": 100, "videos": 1}
"""Units a call: https://developers.google.com/youtube/v3/determine_quota_cost"""

_USED_UP = ("quotaExceeded", "dailyLimitExceeded")
_TOO_FAST = ("rateLimitExceeded", "userRateLimitExceeded")
_SHOWN = 300  # characters of the service's words in a message


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection would carry the key to wherever it points."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(slots=True)
class YouTubeClient:
    """Calls, with retries, a quota and a memory.

    Args:
        folder: of the build's replies: ``youtube.jsonl`` and ``quota.jsonl``.
        key_env: environment variable that holds the key.
        base_url: of the service.
        quota: units a day; 0 sets no limit of our own.
        timeout: seconds one call may take.
        retrying: the patience with it.

    Raises:
        RefusedRequest: the environment variable holds no key, or the address is none.
    """

    folder: Path
    key_env: str
    base_url: str
    quota: int
    timeout: float
    retrying: Retrying
    calls: int = 0
    _key: str = field(init=False, repr=False)
    _known: dict[str, Any] | None = field(init=False, repr=False, default=None)
    _counter: Quota | None = field(init=False, repr=False, default=None)
    _store: ReplyStore | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._key = os.environ.get(self.key_env, "").strip()
        self.base_url = self.base_url.rstrip("/")
        if urlsplit(self.base_url).scheme not in ("http", "https") or not self.host:
            raise RefusedRequest(f"youtube_url is {self.base_url!r}; it must be an http(s) address")
        if not self._key:
            raise RefusedRequest(
                f"provider youtube needs a key and the environment variable {self.key_env} holds none: make "
                "one for the YouTube Data API v3 in the Google Cloud console. A key is never an option: "
                "options are written into files."
            )
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise RefusedRequest(f"the environment variable {self.key_env} holds characters that no key has")

    @property
    def host(self) -> str:
        """Name and, if the address has one, port."""
        return urlsplit(self.base_url).netloc

    def get(self, call: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """The answer to a call: the kept one, if the same was made before.

        Args:
            call: "search" or "videos".
            parameters: of the call, without the key.

        Raises:
            Exhausted: the quota is used up, ours or the service's.
            RefusedRequest: the key or a parameter is refused; or nothing ever answered at the address.
            JobFailed: the service does not answer any more.
        """
        known, counter, store = self._opened()
        key = digest_of([self.base_url, call, dict(parameters)])[:32]
        if key in known:
            found: dict[str, Any] = known[key]
            return found
        try:
            content = self.retrying.run(lambda: self._once(call, parameters, counter), threading.Event())
        except GaveUp as error:
            told = f"no answer from {self.base_url}: {error}"
            if not known:
                raise RefusedRequest(f"{told}. Is the address right, and the network there?") from None
            raise JobFailed(f"{told}. What was found is kept; the same command goes on.") from None
        store.keep({"key": key, "call": call, "parameters": dict(parameters), "answer": content})
        known[key] = content
        return content

    def close(self) -> None:
        """Closes the memory's file."""
        if self._store is not None:
            self._store.__exit__()
            self._store = None

    def _opened(self) -> tuple[dict[str, Any], Quota, ReplyStore]:
        if self._store is None or self._known is None or self._counter is None:
            self._store = ReplyStore(self.folder, "youtube").__enter__()
            self._known = {
                record["key"]: record["answer"]
                for record in read_records(self._store.path)
                if isinstance(record.get("answer"), dict)
            }
            self._counter = Quota(self.folder / "youtube_quota.jsonl", self.quota)
        return self._known, self._counter, self._store

    def _once(self, call: str, parameters: Mapping[str, str], counter: Quota) -> dict[str, Any]:
        counter.spend(COSTS[call], f"{call}.list")
        self.calls += 1
        request = urllib.request.Request(
            f"{self.base_url}/{call}?{urlencode(parameters)}",
            headers={"X-Goog-Api-Key": self._key, "Accept": "application/json"},
        )
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=self.timeout) as answer:
                raw = answer.read()
            content = json.loads(raw)
        except urllib.error.HTTPError as error:
            raise self._meaning(error) from None
        except TimeoutError:
            raise Mishap(f"no answer within {self.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise Mishap(self._clean(f"connection error: {error}")) from None
        except ValueError as error:
            raise Mishap(self._clean(f"an answer that cannot be read: {error}")) from None
        if not isinstance(content, dict) or not isinstance(content.get("items", []), list):
            raise Mishap(self._clean(f"an answer that is no list: {str(content)[:_SHOWN]}"))
        return content

    def _meaning(self, error: urllib.error.HTTPError) -> Exception:
        """What an error status stands for: https://developers.google.com/youtube/v3/docs/errors"""
        with error:
            try:
                raw = error.read()
            except (OSError, http.client.HTTPException):
                raw = b""
        words, reasons = _words_and_reasons(raw)
        words = self._clean(words or str(error.reason))
        if any(one in _USED_UP for one in reasons):
            return Exhausted(
                f"{self.host} says that the key's quota of today is used up: {words}. What was found is "
                "kept; the same command goes on after midnight Pacific time."
            )
        if error.code == 429 or any(one in _TOO_FAST for one in reasons):
            return Busy(words, retry_after(dict(error.headers.items())))
        if error.code >= 500 or error.code in (408, 425):
            return Mishap(f"HTTP {error.code}: {words}")
        if error.code in (400, 401, 403) and ("key" in words.casefold() or error.code != 400):
            return RefusedRequest(
                f"{self.host} refuses the key in {self.key_env} (HTTP {error.code}): {words}. Is the YouTube "
                "Data API v3 enabled for the key's project, and is the key free of restrictions that exclude "
                "this machine?"
            )
        return RefusedRequest(f"{self.host} refuses the call (HTTP {error.code}): {words}")

    def _clean(self, words: str) -> str:
        words = " ".join(words.replace(self._key, f"<{self.key_env}>").split())
        return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


def _words_and_reasons(raw: bytes) -> tuple[str, list[str]]:
    """The message of an error's body, and its reasons, in the form that the API has."""
    try:
        error = json.loads(raw)["error"]
        errors = error.get("errors") or []
        return str(error.get("message", "")), [str(one.get("reason")) for one in errors]
    except (ValueError, KeyError, TypeError, AttributeError):
        return raw[:_SHOWN].decode("utf-8", "replace"), []

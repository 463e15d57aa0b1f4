"""Address, key and model of an OpenAI-compatible endpoint, and what its error statuses mean.

What a request asks for is its owner's matter: vectors in :mod:`vidvec_msg.embedders.endpoint.client`, texts
in :mod:`vidvec_msg.data_synth.llm`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from vidvec_msg.embedders.endpoint.retries import Busy, Mishap, retry_after
from vidvec_msg.errors import RefusedRequest

log = logging.getLogger(__name__)

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_NO_KEY = "none-needed"  # the client insists on one; local servers do not look at it
_SHORTEST_SECRET = 8  # characters of a key
_SHOWN = 300  # characters of an endpoint's words in a message


# system, processor and Python, in seven headers: no endpoint needs them; they cost a request 25 µs
_TELLTALE = tuple(
    f"X-Stainless-{what}"
    for what in ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
)


class Unfit(Exception):
    """The endpoint does not take this input (400, 413, 422): too long, too many, or an option it lacks."""


@dataclass(slots=True)
class Connection:
    """An endpoint and a model there. The key is read from the environment and goes nowhere but into requests.

    Args:
        model: as the endpoint calls it.
        base_url: up to and without the last part of the path; None takes ``OPENAI_BASE_URL`` from the
            environment, and OpenAI's own without that.
        key_env: environment variable that holds the key.
        timeout: seconds one request may take.

    Raises:
        RefusedRequest: no http(s) address, one that holds a password, or no key where one is needed.
    """

    model: str
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    _key: str = field(init=False, repr=False, default="")

    service: ClassVar[str] = "embeddings"  # last part of the path, for messages

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ValueError("the model's name is empty; write openai:MODEL, as the endpoint calls it")
        self.base_url = _checked_url(self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL)
        self._key = os.environ.get(self.key_env, "").strip()
        if not self._key and self.base_url == DEFAULT_BASE_URL:
            raise RefusedRequest(
                f"{self.host} needs a key and the environment variable {self.key_env} holds none; set it, or "
                "give base_url= for an endpoint that needs none (a local server). A key is never an option: "
                "options are written into manifests."
            )
        if not self._key.isascii() or not self._key.isprintable():
            raise RefusedRequest(
                f"the environment variable {self.key_env} holds characters that no key has; was it "
                "pasted whole?"
            )
        if self._key and self.base_url.startswith("http://") and not _is_local(self.host):
            log.warning("the key in %s goes to %s unencrypted (http)", self.key_env, self.host)

    @property
    def host(self) -> str:
        """Name and, if the address has one, port."""
        return urlsplit(self.base_url or "").netloc

    def client_options(self) -> dict[str, Any]:
        """How the official client is made. Retries are ours: its own would count a 429 like a failure and let
        other workers go on. What it would tell of this machine is left out."""
        import openai

        return {
            "api_key": self._key or _NO_KEY,
            "base_url": self.base_url,
            "timeout": self.timeout,
            "max_retries": 0,
            "default_headers": dict.fromkeys(_TELLTALE, openai.Omit()),
        }

    def meaning(self, error: Any) -> Exception:
        """What an error of the client stands for.

        Args:
            error: an ``openai.APIError``, or the ValueError of a body that is no JSON. The exception that is
                returned should be raised ``from None``: the chain would carry the request, and with it the
                key, into a traceback.
        """
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._meaning_of_status(error)
        # the aiohttp transport calls a refused or cut connection a time-out of connecting
        if isinstance(error, openai.APITimeoutError) and "Timeout" in type(_root(error)).__name__:
            return Mishap(f"no answer within {self.timeout:g} s")
        if isinstance(error, openai.APIConnectionError):
            cause = f": {error.__cause__}" if error.__cause__ else ""
            return Mishap(self.clean(f"connection error{cause}"))
        return Mishap(self.clean(f"an answer that cannot be read: {error}"))  # cut off, or no JSON

    def _meaning_of_status(self, error: Any) -> Exception:
        status: int = error.status_code
        words = self.clean(_words(error))
        if status == 429 and error.code == "insufficient_quota":
            return RefusedRequest(f"{self.host}: the quota of this key is used up: {words}")
        if status == 429:
            return Busy(words, retry_after(error.response.headers))
        if status in (400, 413, 422):
            return Unfit(words)
        if status in (401, 403):
            whose = (
                f"the key in {self.key_env}"
                if self._key
                else f"a request without a key ({self.key_env} is empty)"
            )
            return RefusedRequest(
                f"{self.host} refuses {whose} for model {self.model!r} (HTTP {status}): {words}"
            )
        if status in (404, 405):
            return RefusedRequest(
                f"{self.host} knows no model {self.model!r}, or has no {self.service} at "
                f"{self.base_url}/{self.service} (HTTP {status}): {words}. base_url usually ends in /v1."
            )
        if status >= 500 or status in (408, 409, 425):
            return Mishap(f"HTTP {status}: {words}")
        return RefusedRequest(f"{self.host} refuses the request (HTTP {status}): {words}")

    def clean(self, words: str) -> str:
        """An endpoint's words in one line, without the key, should it repeat it."""
        if self._key:
            words = words.replace(self._key, f"<{self.key_env}>")
        words = " ".join(words.split())
        return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"

    def without_key(self, text: str) -> str:
        """A text in full, without the key: of answers that are kept.

        What local servers are given for a key ("none", "ollama", "x") is no secret, and may be a word of the
        answer.
        """
        secret = len(self._key) >= _SHORTEST_SECRET and not self._key.isalpha()
        return text.replace(self._key, f"<{self.key_env}>") if secret else text


def _words(error: Any) -> str:
    """The endpoint's own message, without the client's frame around it."""
    body = error.body
    message = (
        body.get("message") or body.get("error") or body.get("detail") if isinstance(body, dict) else body
    )
    if isinstance(message, Mapping):
        message = message.get("message")
    return str(message or error.response.text or error.message)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known:
        raise RefusedRequest(
            f"the endpoint's address (base_url, --endpoint) is {url!r}; it begins with http:// or https://, "
            f"as {DEFAULT_BASE_URL} or http://localhost:8000/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise RefusedRequest(
            f"base_url of {parts.hostname} holds a user name, a password or a query; it is written into "
            "cards and caches, so secrets belong into the environment (key_env=VARIABLE)"
        )
    return url.rstrip("/")


def _is_local(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    return name in ("localhost", "::1") or name.startswith("127.")

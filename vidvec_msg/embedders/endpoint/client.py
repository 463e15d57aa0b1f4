"""One request to an OpenAI-compatible embeddings endpoint, by the official client.

Here is what an answer means: vectors in the order of the texts, or one of four errors. Whether and when a
request is sent again is :mod:`vidvec_msg.embedders.endpoint.retries`' matter.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.embedders.endpoint.retries import Busy, Mishap, retry_after
from vidvec_msg.errors import RefusedRequest

log = logging.getLogger(__name__)

Encoding = Literal["base64", "float"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_NO_KEY = "none-needed"  # the client insists on one; local servers do not look at it
_SHOWN = 300  # characters of an endpoint's words in a message


class Unfit(Exception):
    """The endpoint does not take this input (400, 413, 422): too long, too many, or an option it lacks."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request.

    Args:
        vectors: (texts, dim) float32 as the endpoint gave them: not normalised, perhaps not finite.
        tokens: that the endpoint counted; 0 if it does not say.
    """

    vectors: Vectors
    tokens: int


@dataclass(slots=True)
class Endpoint:
    """An endpoint and a model there. The key is read from the environment and goes nowhere but into requests.

    Args:
        model: as the endpoint calls it.
        base_url: up to and without ``/embeddings``; None takes ``OPENAI_BASE_URL`` from the environment, and
            OpenAI's own without that.
        key_env: environment variable that holds the key.
        dimensions: asked of the endpoint; 0 does not ask.
        encoding_format: how vectors are asked for; either is understood in the answer.
        timeout: seconds one request may take.

    Raises:
        RefusedRequest: no http(s) address, one that holds a password, or no key where one is needed.
    """

    model: str
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    dimensions: int = 0
    encoding_format: Encoding = "base64"
    timeout: float = 60.0
    _key: str = field(init=False, repr=False, default="")
    _client: Any = field(init=False, repr=False, default=None)

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
        import openai

        # retries are ours: the client's own would count a 429 like a failure and let other workers go on
        self._client = openai.OpenAI(
            api_key=self._key or _NO_KEY, base_url=self.base_url, timeout=self.timeout, max_retries=0
        )

    @property
    def host(self) -> str:
        """Name and, if the address has one, port."""
        return urlsplit(self.base_url or "").netloc

    def ask(self, texts: Sequence[str], *, fields: Mapping[str, str] | None = None) -> Reply:
        """Sends one request and reads the answer.

        Args:
            texts: none empty.
            fields: further fields of the request.

        Raises:
            Busy: 429.
            Mishap: 5xx, a time-out, a cut connection, an answer that cannot be read; another try may help.
            Unfit: the input is refused, in the endpoint's words.
            RefusedRequest: key, model or address are wrong, or the quota is used up; no other request of
                this kind will do better.
        """
        import openai

        options: dict[str, Any] = {"dimensions": self.dimensions} if self.dimensions else {}
        try:
            answer = self._client.embeddings.create(
                input=list(texts),
                model=self.model,
                encoding_format=self.encoding_format,
                extra_body=dict(fields) if fields else None,
                **options,
            )
        except openai.APIStatusError as error:
            # the chain would carry the request, and with it the key, into a traceback
            raise self._meaning(error) from None
        except openai.APITimeoutError:
            raise Mishap(f"no answer within {self.timeout:g} s") from None
        except openai.APIConnectionError as error:
            cause = f": {error.__cause__}" if error.__cause__ else ""
            raise Mishap(self._clean(f"connection error{cause}")) from None
        except (openai.APIError, ValueError) as error:  # a body that is cut off, or no JSON
            raise Mishap(self._clean(f"an answer that cannot be read: {error}")) from None
        try:
            return read_answer(answer, len(texts))
        except Mishap as mishap:
            raise Mishap(self._clean(str(mishap))) from None

    def _meaning(self, error: Any) -> Exception:
        """What an error status stands for."""
        status: int = error.status_code
        words = self._clean(_words(error))
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
                f"{self.host} knows no model {self.model!r}, or has no embeddings at "
                f"{self.base_url}/embeddings (HTTP {status}): {words}. base_url usually ends in /v1."
            )
        if status >= 500 or status in (408, 409, 425):
            return Mishap(f"HTTP {status}: {words}")
        return RefusedRequest(f"{self.host} refuses the request (HTTP {status}): {words}")

    def _clean(self, words: str) -> str:
        """An endpoint's words in one line, without the key, should it repeat it."""
        if self._key:
            words = words.replace(self._key, f"<{self.key_env}>")
        words = " ".join(words.split())
        return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


def read_answer(answer: Any, count: int) -> Reply:
    """The vectors of an answer, in the order of the texts that were sent.

    Args:
        answer: what the client made of the body.
        count: texts that were sent.

    Raises:
        Mishap: not as many vectors as texts, indices that do not say whose they are, or no numbers.
    """
    data = getattr(answer, "data", None)
    if not isinstance(data, list):
        raise Mishap(f"an answer without embeddings: {answer}")
    if len(data) != count:
        raise Mishap(f"{len(data)} vectors for {count} texts")
    places = [getattr(entry, "index", None) for entry in data]
    if count > 1 and set(places) != set(range(count)):
        raise Mishap(
            f"the answer's {count} indices are not 0 to {count - 1} (but {_listed(places)}), so nobody knows "
            "which text each vector belongs to; batch_size=1 does without them"
        )
    rows = [_numbers(getattr(entry, "embedding", None)) for entry in data]
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise Mishap(
            f"vectors of {', '.join(map(str, sorted({len(row) for row in rows})))} dimensions in one answer"
        )
    vectors = np.empty((count, len(rows[0])), dtype=np.float32)
    vectors[np.array(places if count > 1 else [0])] = rows  # by index: the order of arrival means nothing
    usage = getattr(answer, "usage", None)
    tokens = getattr(usage, "total_tokens", None) or getattr(usage, "prompt_tokens", None)
    return Reply(vectors, int(tokens or 0))


def _numbers(embedding: object) -> Vectors:
    """A vector that came as a list of numbers, or as base64 of little-endian float32."""
    try:
        if isinstance(embedding, str):
            return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
        if isinstance(embedding, list):
            numbers = np.array(
                embedding, dtype=np.float32
            )  # null becomes NaN, and that is the item's failure
            if numbers.ndim != 1:
                raise ValueError(f"its numbers have the shape {numbers.shape}; are they of single tokens?")
            return numbers
    except (ValueError, TypeError, binascii.Error) as error:
        raise Mishap(f"a vector that is no list of numbers and no base64 of float32: {error}") from None
    raise Mishap(f"a vector that is a {type(embedding).__name__}, not a list of numbers")


def _words(error: Any) -> str:
    """The endpoint's own message, without the client's frame around it."""
    body = error.body
    message = (
        body.get("message") or body.get("error") or body.get("detail") if isinstance(body, dict) else body
    )
    if isinstance(message, Mapping):
        message = message.get("message")
    return str(message or error.response.text or error.message)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known:
        raise RefusedRequest(
            f"base_url is {url!r}; it is an address such as {DEFAULT_BASE_URL} or http://localhost:8000/v1"
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


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")

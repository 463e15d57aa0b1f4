"""One request to an OpenAI-compatible endpoint, by the official client: vectors, or one chat answer.

Here is what an answer means: vectors in the order of the texts, or one of four errors. Whether and when a
request is sent again is :mod:`vidvec_msg.embedders.endpoint.retries`' matter.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.embedders.endpoint.connection import Connection, Unfit
from vidvec_msg.embedders.endpoint.retries import Mishap

__all__ = ["ChatEndpoint", "Encoding", "Endpoint", "Reply", "Unfit", "read_answer"]

Encoding = Literal["base64", "float"]


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
class Endpoint(Connection):
    """An embeddings endpoint: where it is (:class:`Connection`), and how vectors are asked of it.

    Args:
        dimensions: asked of the endpoint; 0 does not ask.
        encoding_format: how vectors are asked for; either is understood in the answer.

    Raises:
        RefusedRequest: no http(s) address, one that holds a password, or no key where one is needed.
    """

    dimensions: int = 0
    encoding_format: Encoding = "base64"
    _client: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        Connection.__post_init__(self)  # a class with slots is made twice; super() would mean the first one
        import openai

        self._client = openai.OpenAI(**self.client_options())

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
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None
        try:
            return read_answer(answer, len(texts))
        except Mishap as mishap:
            raise Mishap(self.clean(str(mishap))) from None


@dataclass(slots=True)
class ChatEndpoint(Connection):
    """A chat endpoint whose model may see images: where it is (:class:`Connection`), and one answer of it.

    Raises:
        RefusedRequest: no http(s) address, one that holds a password, or no key where one is needed.
    """

    _client: Any = field(init=False, repr=False, default=None)

    service: ClassVar[str] = "chat/completions"

    def __post_init__(self) -> None:
        Connection.__post_init__(self)
        import openai

        self._client = openai.OpenAI(**self.client_options())

    def ask(self, content: Sequence[Mapping[str, Any]], *, options: Mapping[str, Any]) -> str:
        """Sends one user turn and returns the words of the answer.

        Args:
            content: parts of the turn: ``{"type": "text", …}``, ``{"type": "image_url", …}``.
            options: further fields of the request.

        Raises:
            Busy: 429.
            Mishap: 5xx, a time-out, a cut connection, an answer without words; another try may help.
            Unfit: the request is refused, in the endpoint's words.
            RefusedRequest: key, model or address are wrong, or the quota is used up.
        """
        answer = self._answer(content, options)
        try:
            words = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise Mishap(self.clean(f"an answer without a message: {answer}")) from None
        return self.without_key(str(words or ""))  # answers are kept

    def first_tokens(
        self, content: Sequence[Mapping[str, Any]], *, options: Mapping[str, Any]
    ) -> list[tuple[str, float]] | None:
        """Sends one user turn and returns the answer's likeliest first tokens and their log-probabilities.

        Args:
            content: as of :meth:`ask`.
            options: further fields of the request; ``logprobs`` and ``top_logprobs`` are asked for by them.

        Returns:
            the tokens; None if the answer has no logprobs.

        Raises:
            Busy, Mishap, Unfit, RefusedRequest: as :meth:`ask`.
        """
        answer = self._answer(content, options)
        try:
            choice = answer["choices"][0]
        except (KeyError, IndexError, TypeError):
            raise Mishap(self.clean(f"an answer without a choice: {answer}")) from None
        try:
            first = choice["logprobs"]["content"][0]
            listed = first.get("top_logprobs") or [first]
            return [(str(one["token"]), float(one["logprob"])) for one in listed]
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            return None

    def _answer(self, content: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Any:
        """The body of the answer to one user turn."""
        import openai

        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": [dict(part) for part in content]}],
            **options,
        }
        try:
            return self._client.post("/chat/completions", body=body, cast_to=object)
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None


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


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")

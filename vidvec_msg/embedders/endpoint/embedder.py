"""An embedder whose model is behind an embeddings endpoint: OpenAI's, vLLM, TEI, llama.cpp, Ollama, LiteLLM.

Texts are sent as they are, clips through what is said and written in them. What was answered is kept on disk,
so that a text is paid for once.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vidvec_msg.embedders.check import unit_vectors, warn_if_collapsed
from vidvec_msg.embedders.clip_text import clip_fields, words_of_clip
from vidvec_msg.embedders.contract import ROLES, EmbedderCard, Role, Vectors, check_role
from vidvec_msg.embedders.endpoint.batches import Call, EndpointBatches, Usage
from vidvec_msg.embedders.endpoint.client import Encoding, Endpoint
from vidvec_msg.embedders.endpoint.retries import Retrying
from vidvec_msg.embedders.endpoint.vector_cache import VectorCache, user_cache
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item

log = logging.getLogger(__name__)

_PROBE_RETRIES = 2  # a wrong address should not take half a minute to say so


class EndpointEmbedder:
    """A model behind an OpenAI-compatible embeddings endpoint.

    The key comes from the environment alone; it is never logged, written, or part of the card. Requests run
    side by side within one call of ``encode``: give it several times ``batch_size`` items.

    Args:
        model: as the endpoint calls it.
        base_url: address up to and without ``/embeddings``, for example http://localhost:8000/v1; None takes
            OPENAI_BASE_URL from the environment, and OpenAI's own without that.
        dimensions: asked of the endpoint (models that can shorten their vectors); 0 takes what it gives.
        query_prompt: words before a query, for example an instruction.
        document_prompt: words before a document.
        role_param: field of the request that tells the role, where an endpoint has one: ``input_type`` sends
            query or document, ``input_type:query,passage`` these two words.
        clip_text: what stands for a clip: transcript, ocr, text, title, joined by + in the order wanted;
            None reads no clips.
        batch_size: texts per request at most.
        batch_chars: characters per request at most, a longer text alone excepted.
        concurrency: requests at a time.
        timeout: seconds one request may take.
        retries: times a request is sent again after a 5xx, a time-out or a cut connection.
        backoff: seconds before the first of them; doubles.
        patience: seconds that the endpoint may answer nothing but 429 before the job gives up.
        encoding_format: how vectors are asked for: "base64" (a quarter of the bytes) or "float".
        key_env: environment variable that holds the key; may be empty for endpoints that need none.
        cache: folder for vectors that were paid for; "auto" is vidvec-msg/embeddings in the user's cache
            ($XDG_CACHE_HOME or ~/.cache), None keeps nothing.
        name: for tables; the model's name if not given.

    Raises:
        RefusedRequest: no key where one is needed, a wrong key, model or address, or an endpoint that does
            not take the options.
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        dimensions: int = 0,
        query_prompt: str = "",
        document_prompt: str = "",
        role_param: str = "",
        clip_text: str | None = "transcript+ocr",
        batch_size: int = 128,
        batch_chars: int = 200_000,
        concurrency: int = 4,
        timeout: float = 60.0,
        retries: int = 6,
        backoff: float = 0.5,
        patience: float = 900.0,
        encoding_format: Encoding = "base64",
        key_env: str = "OPENAI_API_KEY",
        cache: str | Path | None = "auto",
        name: str | None = None,
    ) -> None:
        _refuse_out_of_range(
            dimensions=(dimensions, 0), batch_size=(batch_size, 1), batch_chars=(batch_chars, 1),
            concurrency=(concurrency, 1), timeout=(timeout, 1e-3),
        )  # fmt: skip
        self._fields = clip_fields(clip_text)
        self._role_fields = _role_fields(role_param)
        self._prompts: dict[Role, str] = {"query": query_prompt, "document": document_prompt}
        self._endpoint = Endpoint(
            model,
            base_url=base_url,
            key_env=key_env,
            dimensions=dimensions,
            encoding_format=encoding_format,
            timeout=timeout,
        )
        retrying = Retrying(self._endpoint.host, retries=retries, backoff=backoff, patience=patience)
        self._batches = EndpointBatches(
            self._endpoint,
            retrying,
            batch_size=batch_size,
            batch_chars=batch_chars,
            concurrency=concurrency,
        )
        self._judged = False
        # without a cache: what a call got before it ended in an ItemError, for the call that follows
        self._kept: dict[bytes, Vectors] = {}
        what = {"base_url": self._endpoint.base_url, "model": model, "dimensions": dimensions}
        root = user_cache() / "embeddings" if cache == "auto" else cache
        self._cache = None if root is None else VectorCache(Path(root).expanduser(), what)
        self._dim = self._find_dim()
        reading = f", clips by {'+'.join(self._fields)}" if self._fields else ""
        self._card = EmbedderCard(
            name=name or model.rpartition("/")[2],
            dim=self._dim,
            modalities=("text", "video") if self._fields else ("text",),
            base_model=model,
            role_prompts={role: prompt for role, prompt in self._prompts.items() if prompt},
            # no weights to take a digest of: what decides the vectors is where they come from
            pooling=f"{self._endpoint.base_url}, dimensions {dimensions or 'as given'}{reading}"
            + (f", {role_param}" if role_param else ""),
        )
        place = f"{model} at {self._endpoint.host}"
        weakref.finalize(self, _log_usage, self._batches.usage, retrying, place)

    @property
    def card(self) -> EmbedderCard:
        """What decides the vectors; the model's name stands for weights that nobody here can see."""
        return self._card

    @property
    def usage(self) -> Usage:
        """Requests, texts and tokens so far; logged in one line when the embedder is no longer in use."""
        return self._batches.usage_so_far()

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items, float32 (items, dim).

        Raises:
            ItemError: items without words, before anything is asked; or texts that the endpoint refuses one
                by one, in its words; or vectors that are zero or not finite.
            JobFailed: the endpoint does not answer. What it has answered is kept.
            RefusedRequest: the endpoint refuses key, model or options.
        """
        check_role(role)
        texts = [self._prompts[role] + text for text in self._texts(items)]
        keys = [self._key(text, role) for text in texts]
        call = Call(dict(zip(keys, texts, strict=True)), self._role_fields[role], self._dim, keep=self._keep)
        self._fill_from_cache(call)
        self._batches.answer(call)
        if call.refused:
            raise ItemError(
                Failure(item.id, f"{self._endpoint.host} refuses its text: {call.refused[key]}")
                for item, key in zip(items, keys, strict=True)
                if key in call.refused
            )
        states = np.zeros((len(items), self._dim), dtype=np.float32)
        for row, key in enumerate(keys):
            states[row] = call.vectors[key]
        vectors = unit_vectors(states, items)
        self._kept = {}
        if not self._judged:
            self._judged = warn_if_collapsed(vectors, items, name=self.card.name)
        return vectors

    # --- what is known already ----------------------------------------------------------------------------

    def _key(self, text: str, role: Role) -> bytes:
        """Of the cache: model, address, dimensions, further fields, and the text with its prompt."""
        endpoint = self._endpoint
        shape = (endpoint.model, endpoint.base_url, endpoint.dimensions, self._role_fields[role])
        return hashlib.sha256(f"{shape}\0{text}".encode()).digest()

    def _fill_from_cache(self, call: Call) -> None:
        call.vectors.update({key: self._kept[key] for key in call.texts if key in self._kept})
        if self._cache is None:
            return
        found = self._cache.get(call.texts.keys() - call.vectors.keys())
        call.vectors.update(found)
        self._batches.usage.cached += len(found)

    def _keep(self, vectors: Mapping[bytes, Vectors]) -> None:
        """As soon as they are there: whatever happens next, they are not paid for again."""
        if self._cache is not None:
            self._cache.put(vectors)
        else:
            self._kept.update(vectors)

    def _find_dim(self) -> int:
        """As given, as the cache remembers, or as the endpoint says."""
        dim = self._endpoint.dimensions or (self._cache.dim if self._cache else None)
        if dim is None:
            reply = self._batches.probe(self._role_fields["document"], retries=_PROBE_RETRIES)
            dim = reply.vectors.shape[1]
        if self._cache is not None:
            self._cache.settle(dim)
        return dim

    # --- words --------------------------------------------------------------------------------------------

    def _texts(self, items: Sequence[Item]) -> list[str]:
        texts, failures = [], []
        for item in items:
            try:
                texts.append(self._text(item))
                texts[-1].encode()  # half a surrogate pair, which no request can carry, is said here
            except ValueError as error:
                failures.append(Failure(item.id, str(error)))
        if failures:
            raise ItemError(failures)
        return texts

    def _text(self, item: Item) -> str:
        if item.modality == "video" and self._fields:
            return words_of_clip(item, self._fields)
        if item.modality != "text":
            readable = ", ".join(self._card.modalities)
            raise ValueError(f"this embedder reads {readable}; the item is {item.modality}")
        if not item.full_text:
            raise ValueError("empty text")
        return item.full_text


def _refuse_out_of_range(**given: tuple[float, float]) -> None:
    wrong = [
        f"{name} is {value} and must be at least {least}"
        for name, (value, least) in given.items()
        if not value >= least
    ]
    if wrong:
        raise ValueError("; ".join(wrong))


def _role_fields(role_param: str) -> dict[Role, dict[str, str]]:
    """Further fields of a request, per role."""
    if not role_param:
        return {role: {} for role in ROLES}
    name, colon, words = role_param.partition(":")
    values = [word.strip() for word in words.split(",")] if colon else list(ROLES)
    if not name or len(values) != len(ROLES) or not all(values):
        raise ValueError(
            f"role_param is {role_param!r}; it is a field's name (input_type), or that with the words for "
            "queries and documents (input_type:query,passage)"
        )
    return {role: {name: value} for role, value in zip(ROLES, values, strict=True)}


def _log_usage(usage: Usage, retrying: Retrying, what: str) -> None:
    if not usage.requests and not usage.cached:
        return
    tokens = f", {usage.tokens:,} tokens" if usage.tokens else ""
    log.info(
        "%s: %d requests for %d texts%s, %d vectors from the cache; retries: %d, cool-downs: %d",
        what, usage.requests, usage.texts, tokens, usage.cached, retrying.mishaps, retrying.cool_downs,
    )  # fmt: skip

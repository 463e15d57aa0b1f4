"""A model behind an OpenAI-compatible endpoint judges: by the logprobs of its answer's first token."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vidvec_msg.embedders.chat import QUESTION_SLOT
from vidvec_msg.embedders.endpoint.client import ChatEndpoint, Unfit
from vidvec_msg.embedders.endpoint.clip_parts import clip_parts
from vidvec_msg.embedders.endpoint.retries import GaveUp, Retrying, Stopped, asking
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.retrieval.reranking.contract import Group, Judged, judged_group
from vidvec_msg.retrieval.reranking.wording import resolve_wording
from vidvec_msg.runs import digest_of

Outcome = tuple[float, float] | str

_KINDS: tuple[Modality, ...] = ("text", "image", "video")
_LEFT = 1e-9  # of the probability, where the listed tokens have all of it but for rounding


class EndpointReranker:
    """One chat request per pair: frames as JPEG data URIs, the question behind them, one token to be written.

    The endpoint must answer with ``logprobs``. Yes and no are looked for among the likeliest first tokens
    that it lists; a word that is not among them counts as likely as the last one there, or as what they
    leave if that is less, which is the most that it can be.

    Args:
        model: as the endpoint calls it.
        base_url: address up to and without ``/chat/completions``; None takes OPENAI_BASE_URL from the
            environment, and OpenAI's own without that.
        wording: "match", "respond", or a YAML file; as of ``mllm:``.
        yes: the word for yes; any spelling of it counts.
        no: the word for no.
        top_logprobs: first tokens that the endpoint lists; 20 is the most that OpenAI's does.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most; each is an image that is paid for.
        max_pixels: height x width of a frame at most; 0 sends them as they are.
        transcript: put what is said in the clip (its row's ``transcript``) before the frames.
        tokens_field: name of the field for the one token; newer models of OpenAI's want
            max_completion_tokens.
        concurrency: requests at a time.
        timeout: seconds one request may take.
        retries: times a request is sent again after a 5xx, a time-out or a cut connection.
        backoff: seconds before the first of them; doubles.
        patience: seconds that the endpoint may answer nothing but 429 before the job gives up.
        key_env: environment variable that holds the key; may be empty for endpoints that need none.
        decode_timeout: seconds one clip may take to decode.
        decode_workers: clips decoded side by side.
        name: for tables.

    Raises:
        ValueError: an option out of its range.
        RefusedRequest: no key where one is needed, or no address.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        wording: str = "match",
        yes: str = "Yes",
        no: str = "No",
        top_logprobs: int = 20,
        fps: float = 1.0,
        max_frames: int = 16,
        max_pixels: int = 230_400,
        transcript: bool = False,
        tokens_field: str = "max_tokens",
        concurrency: int = 4,
        timeout: float = 120.0,
        retries: int = 6,
        backoff: float = 0.5,
        patience: float = 900.0,
        key_env: str = "OPENAI_API_KEY",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        name: str | None = None,
    ) -> None:
        if concurrency < 1 or top_logprobs < 2:
            raise ValueError(
                f"concurrency must be at least 1 and top_logprobs at least 2, got {concurrency} and "
                f"{top_logprobs}"
            )
        if not yes.strip() or not no.strip() or _plain(yes) == _plain(no):
            raise ValueError(f"yes and no must be two different words, got {yes!r} and {no!r}")
        self._wording = resolve_wording(wording)
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        self._endpoint = ChatEndpoint(model, base_url=base_url, key_env=key_env, timeout=timeout)
        self._retrying = Retrying(self._endpoint.host, retries=retries, backoff=backoff, patience=patience)
        self._clips = ClipReader(policy, shared_pool(decode_workers, decode_timeout))
        self._yes, self._no = _plain(yes), _plain(no)
        self._transcript, self._concurrency = transcript, concurrency
        self._options: dict[str, Any] = {
            tokens_field: 1, "temperature": 0, "logprobs": True, "top_logprobs": top_logprobs,
        }  # fmt: skip
        self.name = name or f"{model.rpartition('/')[2]} (endpoint, yes/no)"
        # no weights to take a digest of: what decides the judgements is where they come from
        self.fingerprint = digest_of({
            "model": model, "base_url": self._endpoint.base_url, "fps": fps, "max_frames": max_frames,
            "max_pixels": max_pixels, "transcript": transcript, "options": self._options,
            "wording": [self._wording.around(kind) for kind in _KINDS], "yes": self._yes, "no": self._no,
        })[:16]  # fmt: skip

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """Kinds of clips that it is shown."""
        return _KINDS

    def judge(self, groups: Sequence[Group]) -> Iterator[Judged]:
        """See :class:`~vidvec_msg.retrieval.reranking.contract.Reranker`.

        Raises:
            JobFailed: the endpoint does not answer. What it has answered is kept, but for the present clips.
            RefusedRequest: it refuses key, model or address, or answers without logprobs.
        """
        self._clips.prepare([group.clip for group in groups if group.clip.modality == "video"])
        with asking(self._concurrency) as (workers, stop):
            try:
                for group in groups:
                    yield judged_group(group.clip.id, group.texts, self._of_group(group, workers, stop))
            except GaveUp as error:
                raise JobFailed(f"{error}. Judgements are kept; the same command goes on.") from None

    def _of_group(self, group: Group, workers: ThreadPoolExecutor, stop: threading.Event) -> list[Outcome]:
        try:
            clip = clip_parts(group.clip, self._clips)
        except ValueError as error:
            return [str(error)] * len(group.texts)
        asked: list[Future[Outcome]] = [
            workers.submit(self._outcome, self._content(group.clip, clip, text), stop) for text in group.texts
        ]
        return [future.result() for future in asked]

    def _content(self, item: Item, clip: list[dict[str, Any]], text: Item) -> list[dict[str, Any]]:
        before, after = (
            words.replace(QUESTION_SLOT, text.full_text) for words in self._wording.around(item.modality)
        )
        said = (item.transcript or "").strip() if self._transcript else ""
        opening = "\n".join(filter(None, (said, before)))
        return [
            part for part in (_words(opening), *clip, _words(after.strip("\n"))) if part.get("text") != ""
        ]

    def _outcome(self, content: list[dict[str, Any]], stop: threading.Event) -> Outcome:
        if stop.is_set():
            raise Stopped
        try:
            listed = self._retrying.run(
                lambda: self._endpoint.first_tokens(content, options=self._options), stop
            )
        except Unfit as error:
            return " ".join(str(error).split())
        if listed is None:
            raise RefusedRequest(
                f"the endpoint {self._endpoint.host} answers without logprobs, and a reranker reads nothing "
                "else. Use a server that gives them (vLLM, llama.cpp's server and OpenAI's do for chat "
                "completions with logprobs=true), or mllm: with the model here"
            )
        listed = [(token, value) for token, value in listed if math.isfinite(value)]
        yes, no = (_mass(listed, word) for word in (self._yes, self._no))
        if yes is None and no is None:
            shown = ", ".join(repr(token) for token, _ in listed[:5])
            return f"neither yes nor no is among the {len(listed)} likeliest first tokens ({shown}, …)"
        most = _most_unlisted(listed)
        return (most if yes is None else yes), (most if no is None else no)


def _plain(token: str) -> str:
    """A token without case, spaces and byte-level marks of a space."""
    return token.strip(" \t\n▁Ġ").casefold()


def _mass(listed: Sequence[tuple[str, float]], word: str) -> float | None:
    """Logarithm of the probability of a word's forms; None if none is listed."""
    mine = [value for token, value in listed if _plain(token) == word]
    if not mine:
        return None
    top = max(mine)  # servers write -9999 for what cannot be: its exp is 0
    return min(top + math.log(sum(math.exp(value - top) for value in mine)), 0.0)


def _most_unlisted(listed: Sequence[tuple[str, float]]) -> float:
    """Logarithm of the most that a token that is not listed can have: what the last listed one has, and what
    all of them leave."""
    left = 1 - sum(math.exp(value) for _, value in listed)
    return min(*(value for _, value in listed), math.log(max(left, _LEFT)))


def _words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}

"""A model behind an OpenAI-compatible endpoint answers; it sees the clip's frames as images."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import replace
from typing import Any

from vidvec_msg.embedders.endpoint.client import ChatEndpoint, Unfit
from vidvec_msg.embedders.endpoint.clip_parts import clip_parts
from vidvec_msg.embedders.endpoint.retries import GaveUp, Retrying, Stopped, asking
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.errors import Failure, JobFailed, RefusedRequest
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.retrieval.mcq.question import Answer, Question, wording
from vidvec_msg.retrieval.mcq.reading import option_meant
from vidvec_msg.runs import digest_of


class EndpointAnswerer:
    """One chat request per question: frames as JPEG data URIs, then the words; the answer is read strictly.

    The key comes from the environment alone. Pictures carry no file name or other hint at the clip.

    Args:
        model: as the endpoint calls it.
        base_url: address up to and without ``/chat/completions``; None takes OPENAI_BASE_URL from the
            environment, and OpenAI's own without that.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most; each is an image that is paid for.
        max_pixels: height x width of a frame at most; 0 sends them as they are.
        transcript: quote what is said in the clip (its row's ``transcript``).
        new_tokens: tokens that the model may write; thinking counts where the endpoint counts it.
        temperature: of sampling; None leaves the field out, for models that refuse it.
        tokens_field: name of the field for ``new_tokens``; newer models of OpenAI's want
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

    sees_letters = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        fps: float = 1.0,
        max_frames: int = 16,
        max_pixels: int = 230_400,
        transcript: bool = False,
        new_tokens: int = 16,
        temperature: float | None = 0.0,
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
        if new_tokens < 1 or concurrency < 1:
            raise ValueError(
                f"new_tokens and concurrency must be at least 1, got {new_tokens} and {concurrency}"
            )
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        self._endpoint = ChatEndpoint(model, base_url=base_url, key_env=key_env, timeout=timeout)
        self._retrying = Retrying(self._endpoint.host, retries=retries, backoff=backoff, patience=patience)
        self._clips = ClipReader(policy, shared_pool(decode_workers, decode_timeout))
        self._transcript, self._concurrency = transcript, concurrency
        self._options: dict[str, Any] = {tokens_field: new_tokens}
        if temperature is not None:
            self._options["temperature"] = temperature
        self.name = name or f"{model.rpartition('/')[2]} (endpoint)"
        # no weights to take a digest of: what decides the answers is where they come from
        self.fingerprint = digest_of({
            "model": model, "base_url": self._endpoint.base_url, "fps": fps, "max_frames": max_frames,
            "max_pixels": max_pixels, "transcript": transcript, "options": self._options,
        })[:16]  # fmt: skip

    def answers(
        self, questions: Sequence[Question], *, with_clip: bool, failures: list[Failure]
    ) -> Iterator[Answer]:
        """See :class:`~vidvec_msg.retrieval.mcq.answerer.Answerer`.

        Raises:
            JobFailed: the endpoint does not answer. What it has answered is kept.
            RefusedRequest: it refuses key, model or address.
        """
        if with_clip:
            self._clips.prepare([one.clip for one in questions])
        with asking(self._concurrency) as (workers, stop):
            futures: dict[Future[Answer], Question] = {
                workers.submit(self._answer, one, with_clip, stop): one for one in questions
            }
            for future in as_completed(futures):
                try:
                    yield future.result()
                except RefusedRequest:  # key, model or address: a ValueError too
                    raise
                except (ValueError, Unfit) as error:  # the clip cannot be used, or the endpoint refuses it
                    failures.append(Failure(futures[future].id, " ".join(str(error).split())))
                except GaveUp as error:
                    raise JobFailed(f"{error}. Answers are kept; the same command goes on.") from None

    def _answer(self, question: Question, with_clip: bool, stop: threading.Event) -> Answer:
        if stop.is_set():
            raise Stopped
        words = wording(question, with_clip=with_clip, transcript=self._transcript)
        clip = replace(question.clip, id=question.id)
        content = clip_parts(clip, self._clips) if with_clip else []
        content.append({"type": "text", "text": words})
        written = self._retrying.run(lambda: self._endpoint.ask(content, options=self._options), stop)
        return Answer(question.id, option_meant(written, question), raw=written)

"""What is asked of a chat model, and what comes back: plain records without any client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vidvec_msg.runs import digest_of

Structured = Literal["json_schema", "json_object", "none"]
"""How an endpoint is told the form of an answer, from the strictest to not at all."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The words of one request.

    Args:
        system: the standing instruction.
        user: the request itself.
        schema: JSON schema of the answer.
    """

    system: str
    user: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model draws its answer.

    Args:
        temperature: of the draw; 0 takes the likeliest token.
        top_p: share of the likeliest tokens that are drawn from; 1 is all.
        max_tokens: of the answer.
        seed: sent along, for endpoints that take one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 700
    seed: int = 0


def request_key(model: str, prompt: Prompt, sampling: Sampling) -> str:
    """32 hex digits of everything that decides an answer; the same request has the same key in every run.

    How the form of the answer is enforced does not count: an endpoint may offer it today and not tomorrow.
    """
    return digest_of(
        [
            model, prompt.system, prompt.user, prompt.schema,
            sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed,
        ]
    )[:32]  # fmt: skip


def request_body(
    model: str, prompt: Prompt, sampling: Sampling, *, structured: Structured, attempt: int = 0
) -> dict[str, Any]:
    """A request in the form of the chat completions protocol.

    Args:
        model: as the endpoint calls it.
        prompt: its words.
        sampling: how the answer is drawn.
        structured: how the form of the answer is told.
        attempt: 0 for the first; later ones send another seed, since the same request may get the same
            unusable answer.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ],
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed + 1_000_003 * attempt,
    }
    if sampling.top_p != 1:
        body["top_p"] = sampling.top_p
    if structured == "json_schema":
        schema = {"name": "answer", "schema": dict(prompt.schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as it came.

    Args:
        text: the model's words; empty if there are none.
        prompt_tokens: that the endpoint counted; 0 if it does not say.
        completion_tokens: of the answer.
        finish: why it ended: "stop", "length", "content_filter", …
        refusal: the endpoint's own field for a refusal.
        model: that answered, as the endpoint says.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = ""
    refusal: str = ""
    model: str = ""


def reply_of(content: Mapping[str, Any]) -> Reply:
    """The reply in a chat completion, as parsed JSON.

    Raises:
        ValueError: it is no chat completion.
    """
    choices = content.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise ValueError("an answer without choices")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise ValueError("an answer without a message")
    usage = content.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return Reply(
        text=_text(message.get("content")),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
        finish=str(choices[0].get("finish_reason") or ""),
        refusal=_text(message.get("refusal")),
        model=str(content.get("model") or ""),
    )


def _text(content: Any) -> str:
    """A message's content: a text, or the parts that some servers make of it."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


@dataclass(slots=True)
class Tally:
    """What was used, and what it cost.

    Args:
        answers: that came, usable or not.
        prompt_tokens: of their requests.
        completion_tokens: of the answers.
        dollars: by the price table; 0 where there is no price.
    """

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = field(default=0.0)

    def add(self, prompt_tokens: int, completion_tokens: int, dollars: float) -> None:
        """One more answer."""
        self.answers += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.dollars += dollars

"""From a spec to a reranker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from vidvec_msg.embedders.load import TINYWORLD_DEFAULTS, parse_options
from vidvec_msg.embedders.models import TINYWORLD
from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.reranking.contract import Reranker

# form → module, class, what stands behind the colon; imported when asked for: torch and openai take seconds
_FORMS = {
    "mllm": ("by_language_model", "LanguageModelReranker", "a checkpoint folder, a hub name, or tinyworld"),
    "st-cross": ("by_cross_encoder", "CrossEncoderReranker", "a sentence-transformers CrossEncoder"),
    "endpoint": (
        "by_endpoint",
        "EndpointReranker",
        "a model at a chat endpoint with logprobs; base_url=http://…",
    ),
}

ACCEPTED = (
    "; ".join(f"{form}:NAME ({what})" for form, (_, _, what) in _FORMS.items())
    + f"; {TINYWORLD}; options follow as ?key=value&key=value"
)


def check_reranker(spec: str) -> None:
    """Refuses what :func:`load_reranker` would refuse before it loads a model.

    Raises:
        RefusedRequest: another form, an unknown option, or a value of the wrong kind.
    """
    _parsed(spec)


def load_reranker(spec: str) -> Reranker:
    """Opens a reranker.

    Args:
        spec: ``mllm:MODEL``, ``tinyworld``, ``st-cross:FOLDER`` or ``endpoint:MODEL``; options follow as
            ``?key=value&key=value``.

    Raises:
        RefusedRequest: nothing of this name, an option that is not accepted, or no model to load.
    """
    make, name, options = _parsed(spec)
    try:
        made: Reranker = make(name, **options)
    except RefusedRequest:
        raise
    except ValueError as error:  # an option's value; the constructor says which and what it takes
        raise RefusedRequest(f"reranker {spec!r}: {error}") from error
    return made


def _parsed(spec: str) -> tuple[Callable[..., Any], str, dict[str, Any]]:
    given = f"mllm:{spec}" if spec.partition("?")[0] == TINYWORLD else spec
    form, colon, rest = given.partition(":")
    if not colon or form not in _FORMS or not rest:
        raise RefusedRequest(f"no reranker {spec!r}{did_you_mean(form, _FORMS)}; accepted: {ACCEPTED}")
    module, name, _ = _FORMS[form]
    make = getattr(import_module(f"vidvec_msg.retrieval.reranking.{module}"), name)
    model, options = parse_options(rest, make, what=f"reranker {form}:")
    if not model:
        raise RefusedRequest(f"reranker {spec!r} names no model; accepted: {ACCEPTED}")
    defaults = _tinyworld_defaults(options) if (form, model) == ("mllm", TINYWORLD) else {}
    return make, model, {**defaults, **options}


def _tinyworld_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Its frames, a word for yes that is one token, and the adapter that taught it to answer, if it is there,
    with the wording that was taught; ``adapter=none`` leaves that out."""
    defaults = {**TINYWORLD_DEFAULTS, "yes": "Y", "no": "No"}
    skill = Path(str(files("vidvec_msg"))) / "tinyworld" / "weights_yes_no"
    if "adapter" in options or not (skill / "adapter_config.json").is_file():
        return defaults
    return {**defaults, "adapter": str(skill), "wording": "respond"}

"""From a spec to whatever answers questions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from vidvec_msg.embedders.load import check_spec, load_embedder, parse_options
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.mcq.answerer import Answerer

# form → module, class, what stands behind the colon; imported when asked for: torch and openai take seconds
_FORMS = {
    "mllm": ("by_language_model", "LanguageModelAnswerer", "a checkpoint folder, a hub name, or tinyworld"),
    "endpoint": ("by_endpoint", "EndpointAnswerer", "a model at a chat endpoint; base_url=http://…"),
}

ACCEPTED = "; ".join(f"{form}:NAME ({what})" for form, (_, _, what) in _FORMS.items()) + (
    "; options follow as ?key=value&key=value"
)


def check_answerer(spec: str) -> None:
    """Refuses what :func:`load_answerer` would refuse before it loads a model.

    Raises:
        RefusedRequest: another form, an unknown option, or a value of the wrong kind.
    """
    _parsed(spec)


def load_answerer(spec: str) -> Answerer:
    """Opens an answerer.

    Args:
        spec: ``mllm:MODEL`` or ``endpoint:MODEL``; options follow as ``?key=value&key=value``.

    Raises:
        RefusedRequest: nothing of this name, an option that is not accepted, or no model to load.
    """
    make, name, options = _parsed(spec)
    try:
        made: Answerer = make(name, **options)
    except RefusedRequest:
        raise
    except ValueError as error:  # an option's value; the constructor says which and what it takes
        raise RefusedRequest(f"answerer {spec!r}: {error}") from error
    return made


def embedder_answerer(spec: str, folder: Path, *, batch_size: int) -> Answerer:
    """An embedder as an answerer, its vectors kept in a folder."""
    from vidvec_msg.retrieval.mcq.by_embedder import EmbedderAnswerer

    embedder = load_embedder(spec)
    return EmbedderAnswerer(embedder, folder / embedder.card.fingerprint, spec=spec, batch_size=batch_size)


def check_embedder(spec: str) -> None:
    """Refuses a spec that is no embedder; for an answerer's, says which option it belongs to."""
    if spec.partition(":")[0] == "endpoint":
        raise RefusedRequest(f"--embedder {spec}: a chat endpoint is an answerer: --answerer {spec}")
    check_spec(spec)


def _parsed(spec: str) -> tuple[Callable[..., Any], str, dict[str, Any]]:
    form, colon, rest = spec.partition(":")
    if not colon or form not in _FORMS or not rest:
        raise RefusedRequest(
            f"no answerer {spec!r}; accepted: {ACCEPTED}. An embedder is given as --embedder"
        )
    module, name, _ = _FORMS[form]
    make = getattr(import_module(f"vidvec_msg.retrieval.mcq.{module}"), name)
    model, options = parse_options(rest, make, what=f"answerer {form}:")
    if not model:
        raise RefusedRequest(f"answerer {spec!r} names no model; accepted: {ACCEPTED}")
    return make, model, options

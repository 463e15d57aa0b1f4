"""What both probes need before they begin: an embedder that can be read in many ways, and a folder of their
own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vidvec_msg.embedders.load import SHORT_FORMS, check_spec, load_embedder
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.runs import replacing, require_new

if TYPE_CHECKING:
    from vidvec_msg.embedders.multimodal_llm import MultimodalLLM

CONFIG = "config.yaml"
FORMAT = 1


def refuse_other_kinds(spec: str, verb: str) -> None:
    """Refuses a spec that is no multimodal LLM, as far as that is known before anything is loaded.

    Raises:
        RefusedRequest: it is another kind of embedder, or none.
    """
    form = spec.partition(":")[0]
    if form in SHORT_FORMS and form != "mllm" and ":" in spec:
        raise RefusedRequest(_other_kind(spec, f"{form}: {SHORT_FORMS[form][1]}", verb))
    check_spec(spec)


def opened(spec: str, verb: str) -> MultimodalLLM:
    """The embedder.

    Raises:
        RefusedRequest: it is no multimodal LLM.
    """
    from vidvec_msg.embedders.multimodal_llm import MultimodalLLM

    embedder = load_embedder(spec)
    if not isinstance(embedder, MultimodalLLM):
        raise RefusedRequest(_other_kind(spec, type(embedder).__name__, verb))
    return embedder


def refuse_other_probe(out: Path, settings: Mapping[str, Any], *, free: tuple[str, ...] = ()) -> None:
    """Refuses a folder that is neither new nor begun with the same options.

    Args:
        out: the folder.
        settings: all options.
        free: those that may change between two runs.

    Raises:
        RefusedRequest: naming every difference.
    """
    require_new(out, option="--out", resumable=CONFIG)
    path = out / CONFIG
    if not path.exists():
        return
    before = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    problems = Problems(f"--out {out} holds another probe; give a new folder, or the same options")
    for key, value in settings.items():
        if key not in (*free, "collection") and before.get(key) != value:
            problems.add(f"{key} was {before.get(key)!r} and is {value!r} now")
    problems.refuse_if_any()


def claim(out: Path, settings: Mapping[str, Any], report: str) -> None:
    """Marks the folder as this probe's, incomplete until the end."""
    (out / report).unlink(missing_ok=True)
    with replacing(out / CONFIG) as temporary:
        temporary.write_text(
            yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True), encoding="utf-8"
        )


def _other_kind(spec: str, kind: str, verb: str) -> str:
    return (
        f"embedder {spec!r} is of another kind ({kind}); {verb} reads multimodal LLMs from within: an "
        "embedder folder, mllm:NAME, or tinyworld"
    )

"""What both probes do before the first vector and after the last number."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidvec_msg.embedders.load import SHORT_FORMS, check_spec, load_embedder
from vidvec_msg.embedders.saved import refuse_foreign
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.retrieval.config_file import refuse_other
from vidvec_msg.retrieval.embed import allowed_failures, refuse_bad_request, refuse_missing_media
from vidvec_msg.retrieval.probing.halves import Halves

if TYPE_CHECKING:
    from vidvec_msg.embedders.multimodal_llm import MultimodalLLM

log = logging.getLogger(__name__)

FORMAT = 1
FREE = ("out", "json", "batch_size", "vectors", "max_failures")  # options that do not reach the numbers


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


def refuse_early(halves: Halves, out: Path, settings: Mapping[str, Any], free: tuple[str, ...]) -> None:
    """Refuses what can be refused before a model is loaded.

    Args:
        halves: whose items are embedded.
        out: the folder to make.
        settings: all options of the verb.
        free: those that may change between two runs.

    Raises:
        RefusedRequest: an option out of its range, media that are missing, or a folder of something else.
    """
    options = {key: settings[key] for key in ("batch_size", "max_failures")}
    for side in (halves.corpus, halves.queries):
        refuse_bad_request(side, shard_size=1, dtype=settings.get("dtype", "float32"), **options)
    refuse_missing_media([*halves.corpus, *halves.queries], settings["max_failures"])
    refuse_other(out, settings, what="probe", free=(*free, "collection"))
    refuse_foreign(out / "embedder")


def finish(
    out: Path, content: Mapping[str, Any], told: str, settings: Mapping[str, Any], *, failed: int, items: int
) -> None:
    """Tells what was found.

    Args:
        out: the folder, written.
        content: of its report.
        told: the Markdown.
        settings: all options of the verb.
        failed: items without a vector.
        items: of the collection.

    Raises:
        TooManyFailures: more failed than may.
    """
    sys.stdout.write(dumps(content, ensure_ascii=False, indent=2) + "\n" if settings["json"] else told)
    log.info("probe in %s: open %s; the embedder is %s", out, out / "probe.html", out / "embedder")
    if failed > allowed_failures(settings["max_failures"], items):
        raise TooManyFailures(
            f"{failed} of {items} items have no vector (max_failures); the probe in {out} was written "
            f"without them, the reasons are in {settings['vectors'] or out / 'vectors'}/*/failures.jsonl"
        )


def _other_kind(spec: str, kind: str, verb: str) -> str:
    return (
        f"embedder {spec!r} is of another kind ({kind}); {verb} reads multimodal LLMs from within: an "
        "embedder folder, mllm:NAME, or tinyworld"
    )

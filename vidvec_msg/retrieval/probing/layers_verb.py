"""The verb ``probe-layers``: one pass over a collection → the layer that retrieves best, as an embedder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from vidvec_msg.embedders.pooling import FINAL, Pooling
from vidvec_msg.embedders.read_outs import ReadOut, every_read_out
from vidvec_msg.embedders.saved import save_reading
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.config_file import claim
from vidvec_msg.retrieval.embed import StoredType
from vidvec_msg.retrieval.evaluation.directions import Pool
from vidvec_msg.retrieval.probing import account
from vidvec_msg.retrieval.probing.choice import range_of
from vidvec_msg.retrieval.probing.halves import Halves, read_halves
from vidvec_msg.retrieval.probing.layer_vectors import LayerVectors
from vidvec_msg.retrieval.probing.opening import (
    FORMAT,
    FREE,
    finish,
    opened,
    refuse_early,
    refuse_other_kinds,
)
from vidvec_msg.retrieval.probing.pictures import draw_curves, ranked
from vidvec_msg.retrieval.probing.trial import MOST_TIED, Outcome, Rule, compared
from vidvec_msg.runs import software_versions

log = logging.getLogger(__name__)

HOW_TO_READ = (
    "Layer 0 is the embedding output and layer n the output of block n, raw or behind the model's final "
    "norm; the final state is the last block's, normed. The curve is of the validation queries, which "
    "choose; the test is told once, for the chosen read-out and for the embedder's own. An interval is a 95% "
    "bootstrap over queries; p is of a paired randomisation test on the test queries. The two directions "
    "have different candidates and are never averaged."
)


def probe_layers(
    collection: Path,
    embedder: str,
    out: Path,
    *,
    test: str = "test",
    validation: str | None = None,
    validation_share: float = 0.5,
    keep_together: str | None = None,
    choose_by: str = "forward/map",
    metrics: list[str] | None = None,
    pool: Pool = "corpus",
    poolings: list[str] | None = None,
    dtype: StoredType = "float16",
    vectors: Path | None = None,
    batch_size: int = 0,
    max_failures: float = 0,
    seed: int = 0,
    json: bool = False,
) -> Path:
    """Finds the layer of a multimodal LLM that retrieves best, and writes it as an embedder.

    One pass over the collection reads every layer, raw and normed, pooled in several ways. Validation queries
    choose; the chosen one and the embedder's own are told on the test. An interrupted run goes on where it
    stopped.

    Args:
        collection: folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv (any BEIR folder is one).
        embedder: a multimodal LLM: an embedder folder, mllm:NAME, or tinyworld.
        out: the folder to make: probe.html, probe.json, probe.md, curve.png, embedder/.
        test: the split whose numbers are reported.
        validation: the split that chooses; it may share neither queries nor relevant items with the test.
            Without it, the split is halved by queries, so that the halves share neither.
        validation_share: of the queries that choose, where the split is halved.
        keep_together: a group of the queries (topic, story) that stays in one half.
        choose_by: direction and metric that choose: forward/map, reverse/mrr, forward/recall@10, ...
        metrics: further ones that are told; by default map, hit_rate@1, recall@10 and mrr.
        pool: candidates of the forward direction: the whole "corpus", or only the documents that the "split"
            names.
        poolings: "last", "mean", "visual" (the mean of visual tokens); by default all that differ here.
        dtype: how vectors are stored; float16 halves them and rounds in the fourth digit.
        vectors: folder for the vectors, to be used again with other options; by default OUT/vectors.
        batch_size: items per call of the model; 0: as many as 128 MB of states allow, 1,024 texts at most.
        max_failures: items that may fail: a count, or a share of all items if below 1.
        seed: of halves, resamples and sign patterns.
        json: print probe.json instead of the tables.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: the folder was written, with more failed items than allowed.
    """
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in locals().items()}

    # 1. everything that can be wrong, before a model is loaded
    refuse_other_kinds(embedder, "probe-layers")
    rule = Rule.of(choose_by, metrics)
    _refuse_other_poolings(poolings)
    halves = read_halves(
        collection, test=test, validation=validation, share=validation_share, keep_together=keep_together,
        pool=pool, seed=seed, what="the layer",
    )  # fmt: skip
    refuse_early(halves, out, settings, FREE)

    # 2. one pass
    loaded = opened(embedder, "probe-layers")
    read_outs = _read_outs(loaded, _chosen_poolings(poolings, loaded, halves))
    many = LayerVectors(
        loaded.variant(read_outs=read_outs),
        halves,
        vectors or out / "vectors",
        dtype=dtype,
        batch_size=batch_size,
        spec=embedder,
    )
    many.refuse_without_room()
    claim(out, settings, account.REPORT)
    log.info("%s; %d read-outs of %d blocks", halves.how, len(read_outs), loaded.backbone.blocks)
    many.make()

    # 3. numbers
    outcome = compared([str(one) for one in read_outs], many.of, halves, rule, seed=seed)
    best, blocks = read_outs[outcome.best], loaded.backbone.blocks

    # 4. the folder
    chosen = loaded.variant(read_outs=[best])
    name = f"{loaded.card.name}@{_tag(best)}"
    note = (
        f"`{loaded.card.name}` read at {best}, chosen by `vidvec-msg probe-layers` among {len(read_outs)} "
        f"read-outs on the validation queries of `{collection.name}` ({choose_by})."
    )
    card = save_reading(out / "embedder", embedder=chosen, name=name, note=note)
    content = {
        "format": FORMAT,
        **{key: value for key, value in settings.items() if key not in FREE},
        "model": {"name": loaded.card.name, "fingerprint": loaded.card.fingerprint, "blocks": blocks},
        "halves": halves.to_dict(),
        "chosen": {**_described(best), "fingerprint": card.fingerprint, "embedder": "embedder"},
        "layers": _layers(outcome, read_outs, blocks),
        **outcome.to_dict(),
        "read_outs": [
            {**_described(one), **outcome.candidate(number)} for number, one in enumerate(read_outs)
        ],
        "failed": many.failed,
        "versions": software_versions(),
    }  # fmt: skip
    told = _write(out, content, outcome, read_outs, blocks=blocks)
    items = len(halves.corpus) + len(halves.queries)
    finish(out, content, told, settings, failed=sum(many.failed.values()), items=items)
    return out


def _refuse_other_poolings(poolings: Sequence[str] | None) -> None:
    accepted = get_args(Pooling)
    strangers = [one for one in poolings or accepted if one not in accepted]
    if strangers or (poolings is not None and not poolings):
        raise RefusedRequest(f"poolings is {poolings!r}; accepted are one or more of {', '.join(accepted)}")


def _chosen_poolings(asked: Sequence[str] | None, loaded: Any, halves: Halves) -> list[Pooling]:
    """The ways to pool, the embedder's own first."""
    accepted: tuple[Pooling, ...] = get_args(Pooling)
    sees = "video" in loaded.card.modalities and any(
        item.modality in ("video", "image") for item in (*halves.corpus, *halves.queries)
    )
    if asked is not None and "visual" in asked and not sees:
        raise RefusedRequest(
            "poolings holds visual, and no item of this collection has frames that this model sees: it would "
            "be the mean; leave it out"
        )
    wanted = [one for one in accepted if (one in asked if asked is not None else one != "visual" or sees)]
    own = loaded.read_outs[0].pooling
    return [own, *(one for one in wanted if one != own)]


def _read_outs(loaded: Any, poolings: Sequence[Pooling]) -> tuple[ReadOut, ...]:
    """All places, the embedder's own first: the others are compared with the embedder as it was given."""
    own: ReadOut = loaded.read_outs[0]
    return own, *(one for one in every_read_out(loaded.backbone.tower, poolings) if one != own)


def _layers(outcome: Outcome, read_outs: Sequence[ReadOut], blocks: int) -> dict[str, Any]:
    """Between which layers the best one lies, over resamples of the validation queries."""
    places = np.asarray([blocks if one.layer == FINAL else one.layer for one in read_outs], dtype=float)
    low, high = range_of(places, outcome.choice.shares)
    return {"chosen": int(places[outcome.best]), "low": int(low), "high": int(high), "of": blocks}


def _described(one: ReadOut) -> dict[str, Any]:
    return {"name": str(one), "layer": one.layer, "pooling": one.pooling, "normed": one.normed}


def _tag(one: ReadOut) -> str:
    place = "final" if one.layer == FINAL else f"{one.layer}{'-normed' if one.normed else ''}"
    return f"{place}-{one.pooling}"


def _write(
    out: Path, content: dict[str, Any], outcome: Outcome, read_outs: Sequence[ReadOut], *, blocks: int
) -> str:
    """Writes what people read, and the report last; returns the Markdown."""
    layers = content["layers"]
    head = account.head_of(
        content,
        outcome,
        among=f"{len(read_outs)} read-outs of {blocks} blocks",
        sure=f"95% of resamples choose a layer from {layers['low']} to {layers['high']}; this very read-out "
        f"{outcome.choice.shares[outcome.best]:.0%}",
    )
    draw_curves(out / "curve.png", outcome, read_outs, blocks=blocks)
    headings = account.headings_of(outcome, "read-out, on validation")
    best, every = (account.cells_of(outcome, n) for n in (_leaders(outcome, read_outs), ranked(outcome)))
    return account.write(
        out,
        content,
        outcome,
        head,
        short={"best of each kind": (headings, best)},
        whole={"Every read-out, on validation": (headings, every)},
        picture="curve.png",
        how_to_read=HOW_TO_READ,
    )


def _leaders(outcome: Outcome, read_outs: Sequence[ReadOut]) -> list[int]:
    """The best of each pooling, raw and normed, the final layer, and the one of the embedder as given."""
    kinds: dict[tuple[str, bool], int] = {}
    for number in ranked(outcome):
        one = read_outs[number]
        if one.layer != FINAL and outcome.tied[outcome.rule.way][number] <= MOST_TIED:
            kinds.setdefault((one.pooling, one.normed), number)
    final = next(number for number, one in enumerate(read_outs) if one.layer == FINAL)
    return list(dict.fromkeys([*(n for n in ranked(outcome) if n in kinds.values()), final, 0]))

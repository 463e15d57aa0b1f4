"""Pairs for review, or judgements from reviews; the verb ``mine-relevance``."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.load import check_spec, load_embedder
from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.collections import Collection, Side
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, write_qrels
from vidvec_msg.retrieval.embed import SIDE_ROLES, allowed_failures, embed_items, note_max_failures
from vidvec_msg.retrieval.relevance_mining.agreement import Agreement, Rule, agreements, decided
from vidvec_msg.retrieval.relevance_mining.judgements import Added, follows, with_added
from vidvec_msg.retrieval.relevance_mining.page import review_page
from vidvec_msg.retrieval.relevance_mining.pairs import Pair, neighbours, with_duplicates
from vidvec_msg.retrieval.relevance_mining.review_files import (
    Decision,
    read_decisions,
    review_rows,
    write_review,
)
from vidvec_msg.runs import require_new, write_json, write_json_lines, write_text

log = logging.getLogger(__name__)

MANIFEST = "mining.json"  # of a review; written last
RESULT = "reviewed.json"  # of judgements; written last
_WORK = "vectors"


def mine_relevance(
    collection: Path,
    out: Path,
    *,
    embedder: str | None = None,
    reviewed: list[Path] | None = None,
    side: Side = "queries",
    split: str = "test",
    k: int = 10,
    threshold: float = 0.7,
    known: bool = False,
    rule: Rule = "all",
    pictures: bool = True,
    batch_size: int = 0,
    max_failures: float = 0,
    json: bool = False,
) -> Path:
    """Finds pairs that may mean the same, for people to judge; or makes qrels of what they judged.

    With --embedder: embeds one side, takes each item's k nearest above a cosine, and writes review.jsonl,
    review.csv and review.html (a page for the keyboard). With --reviewed: reads what people decided, tells
    how far they agree, and writes the judgements that follow. DrivelHub+ found its further positives so.

    Args:
        collection: folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.
        out: the folder to make.
        embedder: what makes the vectors: a folder, a YAML file, module:Class, or a short form (st:NAME).
        reviewed: review files with decisions, .jsonl or .csv, of one reviewer or several.
        side: whose items are compared: "queries" (narratives, messages) or "corpus" (clips, documents).
        split: which qrels/SPLIT.tsv the judgements extend.
        k: nearest items that are looked at for each.
        threshold: cosine that a pair must exceed.
        known: show pairs too from which no new judgement would follow.
        rule: with several reviewers, a pair counts if "all" who decided it accept it, the "majority", or
            "any".
        pictures: show frames of clips on the page.
        batch_size: items per call of the embedder; 0: 1024 texts, or 32 items of a side with media.
        max_failures: items that may fail: a count, or a share of all if below 1.
        json: print the account as JSON.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request, the collection or a reviewed file.
        TooManyFailures: the review was written, with more items without a vector than allowed.
    """
    _refuse_bad_request(embedder, reviewed, side, k, threshold, rule, max_failures)
    loaded = Collection.load(collection, split=split)
    items = loaded.queries if side == "queries" else loaded.corpus
    qrels = loaded.qrels[split]
    if reviewed:
        require_new(out, option="--out")
        account = _judge(out, reviewed, items, qrels, side, split, rule)
        told = _account_of_judgements(account)
        failures: Sequence[Failure] = ()
    else:
        require_new(out, option="--out", resumable=_WORK)
        options = {
            "collection": collection.resolve().name,
            "side": side,
            "split": split,
            "k": k,
            "threshold": threshold,
            "known": known,
        }
        account, failures = _mine(
            out, str(embedder), items, qrels, options, batch_size, loaded.corpus if pictures else ()
        )
        told = _account_of_review(account, out)
    sys.stdout.write(_dump(account) if json else told)
    _refuse_too_many(failures, allowed_failures(max_failures, len(items)), out)
    return out


def _dump(account: Mapping[str, Any]) -> str:
    return json.dumps(account, ensure_ascii=False, indent=2) + "\n"


# --- pairs for review -------------------------------------------------------------------------------------


def _mine(
    out: Path,
    spec: str,
    items: Sequence[Item],
    qrels: Qrels,
    options: Mapping[str, Any],
    batch_size: int,
    clips: Sequence[Item],
) -> tuple[dict[str, Any], Sequence[Failure]]:
    side: Side = options["side"]
    made = embed_items(
        items,
        load_embedder(spec),
        role=SIDE_ROLES[side],
        out=out / _WORK,
        batch_size=batch_size,
        max_failures=len(items),
        spec=spec,
    )
    vectors = np.asarray(made.matrix(), dtype=np.float32)  # (rows, dim)
    near = neighbours(list(made.ids), vectors, k=options["k"], threshold=options["threshold"])
    found = with_duplicates(near, items)
    new = [pair for pair in found if follows((pair.first, pair.second), qrels, side)]
    shown = found if options["known"] else new
    by_id = {item.id: item for item in items}
    rows = review_rows(shown, by_id)
    write_review(out, rows)
    page = review_page(options["collection"], rows, _pictures(shown, by_id, qrels, clips))
    write_text(out / "review.html", page)
    account = {
        "embedder": spec,
        "fingerprint": made.manifest["card"]["fingerprint"],
        **options,
        "items": len(items),
        "failed": len(made.failures),
        "pairs": len(shown),
        "kinds": dict(Counter(pair.kind for pair in shown)),
        "left_out_as_known": len(found) - len(new) if not options["known"] else 0,
    }
    write_json(out / MANIFEST, account)
    return account, list(made.failures)


def _pictures(
    pairs: Sequence[Pair], items: Mapping[str, Item], qrels: Qrels, clips: Sequence[Item]
) -> dict[str, str]:
    """Item id → picture of it, or of the first clip that is right for it."""
    from vidvec_msg.retrieval.reports.pictures import item_picture

    found = {}
    documents = {item.id: item for item in clips}
    for name in dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)) if clips else ():
        own = items[name]
        right = next((document for document, grade in qrels.get(name, {}).items() if grade > 0), "")
        shown = own if own.modality != "text" else documents.get(right)
        picture = None if shown is None or shown.modality == "text" else item_picture(shown)
        if picture is not None:
            found[name] = picture
    return found


def _account_of_review(account: Mapping[str, Any], out: Path) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in account["kinds"].items()) or "none"
    lines = [
        f"{account['pairs']:,} pairs to review ({kinds}) of {account['items']:,} {account['side']}: "
        f"cosine above {account['threshold']} among each one's {account['k']} nearest, and duplicates"
    ]
    if account["left_out_as_known"]:
        lines.append(
            f"{account['left_out_as_known']:,} pairs left out: no new judgement would follow from them"
        )
    lines.append(f"open {out / 'review.html'}, or fill in decision, reviewer and reviewed_at in review.csv")
    lines.append(
        f"then: vidvec-msg mine-relevance --collection … --side {account['side']} --reviewed FILE … --out …"
    )
    return "\n".join(lines) + "\n"


# --- judgements from reviews ------------------------------------------------------------------------------


def _judge(
    out: Path,
    files: Sequence[Path],
    items: Sequence[Item],
    qrels: Qrels,
    side: Side,
    split: str,
    rule: Rule,
) -> dict[str, Any]:
    decisions = read_decisions(files, (item.id for item in items))
    if not decisions:
        raise RefusedRequest("the reviewed files hold no decision; the column decision is accept or reject")
    accepted, disputed = decided(decisions, rule)
    added: list[Added] = []
    rows = []
    for ones in accepted:
        for new in follows(ones[0].pair, qrels, side):
            added.append(new)
            rows.append({**asdict(new), "reviews": [_who_and_when(one) for one in ones]})
    made = with_added(qrels, added)
    write_qrels(out / "qrels" / f"{split}.tsv", made)
    write_json_lines(out / "judgements.jsonl", rows)
    write_json_lines(out / "disputed.jsonl", [
        {"first": ones[0].first, "second": ones[0].second, "reviews": [_who_and_when(one) for one in ones]}
        for ones in disputed
    ])  # fmt: skip
    account = {
        "files": [path.name for path in files],
        "side": side,
        "split": split,
        "rule": rule,
        "decisions": dict(Counter(one.reviewer for one in decisions)),
        "pairs": len({one.pair for one in decisions}),
        "accepted": len(accepted),
        "disputed": len(disputed),
        "agreement": [asdict(one) for one in agreements(decisions)],
        "judgements_before": sum(map(len, qrels.values())),
        "judgements_added": sum(map(len, made.values())) - sum(map(len, qrels.values())),
    }
    write_json(out / RESULT, account)
    return account


def _who_and_when(one: Decision) -> dict[str, str]:
    decision = "accept" if one.accept else "reject"
    row = {"reviewer": one.reviewer, "reviewed_at": one.reviewed_at, "decision": decision}
    return row | ({"note": one.note} if one.note else {})


def _account_of_judgements(account: Mapping[str, Any]) -> str:
    people = ", ".join(f"{name} {count:,}" for name, count in account["decisions"].items())
    lines = [
        f"{account['pairs']:,} pairs decided ({people}); {account['accepted']:,} accepted by the rule "
        f"{account['rule']!r}, {account['disputed']:,} disputed"
    ]
    for entry in account["agreement"]:
        one = Agreement(**entry)
        if one.share is None:
            lines.append(f"{one.one} and {one.other} decided no pair in common")
        else:
            kappa = "not defined: both gave every pair the same" if one.kappa is None else f"{one.kappa:.2f}"
            alike = f"{100 * one.share:.1f}% of {one.pairs:,} common pairs alike"
            lines.append(f"{one.one} and {one.other}: {alike}, kappa {kappa}")
    lines.append(f"{account['judgements_added']:,} judgements added to {account['judgements_before']:,}")
    return "\n".join(lines) + "\n"


# --- refusals ---------------------------------------------------------------------------------------------


def _refuse_bad_request(
    embedder: str | None,
    reviewed: Sequence[Path] | None,
    side: str,
    k: int,
    threshold: float,
    rule: str,
    max_failures: float,
) -> None:
    problems = Problems("cannot mine relevance")
    if (embedder is None) == (not reviewed):
        problems.add("give --embedder SPEC, to find pairs, or --reviewed FILE …, to use what people decided")
    if embedder is not None:
        try:
            check_spec(embedder)
        except RefusedRequest as refusal:
            problems.add(str(refusal))
    if side not in SIDE_ROLES:
        problems.add(f"side is {side!r}; it is queries or corpus")
    if k < 1:
        problems.add(f"k is {k}; it must be at least 1")
    if not -1 <= threshold < 1:
        problems.add(f"threshold is {threshold}; a cosine lies between -1 and 1")
    if rule not in ("all", "majority", "any"):
        problems.add(f"rule is {rule!r}; it is all, majority or any")
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()


def _refuse_too_many(failures: Sequence[Failure], allowed: int, out: Path) -> None:
    if len(failures) > allowed:
        raise TooManyFailures(
            f"{len(failures)} items have no vector and {allowed} may (max_failures): "
            f"{first_failures(failures, len(failures))}. They were compared by their words alone; the review "
            f"is in {out}."
        )

"""``preview``: the first batch of a fit as the model will read it, without loading the model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import median

import torch
from jsonargparse import ArgumentError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.models import resolve_model
from vidvec_msg.embedders.prompts import PromptTemplate, resolve_prompt
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import PairBatch, texts_of
from vidvec_msg.train.losses import EncodedPairs
from vidvec_msg.train.losses.cells import Shared, directions
from vidvec_msg.train.options import check_options, explained, made, options_parser
from vidvec_msg.train.plan import BatchPlan
from vidvec_msg.train.strategies.asked_for import ranks_asked_for
from vidvec_msg.train.text_tower import ChatTexts


def main(argv: Sequence[str]) -> int:
    """Shows the first batch of rank 0: exact texts, lengths, what is cut, padding, who is whose negative.

    Args:
        argv: the words of the command line, the verb first; the options are those of ``fit``, and ``--show``.

    Raises:
        RefusedRequest: what ``fit`` would refuse about the model's options or the data, all at once.
    """
    parser = options_parser()
    parser.add_argument("--config", action="config", help="YAML of a fit")
    parser.add_argument("--show", type=int, default=1, help="pairs whose texts are shown in full")
    try:
        options = parser.parse_args(list(argv[1:]))
    except ArgumentError as error:
        raise RefusedRequest(explained(str(error), verb="preview")) from error
    problems = Problems("preview refused")
    if options.show < 0:
        problems.add(f"show is {options.show}; it must be at least 0 (pairs)")
    data = check_options(options, problems).data
    problems.refuse_if_any()
    if data is None:
        raise RuntimeError("the data cannot be read, and no problem was noted")

    model = options.model
    chat = Chat.open(
        resolve_model(model.model), revision=model.revision, trust_remote_code=model.trust_remote_code
    )
    prompt = resolve_prompt(model.prompt)
    texts = ChatTexts(chat, prompt, model.max_tokens)
    ranks = ranks_asked_for(options.trainer)
    plan = data.plan(ranks)
    loader = data.loader(texts, plan)
    rows = loader.share(plan.epoch(0)[0], epoch=0)
    batch = loader.collate(rows)
    pairs = [pair for _, pair in rows]
    shared: Shared = getattr(made(model.loss), "shared", "positives")

    console = Console(file=sys.stdout, width=100, highlight=False)
    for part in (
        _run(plan, len(data.training), len(data.validation), ranks),
        *_wording(chat, prompt, pairs[: options.show], model.max_tokens),
        _lengths(texts, pairs, model.max_tokens),
        *_cure(texts, data.training, batch),
        _passages(batch),
        _cells(batch, shared, ranks),
    ):
        console.print(part)
    return 0


def _run(plan: BatchPlan, training: int, validation: int, ranks: int) -> str:
    over = f" over {ranks} ranks" if ranks > 1 else ""
    return (
        f"{training:,} pairs train, {validation:,} validate: {len(plan)} steps an epoch of {plan.batch_size} "
        f"pairs{over}, {plan.used:,} pairs seen"
    )


def _wording(chat: Chat, prompt: PromptTemplate, pairs: Sequence[Pair], max_tokens: int) -> Iterator[str]:
    """Texts of some pairs, to the letter; control characters are spelled out."""
    for pair in pairs:
        yield f"\n[bold]pair {escape(pair.id or '')}[/bold]"
        given = [("anchor", pair.anchor), ("positive", pair.positive)]
        given += [(f"negative {number}", text) for number, text in enumerate(pair.negatives, 1)]
        for name, text in given:
            turn = chat.text_turn(prompt, text, max_tokens=max_tokens)
            cut = f", [red]{turn.cut} tokens of the text cut[/red]" if turn.cut else ""
            yield f"[dim]{name}, {turn.tokens} tokens{cut}[/dim]\n{escape(repr(turn.prompt))}"
    if pairs:
        yield f"\n[dim]at test time a clip is worded[/dim]\n{escape(repr(prompt.video))}\n"


def _lengths(texts: ChatTexts, pairs: Sequence[Pair], max_tokens: int) -> Table:
    table = Table(title="tokens per text, prompt included", title_justify="left")
    for name in ("role", "texts", "shortest", "median", "longest", f"cut at {max_tokens}"):
        table.add_column(name, justify="left" if name == "role" else "right")
    roles = {
        "anchor": {pair.anchor for pair in pairs},
        "positive": {pair.positive for pair in pairs},
        "negative": {text for pair in pairs for text in pair.negatives},
    }
    for role, distinct in roles.items():
        if distinct:
            read = [texts(text) for text in distinct]
            sizes = [len(tokens.ids) for tokens in read]
            cut = sum(tokens.cut > 0 for tokens in read)
            columns = (len(sizes), min(sizes), f"{median(sizes):g}", max(sizes), cut)
            table.add_row(role, *map(str, columns))
    return table


def _cure(texts: ChatTexts, training: Sequence[Pair], batch: PairBatch) -> Iterator[str]:
    """What to give, so that no text is cut; nothing if none of the batch is."""
    if batch.cut:
        needed = texts.needed(texts_of(training))
        yield f"the longest text of all training pairs needs --model.max_tokens {needed}"


def _passages(batch: PairBatch) -> str:
    shapes = [tuple(passage.input_ids.shape) for passage in batch.passages]
    padded = sum(rows * tokens for rows, tokens in shapes)
    listed = ", ".join(f"{rows} × {tokens}" for rows, tokens in shapes[:6])
    more = f", … {len(shapes) - 6} more" if len(shapes) > 6 else ""
    return (
        f"{len(batch.texts)} distinct texts in {len(shapes)} passages (texts × tokens): {listed}{more}; "
        f"{1 - batch.tokens / padded:.0%} of the tokens are padding"
    )


def _cells(batch: PairBatch, shared: Shared, ranks: int) -> str:
    """Who is whose negative: the cells of the loss, which need no vectors."""
    count, width = batch.negatives.shape
    blank = torch.zeros(count, 1)
    own = EncodedPairs(blank, blank, torch.zeros(count, width, 1), batch.keys)
    forward = directions(own, own, 0, shared=shared, symmetric=False)[0]
    negatives = forward.negative.sum(1).float().mean().item()
    others = (forward.masked.sum(1) > 0).sum().item()
    what = "further positives" if shared == "positives" else "masked"
    alone = " among this rank's pairs; those of the other ranks come on top" if ranks > 1 else ""
    return (
        f"{negatives:.1f} negatives per anchor{alone}; {int(forward.masked.sum())} cells share a text or a "
        f"group ({what}), {others} of {count} anchors have such"
    )

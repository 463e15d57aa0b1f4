"""What a synthesis would ask and cost, before it asks anything."""

from __future__ import annotations

from collections.abc import Sequence

from vidvec_msg.data_synth.prices import CHARS_PER_TOKEN
from vidvec_msg.data_synth.questions import Kind, Question

CHARS_PER_ENGLISH_TOKEN = 4.5  # what most tokenizers make of English
ANSWER_TOKENS = 170  # a message of 10 words and a storyline of 90, in JSON; reasoning models take more


def estimate(prompts: Sequence[Question], kind: Kind, count: int, *, batch: bool) -> str:
    """The prompts, and tokens and dollars of the whole run.

    Args:
        prompts: some, shown in full; the estimate goes by their mean length.
        kind: model, length of answers, price.
        count: requests of the run.
        batch: at the price of a batch.
    """
    lines = [f"--- system ---\n{prompts[0].prompt.system}\n"]
    lines += [f"--- {one.id} ---\n{one.prompt.user}\n" for one in prompts]
    characters = sum(len(one.prompt.system) + len(one.prompt.user) for one in prompts) / len(prompts)
    likely = characters / CHARS_PER_ENGLISH_TOKEN
    lines.append(
        f"{count:,} requests to {kind.model}: about {count * likely:,.0f} tokens of prompts and "
        f"{count * ANSWER_TOKENS:,} of answers (at most {count * characters / CHARS_PER_TOKEN:,.0f} and "
        f"{count * kind.sampling.max_tokens:,})"
    )
    if kind.price is None:
        lines.append("no price of this model: give --prices TABLE.yaml for an estimate of the cost")
    else:
        about = count * kind.price.of(likely, ANSWER_TOKENS, batch=batch)
        most = count * kind.price.most(round(characters), kind.sampling.max_tokens, batch=batch)
        lines.append(
            f"about ${about:,.2f}, at most ${most:,.2f} (before unusable answers that are asked again)"
        )
    lines.append("dry run: nothing was asked")
    return "\n".join(lines) + "\n"

"""Questions that begin alike: what they share is computed once, and its keys and values serve all of them.

A reranker asks one clip about many texts. The clip is hundreds or thousands of tokens, a text a few dozen; in
a causal model the states of the clip do not depend on what follows. So the clip runs once, and every question
goes on from its cache.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vidvec_msg.embedders.generative_model import GenerativeModel
from vidvec_msg.embedders.turns import Turn

_CPU_CACHED = 1 << 14  # tokens whose keys and values are held at once, copies counted
_GPU_CACHED = 1 << 16  # Qwen2.5-7B: 57 kB a token in bfloat16, 3.7 GB


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Questions, taken apart.

    Args:
        inputs: of the model, for what the questions share; a batch of 1.
        tokens: that they share.
        endings: token ids of each question behind that; none is empty.
    """

    inputs: dict[str, Any]
    tokens: int
    endings: tuple[tuple[int, ...], ...]


def split_prefix(
    model: GenerativeModel, turns: Sequence[Turn], visual_ids: Sequence[int]
) -> SharedPrefix | None:
    """What some questions share and how each goes on; None if they do not share their medium.

    The processor runs once, on the first question. Whether the others would be worded alike is not assumed:
    their token ids are compared, and the place from which they differ must lie behind the medium.

    Args:
        model: whose questions they are.
        turns: about one clip, as :meth:`~vidvec_msg.embedders.chat.Chat.question_turn` makes them.
        visual_ids: ids of placeholders for media.
    """
    shared = _common([turn.ids for turn in turns])
    if not shared:
        return None
    own = turns[0].ids[shared:]
    inputs = model.inputs(turns[:1])
    ids = inputs["input_ids"][0].tolist()  # (tokens,), placeholders expanded
    if any(set(turn.ids[shared:]) & set(visual_ids) for turn in turns) or tuple(ids[-len(own) :]) != own:
        return None
    tokens = len(ids) - len(own)
    if not tokens:
        return None
    return SharedPrefix(
        {key: _cut(value, len(ids), tokens) for key, value in inputs.items()},
        tokens,
        tuple(turn.ids[shared:] for turn in turns),
    )


def logits_behind(model: GenerativeModel, shared: SharedPrefix, *, batch_tokens: int) -> Tensor:
    """Logits at the answer's first position of each question, float32 (questions, vocabulary).

    Args:
        model: that answers.
        shared: the questions.
        batch_tokens: tokens of endings that run together at most, padding counted.

    Raises:
        FloatingPointError: logits that are not finite.
    """
    cached = _GPU_CACHED if model.device.type == "cuda" else _CPU_CACHED
    begun = _cache_of(model, shared)
    found: list[Tensor | None] = [None] * len(shared.endings)
    for rows in _chunks(shared, batch_tokens, cached):
        cache = copy.deepcopy(begun)
        cache.batch_repeat_interleave(len(rows))
        endings = [shared.endings[row] for row in rows]
        # No mask: the endings are filled up on the right, where a causal model does not look. Positions are
        # left to the model, which counts on from the cache (the Qwen-VL families from an offset of theirs).
        inputs = {"input_ids": _filled(endings, model), "past_key_values": cache, "use_cache": True}
        logits = model.last_logits(inputs, [len(ending) for ending in endings])
        for row, one in zip(rows, logits, strict=True):
            found[row] = one
    return torch.stack([one for one in found if one is not None])


def _cache_of(model: GenerativeModel, shared: SharedPrefix) -> Any:
    """Keys and values of the prefix; and the Qwen-VL families know how to count on behind it.

    Those keep the offset between a token's place and its position. They keep that of their last clip, also
    behind a prefix without one; and they take it from the highest position so far, which may be that of a
    clip's last frame, while the text behind a clip counts on from the clip's height or width.
    """
    offsets = [module for module in model.full.modules() if hasattr(module, "rope_deltas")]
    for module in offsets:
        module.rope_deltas = None
    positions: list[Tensor | None] = []

    def note(_module: Any, _arguments: Any, named: dict[str, Any]) -> None:
        positions.append(named.get("position_ids"))

    watching = model.full.get_decoder().register_forward_pre_hook(note, with_kwargs=True) if offsets else None
    try:
        with torch.inference_mode():
            options = {"logits_to_keep": 1} if model.keeps_logits else {}
            begun = model.full(**shared.inputs, **options, use_cache=True).past_key_values
    finally:
        if watching is not None:
            watching.remove()
    placed = positions[-1] if positions else None
    if placed is not None:
        last = placed[-3:, :, -1].max()  # (time, height, width; 1): all alike for text, which ends the prefix
        for module in offsets:
            if module.rope_deltas is not None:
                module.rope_deltas = torch.full_like(module.rope_deltas, int(last) + 1 - shared.tokens)
    return begun


def _common(rows: Sequence[Sequence[int]]) -> int:
    """Tokens with which all rows begin; at least one of each row is left."""
    most = min(len(row) for row in rows) - 1
    first = rows[0]
    return next((place for place in range(most) if any(row[place] != first[place] for row in rows)), most)


def _cut(value: Any, length: int, tokens: int) -> Any:
    """An input for the first tokens alone; what is not per token (pixels, grids) stays whole."""
    per_token = isinstance(value, Tensor) and value.ndim == 2 and value.shape == (1, length)
    return value[:, :tokens] if per_token else value


def _chunks(shared: SharedPrefix, batch_tokens: int, cached: int) -> Iterator[list[int]]:
    """Endings that run together, sorted by length."""
    order = sorted(range(len(shared.endings)), key=lambda row: len(shared.endings[row]))
    chunk: list[int] = []
    for row in order:
        longest, count = len(shared.endings[row]), len(chunk) + 1
        if chunk and (count * longest > batch_tokens or count * (shared.tokens + longest) > cached):
            yield chunk
            chunk = []
        chunk.append(row)
    yield chunk


def _filled(endings: Sequence[Sequence[int]], model: GenerativeModel) -> Tensor:
    longest = max(len(ending) for ending in endings)
    ids = torch.full((len(endings), longest), int(model.chat.tokenizer.pad_token_id or 0))  # (batch, tokens)
    for row, ending in enumerate(endings):
        ids[row, : len(ending)] = torch.tensor(ending)
    return ids.to(model.device)

"""A sentence-transformers CrossEncoder judges: it reads a text and a clip's words together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.backbone import quiet_progress
from vidvec_msg.embedders.clip_text import clip_fields, words_of_clip
from vidvec_msg.embedders.models import digest_of_loaded, short_name
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.retrieval.reranking.contract import Group, Judged, judged_group
from vidvec_msg.retrieval.reranking.stage import NOTHING
from vidvec_msg.runs import digest_of


class CrossEncoderReranker:
    """A classifier of pairs of texts; a clip is read by its words.

    Of a model with one output, that is the logit of "they belong together"; of one with two, the second is
    yes. Models with more outputs classify something else and are refused.

    Args:
        model: folder or hub name.
        revision: commit of a hub model.
        clip_text: fields that stand for a clip with frames or sound, joined by +: transcript, ocr, text,
            title. A clip that is a text is read as it is.
        max_tokens: tokens of text and clip together; a longer pair fails, for nothing is cut. 0 takes the
            model's own limit.
        batch_size: pairs that run together.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        trust_remote_code: run Python files that come with the model.
        name: for tables.

    Raises:
        ValueError: an option out of its range.
        RefusedRequest: the model cannot be loaded, or does not give one number for a pair.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        clip_text: str = "transcript",
        max_tokens: int = 0,
        batch_size: int = 32,
        device: str = "auto",
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        if batch_size < 1 or max_tokens < 0:
            raise ValueError(
                f"batch_size must be at least 1 and max_tokens not negative, got {batch_size} and "
                f"{max_tokens}"
            )
        self._fields = clip_fields(clip_text)
        self._model = _opened(model, revision, device, trust_remote_code)
        self._outputs = int(self._model.num_labels)
        if self._outputs not in (1, 2):
            raise RefusedRequest(
                f"CrossEncoder {model!r} gives {self._outputs} numbers for a pair; a reranker gives one, or "
                "two of which the second is yes"
            )
        self._batch_size = batch_size
        own = getattr(self._model, "max_length", None) or getattr(self._model, "max_seq_length", None)
        self._most = min(filter(None, (max_tokens, own)), default=None)
        self.name = name or f"{short_name(model)} (cross-encoder)"
        weights = digest_of_loaded(model, revision=revision)
        self.fingerprint = digest_of([weights, clip_text, self._most, "cross"])[:16]

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """Kinds of clips: it reads the words of all."""
        return ("text", "image", "video", "audio")

    def judge(self, groups: Sequence[Group]) -> Iterator[Judged]:
        """See :class:`~vidvec_msg.retrieval.reranking.contract.Reranker`."""
        for group in groups:
            yield judged_group(group.clip.id, group.texts, self._of_group(group))

    def _of_group(self, group: Group) -> list[tuple[float, float] | str]:
        try:
            words = self._words(group.clip)
        except ValueError as error:
            return [str(error)] * len(group.texts)
        pairs = [(text.full_text, words) for text in group.texts]
        reasons = [self._too_long(*pair) for pair in pairs]
        fits = [pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]
        found = iter(self._judged(fits) if fits else [])
        return [next(found) if reason is None else reason for reason in reasons]

    def _words(self, clip: Item) -> str:
        if clip.id == NOTHING:  # the blank clip of a prior: it says nothing, whatever it shows
            return ""
        return clip.full_text if clip.modality == "text" else words_of_clip(clip, self._fields)

    def _too_long(self, text: str, clip: str) -> str | None:
        if self._most is None:
            return None
        tokens = len(self._model.tokenizer(text, clip)["input_ids"])
        if tokens <= self._most:
            return None
        return f"text and clip take {tokens} tokens and the model reads {self._most}; nothing is cut"

    def _judged(self, pairs: list[tuple[str, str]]) -> list[tuple[float, float] | str]:
        import torch

        logits = self._model.predict(
            pairs,
            batch_size=self._batch_size,
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        table = np.asarray(logits, dtype=np.float64).reshape(len(pairs), self._outputs)  # (pairs, outputs)
        # yes less no; with one output, that itself
        z = table[:, 0] if self._outputs == 1 else table[:, 1] - table[:, 0]
        return [
            (-float(np.logaddexp(0, -one)), -float(np.logaddexp(0, one)))
            if np.isfinite(one)
            else "the model's output is not finite"
            for one in z
        ]


def _opened(model: str, revision: str | None, device: str, trust_remote_code: bool) -> Any:
    from sentence_transformers import CrossEncoder

    from vidvec_msg.embedders.backbone import choose_device

    path = Path(model).expanduser()
    if path.is_dir() and not (path / "config.json").is_file():
        raise RefusedRequest(f"{model} holds no config.json; a CrossEncoder's folder is what it saved")
    _refuse_other_head(path)
    try:
        with quiet_progress():
            return CrossEncoder(
                str(path) if path.is_dir() else model,
                revision=revision,
                device=str(choose_device(device)),
                trust_remote_code=trust_remote_code,
                model_kwargs={"use_safetensors": True},
            )
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise RefusedRequest(
            f"cannot load {model!r} as a CrossEncoder of sentence-transformers: {error}"
        ) from error


def _refuse_other_head(folder: Path) -> None:
    """Refuses a checkpoint without a classifier: it would be given one of random weights, and judge by it."""
    try:
        kinds = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
    except (OSError, ValueError):  # a hub name, or what the library will say better
        return
    if not (folder / "modules.json").is_file() and not str(kinds[0]).endswith("ForSequenceClassification"):
        raise RefusedRequest(
            f"{folder} is a {kinds[0] or 'model without a head'}, not a CrossEncoder: it has no classifier "
            "of pairs, and a new one would be random"
        )

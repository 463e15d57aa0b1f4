"""A multimodal LLM judges by its own yes/no head: the probability that its answer begins with Yes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

from vidvec_msg.embedders.batching import BatchLimits, tokens_at_once
from vidvec_msg.embedders.chat import Turn
from vidvec_msg.embedders.generative_model import GenerativeModel, Thinking
from vidvec_msg.embedders.hearing import Heard
from vidvec_msg.embedders.prefix_cache import SharedPrefix, logits_behind, split_prefix
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.embedders.visuals import heard_token_ids, visual_token_ids
from vidvec_msg.formats.items import Item, Modality, Pixels
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.media.video import Frames
from vidvec_msg.retrieval.reranking.contract import Group, Judged, judged_group
from vidvec_msg.retrieval.reranking.wording import resolve_wording
from vidvec_msg.retrieval.reranking.yes_no import Forms, YesNoTokens
from vidvec_msg.runs import digest_of

logger = logging.getLogger(__name__)

_PAIRS = 256  # of one batch at most
_FRAMES = 64  # of one batch at most, where every pair is computed on its own
# Largest difference of two logits, as a share of their spread, up to which the cache counts as equal to the
# plain loop: float32 rounds at 1e-6 of it, bfloat16 at a few percent, wrong positions change it by half
_SAME = {"torch.float32": 1e-3, "torch.float64": 1e-3}
_SAME_IN_HALF = 0.15

Outcome = tuple[float, float] | str
"""Logarithms of the probabilities of yes and no, or why there are none."""


class LanguageModelReranker:
    """P(Yes | text, clip) of any family behind ``AutoModelForImageTextToText``; a plain LLM reads storylines.

    A clip is computed once for all texts that it is asked about: its keys and values are kept while the texts
    go by. That this gives what the plain loop gives is tried out on the first clip; a family for which it
    does not is computed pair by pair, and the log says so.

    Args:
        model: ``tinyworld``, a checkpoint folder, or a hub name.
        wording: "match", "respond" (both VidVec's), or a YAML file.
        yes: the word for yes; with its lower-case form, and both with a space before them.
        no: the word for no.
        forms: "sum" adds the probabilities of a word's forms, "max" takes the likeliest.
        revision: commit of a hub model.
        adapter: folder of a LoRA adapter.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame at most; 0 leaves it to the model's processor.
        transcript: put what is said in the clip (its row's ``transcript``) before the frames.
        sound: let the model hear the clip, where the family does (Qwen2.5-Omni, Qwen3-Omni).
        max_tokens: words of a question with its text and transcript in tokens; a longer one fails, for
            nothing is cut.
        prefix_cache: compute a clip once for all of its texts; false computes every pair on its own.
        batch_tokens: tokens of texts that run together at most, padding counted; 0: 1,024 on a CPU, 8,192 on
            a GPU.
        thinking: what happens to a chat template that makes the model think first and has no switch against
            it: "close" its block of thoughts, empty, or "refuse" the model.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto" as for embedders.
        decode_timeout: seconds one clip may take to decode.
        decode_workers: clips decoded side by side.
        trust_remote_code: run Python files that come with the model.
        name: for tables.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model cannot be loaded, cannot answer, or cannot say yes and no apart.
    """

    def __init__(
        self,
        model: str,
        *,
        wording: str = "match",
        yes: str = "Yes",
        no: str = "No",
        forms: Forms = "sum",
        revision: str | None = None,
        adapter: str | None = None,
        fps: float = 1.0,
        max_frames: int = 64,
        max_pixels: int = 0,
        transcript: bool = False,
        sound: bool = False,
        max_tokens: int = 4096,
        prefix_cache: bool = True,
        batch_tokens: int = 0,
        thinking: Thinking = "close",
        device: str = "auto",
        dtype: str = "auto",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        if max_tokens < 1 or batch_tokens < 0:
            raise ValueError(
                f"max_tokens must be at least 1 and batch_tokens not negative, got {max_tokens} and "
                f"{batch_tokens}"
            )
        if thinking not in ("close", "refuse"):
            raise ValueError(f"thinking must be close or refuse, got {thinking!r}")
        self._wording = resolve_wording(wording)
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        self.model = GenerativeModel(
            model,
            revision=revision,
            adapter=adapter,
            max_pixels=max_pixels,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
        )
        pool = shared_pool(decode_workers, decode_timeout)
        self._clips = ClipReader(policy, pool)
        self._listener = self.model.listener(pool, sound=sound)
        self._tokens = YesNoTokens(self.model.chat.tokenizer, model=model, yes=yes, no=no, forms=forms)
        self._ending = self.model.answer_opening(thinking)
        self._transcript, self._max_tokens = transcript, max_tokens
        self._batch_tokens = batch_tokens or tokens_at_once(self.model.device)
        self._shares = prefix_cache
        self._tried: set[tuple[Modality, bool]] = set()
        config = self.model.full.config
        self._media_ids = [*visual_token_ids(config), *heard_token_ids(config)]
        self.name = name or f"{self.model.name} (yes/no)"
        self.fingerprint = digest_of({
            "weights": self.model.digest, "wording": [self._wording.around(kind) for kind in _KINDS],
            "yes": self._tokens.yes, "no": self._tokens.no, "forms": forms, "ending": self._ending,
            "template": self.model.chat.rendering.options, "transcript": transcript, "sound": sound,
            "fps": fps, "max_frames": max_frames, "max_pixels": max_pixels,
            "dtype": str(self.model.full.dtype),
        })[:16]  # fmt: skip

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """Kinds of clips that it reads."""
        return self.model.modalities if self._listener is None else (*self.model.modalities, "audio")

    def judge(self, groups: Sequence[Group]) -> Iterator[Judged]:
        """See :class:`~vidvec_msg.retrieval.reranking.contract.Reranker`. Clips are decoded ahead."""
        clips = [group.clip for group in groups]
        self._clips.prepare([clip for clip in clips if clip.modality == "video"])
        sounds = repeat(_nothing) if self._listener is None else self._listener.each(clips)
        for group, sound in zip(groups, sounds, strict=False):
            yield self._judged(group, sound)

    def _judged(self, group: Group, sound: Callable[[], Heard | None]) -> Judged:
        try:
            clip = self._content(group.clip)
            heard = sound()
        except ValueError as error:  # a broken medium fails every pair of the clip
            return judged_group(group.clip.id, group.texts, [str(error)] * len(group.texts))
        turns: list[Turn] = []
        found: list[Outcome | None] = []
        for text in group.texts:
            try:
                turns.append(self._turn(group.clip, clip, heard, text))
                found.append(None)
            except ValueError as error:
                found.append(str(error))
        outcomes = iter(self._outcomes(turns) if turns else [])
        every = [next(outcomes) if one is None else one for one in found]
        return judged_group(group.clip.id, group.texts, every)

    def _content(self, clip: Item) -> Frames | Pixels | str | None:
        if clip.modality == "video":
            return self._clips.clip_of(clip)
        if clip.modality == "image":
            return self._clips.image_of(clip)
        return clip.full_text if clip.modality == "text" else None

    def _turn(self, item: Item, clip: Frames | Pixels | str | None, heard: Heard | None, text: Item) -> Turn:
        return self.model.chat.question_turn(
            self._wording.around(item.modality),
            clip,
            text.full_text,
            transcript=(item.transcript or "") if self._transcript else "",
            ending=self._ending,
            max_tokens=self._max_tokens,
            heard=heard,
        )

    # --- the model ------------------------------------------------------------------------------------------

    def _outcomes(self, turns: list[Turn]) -> list[Outcome]:
        """Of the texts of one clip."""
        shared = split_prefix(self.model, turns, self._media_ids) if self._shares and len(turns) > 1 else None
        if shared is None:
            return self._plainly(turns)
        fits = [self._fits(shared.tokens + len(ending)) for ending in shared.endings]
        rows = [row for row, reason in enumerate(fits) if reason is None]
        shared = SharedPrefix(shared.inputs, shared.tokens, tuple(shared.endings[row] for row in rows))
        outcomes: list[Outcome] = [reason or "" for reason in fits]
        if not rows:
            return outcomes
        try:
            if not self._trusts(shared, [turns[row] for row in rows]):
                return self._plainly(turns)
            logits = logits_behind(self.model, shared, batch_tokens=self._batch_tokens)
        except FloatingPointError:  # of one text perhaps, and the others have an answer
            return self._plainly(turns)
        for row, found in zip(rows, self._tokens.log_probabilities(logits), strict=True):
            outcomes[row] = found
        return outcomes

    def _plainly(self, turns: list[Turn]) -> list[Outcome]:
        """Every pair on its own, clip and all."""
        outcomes: list[Outcome] = [""] * len(turns)
        limits = BatchLimits(_PAIRS, self._batch_tokens, _FRAMES)
        for batch in limits.batches(turns, self.model.chat.go_together):
            for row, outcome in zip(batch, self._of_batch([turns[row] for row in batch]), strict=True):
                outcomes[row] = outcome
        return outcomes

    def _of_batch(self, turns: list[Turn]) -> list[Outcome]:
        inputs = self.model.inputs(turns)
        lengths = [int(length) for length in inputs["attention_mask"].sum(dim=1)]
        reasons = [self._fits(length) for length in lengths]
        if any(reasons):  # they must not fill up the others
            good = [turn for turn, reason in zip(turns, reasons, strict=True) if reason is None]
            found = iter(self._of_batch(good) if good else [])
            return [next(found) if reason is None else reason for reason in reasons]
        try:
            logits = self.model.last_logits({**inputs, "use_cache": False}, lengths)
        except FloatingPointError as error:
            if len(turns) > 1:
                return [outcome for turn in turns for outcome in self._of_batch([turn])]
            return [str(error)]
        return list(self._tokens.log_probabilities(logits))

    def _fits(self, tokens: int) -> str | None:
        """None, or why the model cannot be asked so much."""
        most = self.model.context
        if most is None or tokens <= most:
            return None
        return (
            f"clip and question take {tokens} tokens and the model has positions for {most}; nothing is cut"
        )

    def _trusts(self, shared: SharedPrefix, turns: list[Turn]) -> bool:
        """Whether going on from the cache gives what the plain loop gives; tried out once per kind of clip,
        and once more behind a sliding window, on two texts."""
        window = getattr(self.model.full.config.get_text_config(), "sliding_window", None)
        case = (turns[0].kind, bool(window and shared.tokens >= window))
        if case in self._tried:
            return True
        two = turns[:2]
        try:
            part = SharedPrefix(shared.inputs, shared.tokens, shared.endings[:2])
            cached = logits_behind(self.model, part, batch_tokens=self._batch_tokens)
        except (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
            return self._distrust(f"{type(error).__name__}: {error}")
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise
            return self._distrust(str(error))
        for turn, found in zip(two, cached, strict=True):
            inputs = self.model.inputs([turn])
            plain = self.model.last_logits({**inputs, "use_cache": False}, [inputs["input_ids"].shape[1]])[0]
            apart = float((plain - found).abs().max() / plain.std().clamp_min(1e-6))
            if apart > _SAME.get(str(self.model.full.dtype), _SAME_IN_HALF):
                return self._distrust(f"logits differ by {apart:.2g} of their spread")
        self._tried.add(case)
        return True

    def _distrust(self, reason: str) -> bool:
        self._shares = False
        logger.warning(
            "%s: a clip's cache cannot serve its next text (%s); every pair is computed on its own",
            self.name,
            reason.splitlines()[0] if reason else "no reason given",
        )
        return False


_KINDS: tuple[Modality, ...] = ("video", "text", "image", "audio")


def _nothing() -> None:
    return None

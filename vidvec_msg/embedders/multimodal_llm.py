"""A generative multimodal LLM as an embedder: one prompt, one forward pass, one state."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock

import numpy as np
from torch import Tensor

from vidvec_msg.embedders.adapter import put_adapter_on
from vidvec_msg.embedders.backbone import check_options, choose_device, load_backbone
from vidvec_msg.embedders.batching import BatchLimits, tokens_at_once
from vidvec_msg.embedders.chat import Chat, Placement, Side, Turn, check_placement
from vidvec_msg.embedders.check import warn_if_collapsed
from vidvec_msg.embedders.contract import ROLES, EmbedderCard, Inspection, Role, Vectors, check_role
from vidvec_msg.embedders.forward import Forward
from vidvec_msg.embedders.hearing import Listener
from vidvec_msg.embedders.inspection import Tally, inspect_turn
from vidvec_msg.embedders.kept_states import KeptStates
from vidvec_msg.embedders.models import digest_of_loaded, resolve_model, short_name
from vidvec_msg.embedders.pooling import FINAL, Pooling
from vidvec_msg.embedders.prompts import PromptTemplate, resolve_prompt, worded_for
from vidvec_msg.embedders.read_outs import ReadOut, StateReader, recorded
from vidvec_msg.embedders.reading import ClipReader, ItemReader
from vidvec_msg.embedders.visuals import heard_token_ids, visual_token_ids
from vidvec_msg.errors import Failure
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.runs import software_versions

logger = logging.getLogger(__name__)


class MultimodalLLM:
    """Vectors from a multimodal LLM's hidden states; an adapter trained on text alone serves its clips too.

    A clip is its frames, and its transcript if asked for; ``text``, ``title`` and ``ocr`` beside a medium are
    not read. Works for every family behind ``AutoModelForImageTextToText``; a plain language model embeds
    text.

    Args:
        model: ``tinyworld``, a checkpoint folder, or a hub name.
        revision: commit of a hub model.
        adapter: folder of a LoRA adapter, of this project or any PEFT one.
        prompt: preset name, or a template.
        layer: state that is read: -1 the normed final one, 0 the embedding output, n the raw output of block
            n.
        pooling: "last" (the generation prompt's last token), "mean" (of all that is no padding), or "visual"
            (the mean of what frames and images became; of an item without any, as a text, "mean").
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame or image at most; 0 leaves it to the model's processor.
        transcript: a clip's transcript "before" its frames (VidVec-Msg), "after" them, or "none".
        sound: a clip's own sound too, where the family hears (Qwen2.5-Omni, Qwen3-Omni). Clips without a
            sound are embedded from their frames alone, and counted.
        max_tokens: words of one item in tokens, prompt included, frames not; longer content is cut.
        truncate_dim: keep this many dimensions, the first ones, and norm them again (an adapter trained with
            the Matryoshka loss puts most into them); 0 keeps all.
        batch_size: items that run together at most.
        batch_tokens: tokens of texts that run together at most, padding counted; 0: 1,024 on a CPU, 8,192 on
            a GPU. A longer text runs alone.
        batch_frames: frames, images and sounds that run together at most; a longer clip runs alone.
        padding: side on which a batch is filled up; it must not matter.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto": bfloat16 where the device computes it fast (a GPU
            since Ampere, a CPU with AMX or AVX512-BF16), float32 elsewhere.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        decode_workers: clips decoded side by side.
        trust_remote_code: run Python files that come with the model.
        name: for tables; made from the model's and adapter's names if not given.
        normed: the model's final norm is applied to the state of ``layer``; the final state always is.
        role_prompts: system turn of a role ("query", "document") in the place of the prompt's instruction;
            an embedder folder or a YAML file can hold it, a spec cannot.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model or the adapter cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        adapter: str | Path | None = None,
        prompt: str | PromptTemplate = "vidvec",
        layer: int = FINAL,
        pooling: Pooling = "last",
        fps: float = 1.0,
        max_frames: int = 64,
        max_pixels: int = 0,
        transcript: Placement = "none",
        sound: bool = False,
        max_tokens: int = 1024,
        truncate_dim: int = 0,
        batch_size: int = 256,
        batch_tokens: int = 0,
        batch_frames: int = 64,
        padding: Side = "right",
        device: str = "auto",
        dtype: str = "auto",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        trust_remote_code: bool = False,
        name: str | None = None,
        normed: bool = False,
        role_prompts: Mapping[str, str] | None = None,
    ) -> None:
        check_placement(transcript)
        check_options(dtype, max_tokens=max_tokens, batch_size=batch_size, batch_frames=batch_frames)
        if batch_tokens < 0:
            raise ValueError(
                f"batch_tokens must be at least 1, or 0 for the device's own, got {batch_tokens}"
            )
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        template = resolve_prompt(prompt)
        self.device = choose_device(device)
        clips = ClipReader(policy, shared_pool(decode_workers, decode_timeout))
        source = resolve_model(str(model))
        self.chat = Chat.open(
            source,
            revision=revision,
            trust_remote_code=trust_remote_code,
            padding=padding,
            max_pixels=max_pixels,
        )
        listener = Listener.of_model(self.chat.processor, clips.pool, to_clips=sound)
        self.backbone = load_backbone(
            source, revision=revision, device=self.device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        if (most := self.backbone.positions) is not None and max_tokens > most:
            raise ValueError(f"max_tokens is {max_tokens}, and this model has positions for {most} tokens")
        kept = _kept_dimensions(truncate_dim, self.backbone.dim)
        states = StateReader(self.backbone.tower, [ReadOut(layer, pooling, normed)], keep=kept)
        if adapter is not None:
            put_adapter_on(self.backbone.full, self.backbone.tower, Path(adapter))
            self.backbone.full.eval()
        modalities = self.backbone.modalities if self.chat.processor is not None else ("text",)
        if listener is not None:
            modalities = (*modalities, "audio")
        self.model = str(model)  # what was opened; the card may name where that came from
        self.batch_size = batch_size
        self._kept = KeptStates()  # of a call that failed, see encode
        self._one_caller = RLock()  # tokenizers and the hooks of a layer serve one caller at a time
        self._judged = False  # whether the space was looked at for collapse
        self._told_of_cuts = False
        self._told_of_silence = False
        self._tally = Tally()
        self._forward = Forward(
            self.backbone,
            self.chat,
            states,
            BatchLimits(batch_size, batch_tokens or tokens_at_once(self.device), batch_frames),
            visual_ids=visual_token_ids(self.backbone.full.config),
            device=self.device,
        )
        self._reader = ItemReader(self.chat, template, clips, transcript, max_tokens, modalities, listener)
        self._card = EmbedderCard(
            name=name or short_name(str(model), adapter),
            dim=kept,
            modalities=modalities,
            base_model=str(model),
            revision=revision,
            weights=digest_of_loaded(source, revision=revision, adapter=adapter),
            adapter=None if adapter is None else str(adapter),
            prompt=template,
            layer=layer,
            pooling=pooling,
            padding=padding,
            frames=policy if "video" in modalities else None,
            transcript=transcript,
            dtype=str(self.backbone.full.dtype).removeprefix("torch."),
            max_tokens=max_tokens,
            versions=software_versions(),
            sound=sound,
            truncate_dim=kept if kept < self.backbone.dim else 0,
            normed=normed,
            role_prompts=_checked_role_prompts(role_prompts, template),
        )

    def variant(
        self,
        *,
        read_outs: Sequence[ReadOut] | None = None,
        prompt: PromptTemplate | None = None,
        role_prompts: Mapping[str, str] | None = None,
        transcript: Placement | None = None,
        frames: FramePolicy | None = None,
    ) -> MultimodalLLM:
        """The same loaded model, read or worded otherwise. Nothing is loaded again; the two take turns.

        Args:
            read_outs: where it is read. Of several, a vector is their unit vectors side by side, each divided
                by the square root of their number: (items, read-outs × dim), of norm 1.
            prompt: wording.
            role_prompts: as of the class.
            transcript: as of the class.
            frames: which frames of a clip; ``max_pixels`` must stay, the processor was opened for it.

        Returns:
            an embedder of its own, with its own card, for what is not given as this one.

        Raises:
            ValueError: a value that is not accepted.
            RefusedRequest: a read-out that the model does not have.
        """
        made, reader, card = copy.copy(self), self._reader, self._card
        if read_outs is not None:
            states = StateReader(self.backbone.tower, read_outs, keep=self._forward.reader.keep)
            made._forward = self._forward.read_by(states)
            card = dataclasses.replace(card, **recorded(read_outs), dim=states.dim)
            made._judged = len(read_outs) > 1  # layers that say nothing are expected among many
        if transcript is not None:
            check_placement(transcript)
            reader = dataclasses.replace(reader, transcript=transcript)
        if frames is not None:
            if frames.max_pixels != (opened := reader.policy.max_pixels):
                raise ValueError(f"max_pixels is {frames.max_pixels}, and the model was opened for {opened}")
            reader = dataclasses.replace(reader, clips=ClipReader(frames, reader.pool))
        if prompt is not None:
            reader = dataclasses.replace(reader, prompt=prompt)
        worded = card.role_prompts if role_prompts is None else role_prompts
        made._reader, made._kept, made._tally = reader, KeptStates(), Tally()
        made._card = dataclasses.replace(
            card,
            prompt=reader.prompt,
            role_prompts=_checked_role_prompts(worded, reader.prompt),
            transcript=reader.transcript,
            frames=None if card.frames is None else reader.policy,
        )
        return made

    @property
    def read_outs(self) -> tuple[ReadOut, ...]:
        """Where the model is read."""
        return self._forward.reader.read_outs

    def _reader_of(self, role: Role) -> ItemReader:
        """Words items of a role."""
        if role not in self._card.role_prompts:
            return self._reader
        worded = worded_for(self._reader.prompt, self._card.role_prompts[role])
        return dataclasses.replace(self._reader, prompt=worded)

    @property
    def card(self) -> EmbedderCard:
        """What decides the vectors."""
        return self._card

    @card.setter
    def card(self, card: EmbedderCard) -> None:
        """Names and provenance may be told later; what decides the vectors may not."""
        if card.fingerprint != self._card.fingerprint:
            raise ValueError(f"the card {card.name!r} describes other vectors than this embedder's")
        self._card = card

    @property
    def tally(self) -> Tally:
        """Clips, frames and visual tokens that the model was given since this object was made; ``embed`` logs
        it at its end."""
        return self._tally

    def inspect(self, items: Sequence[Item], *, role: Role) -> list[Inspection]:
        """What the model is given for each item; see :class:`~vidvec_msg.embedders.contract.Inspects`. The
        model itself does not run, and nothing is added to :attr:`tally`.

        Raises:
            ItemError: all items that cannot be read.
        """
        check_role(role)
        with self._one_caller:
            return [
                inspect_turn(
                    item.id,
                    turn,
                    self.chat.batch([turn]),
                    policy=self._reader.policy,
                    visual_ids=self._forward.visual_ids,
                    heard_ids=heard_token_ids(self.backbone.full.config),
                )
                for item, turn in zip(items, self._reader_of(role).turns(items), strict=True)
            ]

    def prepare(self, items: Sequence[Item]) -> None:
        """Begins with the decoding of clips whose turn comes next; see
        :class:`~vidvec_msg.embedders.contract.Prepares`."""
        self._reader.prepare(items)

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items.

        Clips are decoded in worker processes while the model runs on those before them; memory holds the
        frames of two batches, and what the workers are ahead (see
        :class:`~vidvec_msg.embedders.reading.ClipReader`). All bad items of a call are known only at its
        end, when the model has run on the others. Their vectors are kept for the next call: encoding the
        rest then costs nothing. Threads that share this object take turns.

        Args:
            items: any mixture of modalities.
            role: "query" or "document"; worded alike (the prompt mirror) unless the card has role prompts.

        Returns:
            float32 (items, dim).

        Raises:
            ItemError: all items that cannot be read, that the model's processor does not take, or whose
                vector is not finite.
        """
        check_role(role)
        if not items:
            return np.zeros((0, self.card.dim), dtype=np.float32)
        with self._one_caller:
            return self._encoded(items, role)

    def _encoded(self, items: Sequence[Item], role: Role) -> Vectors:
        states = np.empty((len(items), self.card.dim), dtype=np.float32)
        rows = self._kept.recall(items, role, states)  # of the items that have no state yet
        failures: list[Failure] = []
        stream = self._reader_of(role).stream([items[row] for row in rows], failures)

        def refused(place: int, fault: str) -> None:
            reason = f"the model's processor does not take it: {fault}"
            failures.append(Failure(items[rows[place]].id, reason))

        for places, state in self._forward.states(stream, self._count, refused):
            states[[rows[place] for place in places]] = state  # (batch, dim)
        self._tell_of_cuts()
        vectors = self._kept.unit_vectors(items, role, states, failures, dtype=self.card.dtype)
        if not self._judged:
            self._judged = warn_if_collapsed(vectors, items, name=self.card.name)
        self._tell_of_silence()
        return vectors

    def _tell_of_silence(self) -> None:
        tally = self._tally
        if (tally.silent or tally.soundless or tally.cut_sounds) and not self._told_of_silence:
            self._told_of_silence = True
            logger.warning(
                "%s: of the sounds so far %d were heard, %d of them cut at the longest that the model takes; "
                "%d clips are silent and %d have no sound track: these are embedded from their frames alone",
                self.card.name,
                tally.heard,
                tally.cut_sounds,
                tally.silent,
                tally.soundless,
            )

    def _tell_of_cuts(self) -> None:
        if self.chat.cut_items and not self._told_of_cuts:
            self._told_of_cuts = True
            logger.warning(
                "%s: words longer than max_tokens=%d are cut (%d tokens of %d items so far)",
                self.card.name,
                self._reader.max_tokens,
                self.chat.cut_tokens,
                self.chat.cut_items,
            )

    def _count(self, turns: Sequence[Turn], ids: Tensor) -> None:
        self._tally.add(turns, ids, policy=self._reader.policy, visual_ids=self._forward.visual_ids)


def _checked_role_prompts(given: Mapping[str, str] | None, prompt: PromptTemplate) -> dict[str, str]:
    """Role → instruction, without those that are the prompt's own."""
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(
            f"role_prompts must be a mapping such as {{query: Represent the message.}}, got {given!r}; an "
            "embedder folder or a YAML file can hold one"
        )
    if strangers := sorted(set(given or {}) - set(ROLES)):
        raise ValueError(f"role_prompts are of {' and '.join(ROLES)}, got {', '.join(map(repr, strangers))}")
    other = {role: words for role, words in (given or {}).items() if words != prompt.instruction}
    for words in other.values():
        worded_for(prompt, words)
    return other


def _kept_dimensions(truncate_dim: int, width: int) -> int:
    if not 0 <= truncate_dim <= width:
        raise ValueError(
            f"truncate_dim is {truncate_dim}, and this model's vectors have {width} dimensions; give 1 to "
            f"{width}, or 0 to keep all"
        )
    return truncate_dim or width

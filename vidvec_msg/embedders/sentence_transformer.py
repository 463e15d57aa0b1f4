"""Any sentence-transformers model: texts, and images, clips and sound where the model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from vidvec_msg.embedders.backbone import check_options, choose_device, choose_dtype
from vidvec_msg.embedders.chat import Placement, check_placement
from vidvec_msg.embedders.check import unit_vectors, warn_if_collapsed
from vidvec_msg.embedders.contract import EmbedderCard, Inspection, Role, Vectors, check_role
from vidvec_msg.embedders.inspection import count_tokens, frames_asked
from vidvec_msg.embedders.models import short_name
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.embedders.sentence_transformers_media import (
    UNCUT,
    as_video,
    for_clip,
    keep_budget,
    listener_of,
)
from vidvec_msg.embedders.sentence_transformers_model import (
    digest_of_model,
    folder_of_model,
    open_model,
    token_limit,
)
from vidvec_msg.embedders.visuals import fill_temporal_patch, heard_token_ids, visual_token_ids
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.media.video import Frames
from vidvec_msg.runs import software_versions

_KNOWN: tuple[Modality, ...] = ("text", "image", "video", "audio")


class _Given(NamedTuple):
    """One item as the library takes it, and the frames that were chosen for it."""

    input: Any
    frames: Frames | None = None


class SentenceTransformerEmbedder:
    """A sentence-transformers model behind the contract.

    Queries go through ``encode_query`` and documents through ``encode_document``, with the model's own
    prompts and modules for each. A model made of a multimodal LLM words its items by its own chat template.
    Frames are chosen here and never sampled again by the model's processor; each image, clip and sound is
    encoded alone, since processors may pad what stands together.

    Args:
        model: folder or hub name.
        revision: commit of a hub model.
        query_prompt: words before a query; None takes the model's own.
        document_prompt: words before a document; None takes the model's own.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame or image at most; 0 leaves it to the model's processor.
        transcript: a clip's transcript "before" its frames, "after" them, or "none"; only for models that
            take text and video in one input.
        truncate_dim: keep this many dimensions (Matryoshka models); 0 keeps all.
        batch_size: texts that run together.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto": bfloat16 where the device computes it fast,
            float32 elsewhere.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        decode_workers: clips decoded side by side.
        trust_remote_code: run Python files that come with the model.
        name: for tables; the model's own name if not given.

    Raises:
        ValueError: an option has a value that is not accepted, or that this model cannot serve.
        RefusedRequest: the model cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        fps: float = 1.0,
        max_frames: int = 64,
        max_pixels: int = 0,
        transcript: Placement = "none",
        truncate_dim: int = 0,
        batch_size: int = 32,
        device: str = "auto",
        dtype: str = "float32",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        check_placement(transcript)
        check_options(dtype)
        if batch_size < 1 or truncate_dim < 0:
            raise ValueError(
                f"batch_size must be at least 1 and truncate_dim at least 0, got {batch_size} and "
                f"{truncate_dim}"
            )
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        pool = shared_pool(decode_workers, decode_timeout)
        self._clips = ClipReader(policy, pool)
        self.batch_size = batch_size
        self.device = choose_device(device)
        self.model: Any = open_model(
            model,
            device=self.device,
            dtype=choose_dtype(dtype, self.device),
            revision=revision,
            trust_remote_code=trust_remote_code,
            truncate_dim=truncate_dim or None,
        )
        self._listener = listener_of(self._processor, pool)
        if max_pixels:  # else a processor would enlarge what the budget has shrunk
            keep_budget(self._processor, max_pixels)
        self._transcript: Placement = transcript
        if transcript != "none" and not self._takes_together("text", "video"):
            offered = ", ".join("+".join(one) if isinstance(one, tuple) else one for one in self._offered)
            raise ValueError(
                f"transcript is {transcript!r}, and this model takes no text and video in one input (it "
                f"takes {offered}); give transcript=none"
            )
        self._prompts = self._role_prompts(query_prompt, document_prompt)
        self._judged = False
        modalities = tuple(modality for modality in _KNOWN if modality in self._offered)
        self._card = EmbedderCard(
            name=name or short_name(model),
            dim=truncate_dim or self._own_dim(),
            modalities=modalities,
            base_model=model,
            revision=revision,
            weights=digest_of_model(folder_of_model(model, revision=revision)),
            role_prompts={role: prompt for role, prompt in self._prompts.items() if prompt},
            pooling="sentence-transformers",
            frames=policy if {"image", "video"} & set(modalities) else None,
            transcript=transcript,
            dtype=str(next(self.model.parameters()).dtype).removeprefix("torch."),
            max_tokens=token_limit(self.model.max_seq_length),
            versions=software_versions(),
        )

    @property
    def card(self) -> EmbedderCard:
        """What decides the vectors."""
        return self._card

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items, float32 (items, dim).

        Raises:
            ItemError: items that cannot be read, before the model runs; or whose vector is not finite.
        """
        check_role(role)
        if not items:
            return np.zeros((0, self.card.dim), dtype=np.float32)
        inputs = [given for given, _ in self._inputs(items)]
        states = np.empty((len(items), self.card.dim), dtype=np.float32)
        texts = [row for row, item in enumerate(items) if item.modality == "text"]
        media = [[row] for row, item in enumerate(items) if item.modality != "text"]
        for rows in [texts, *media] if texts else media:
            states[rows] = self._encode([inputs[row] for row in rows], role)  # (batch, dim)
        vectors = unit_vectors(states, items)
        if not self._judged:
            self._judged = warn_if_collapsed(vectors, items, name=self.card.name)
        return vectors

    def prepare(self, items: Sequence[Item]) -> None:
        """Begins with the decoding of clips whose turn comes next; see
        :class:`~vidvec_msg.embedders.contract.Prepares`."""
        if "video" in self.card.modalities:
            self._clips.prepare(items)

    def inspect(self, items: Sequence[Item], *, role: Role) -> list[Inspection]:
        """What the model is given for each item; see :class:`~vidvec_msg.embedders.contract.Inspects`.

        Raises:
            ItemError: all items that cannot be read.
        """
        check_role(role)
        return [
            self._inspection(item, given, role)
            for item, given in zip(items, self._inputs(items), strict=True)
        ]

    # --- the model ------------------------------------------------------------------------------------------

    @property
    def _processor(self) -> Any | None:
        """The library's, of a model made of a transformers model."""
        return getattr(self.model, "processor", None)

    @property
    def _offered(self) -> list[Any]:
        """What the model takes, in the library's names: kinds, tuples of kinds, "message"."""
        return list(getattr(self.model, "modalities", ["text"]))

    def _takes_together(self, *kinds: str) -> bool:
        """Whether kinds may stand in one input: by a chat template, or by a module of its own."""
        return ("message" in self._offered and set(kinds) <= set(self._offered)) or any(
            isinstance(one, tuple) and set(kinds) == set(one) for one in self._offered
        )

    def _own_dim(self) -> int:
        known = self.model.get_embedding_dimension()
        return int(known) if known else int(self.model.encode("a", show_progress_bar=False).shape[-1])

    def _encode(self, inputs: list[Any], role: Role) -> np.ndarray:
        run = self.model.encode_query if role == "query" else self.model.encode_document
        vectors = run(
            inputs,
            prompt=self._prompts[role],
            batch_size=self.batch_size,
            show_progress_bar=False,
            convert_to_tensor=True,
            **self._settings(inputs),
        )
        states: np.ndarray = torch.as_tensor(vectors).float().cpu().numpy()  # (batch, dim)
        return states

    def _settings(self, inputs: list[Any]) -> dict[str, Any]:
        """Per-call settings of texts, or of one medium."""
        if all(isinstance(one, str) or set(one) == {"text"} for one in inputs):
            return {}
        (one,) = inputs
        if "video" in one:
            return {"processing_kwargs": for_clip(self._processor, one["video"])}
        # modules without chat templates have no placeholder tokens, and need not know the option
        return {"processing_kwargs": dict(UNCUT)} if "message" in self._offered else {}

    def _inspection(self, item: Item, given: _Given, role: Role) -> Inspection:
        settings = self._settings([given.input])
        ids = self._ids(given.input, role, settings)  # (1, tokens)
        uncut = ids
        if item.modality == "text":
            uncut = self._ids(given.input, role, {"processing_kwargs": UNCUT})
        config = getattr(self.model[0], "config", None)
        visual = count_tokens(ids, visual_token_ids(config))
        medium = given.input if isinstance(given.input, Mapping) else {}
        frames = given.frames
        pictures = medium.get("image") if frames is None else frames.pixels
        return Inspection(
            item=item.id,
            wording=self._wording(ids, config),
            text_tokens=ids.numel() - visual - count_tokens(ids, heard_token_ids(config)),
            visual_tokens=visual,
            frames_asked=0 if frames is None else frames_asked(frames, self._clips.policy),
            frames_used=0 if frames is None else len(frames.pixels),
            size=None if pictures is None else (int(pictures.shape[-3]), int(pictures.shape[-2])),
            sound_seconds=_seconds(medium.get("audio")),
            cut_tokens=uncut.numel() - ids.numel(),
            reader="" if frames is None else frames.reader,
        )

    def _ids(self, given: Any, role: Role, settings: dict[str, Any]) -> torch.Tensor:
        """Token ids of one input, (1, tokens); none where its module has no tokens (CLIP's images)."""
        features = self.model.preprocess([given], prompt=self._prompts[role] or None, task=role, **settings)
        ids: torch.Tensor = features.get("input_ids", torch.empty((1, 0), dtype=torch.long))
        return ids.reshape(1, -1)  # static embeddings' modules have no rows

    def _wording(self, ids: torch.Tensor, config: Any) -> str:
        """The words of token ids; a medium's tokens once, since they are as many as it needs."""
        media = {*visual_token_ids(config), *heard_token_ids(config)}
        row: list[int] = ids[0].tolist()
        if not row:
            return ""
        kept = [
            one for place, one in enumerate(row) if one not in media or place == 0 or row[place - 1] != one
        ]
        words: str = self.model.tokenizer.decode(kept)
        return words

    # --- the items ------------------------------------------------------------------------------------------

    def _inputs(self, items: Sequence[Item]) -> list[_Given]:
        self.prepare(items)
        inputs: list[_Given] = []
        failures = []
        for item in items:
            try:
                inputs.append(self._input(item))
            except ValueError as error:
                failures.append(Failure(item.id, str(error)))
        if failures:
            raise ItemError(failures)
        return inputs

    def _input(self, item: Item) -> _Given:
        if item.modality not in self.card.modalities:
            raise ValueError(
                f"this embedder reads {', '.join(self.card.modalities)}; the item is {item.modality}"
            )
        if item.modality == "text":
            if not item.full_text:
                raise ValueError("empty text")
            # a bare string that is the address of an image or a clip would be fetched and embedded as that
            return _Given(item.full_text if self.card.modalities == ("text",) else {"text": item.full_text})
        if item.modality == "image":
            return _Given({"image": self._clips.image_of(item)})
        if item.modality == "audio":
            sound = self._listener.file(item).sound
            if sound is None:
                raise ValueError("there is nothing to hear")
            return _Given({"audio": {"array": sound.samples, "sampling_rate": sound.rate}})
        frames = self._clips.clip_of(item)
        video = as_video(fill_temporal_patch(self._processor, frames))
        said = (item.transcript or "").strip() if self._transcript != "none" else ""
        if not said:
            return _Given({"video": video}, frames)
        parts = [("text", said), ("video", video)]
        # the order of the keys is the order in the model's user turn
        return _Given(dict(parts if self._transcript == "before" else reversed(parts)), frames)

    def _role_prompts(self, query: str | None, document: str | None) -> dict[Role, str]:
        return {
            "query": self._own_prompt("query") if query is None else query,
            "document": self._own_prompt("document", "passage", "corpus") if document is None else document,
        }

    def _own_prompt(self, *names: str) -> str:
        """The prompt that ``encode_query`` and ``encode_document`` choose: of the first name that the model
        knows, be it blank; its default prompt after that."""
        own: dict[str, str] = self.model.prompts or {}
        return next((own[name] for name in (*names, self.model.default_prompt_name) if name in own), "")


def _seconds(audio: Mapping[str, Any] | None) -> float:
    return 0.0 if audio is None else len(audio["array"]) / float(audio["sampling_rate"])

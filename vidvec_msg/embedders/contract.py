"""The contract of every embedder: items in, unit vectors out.

Anything with this shape is an embedder: no base class, no registration. Whatever stands above it
(embed, index, search, evaluate, mining) works for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.prompts import NEUTRAL, PromptTemplate
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.runs import digest_of

Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = get_args(Role)
CARD_FILE = "embedder.json"  # the card in an embedder folder; written last
EXPORT_FILE = "export.json"  # says what an exported model folder was made for; written last
Vectors = npt.NDArray[np.float32]


def check_role(role: str) -> None:
    """Raises ValueError for a role that there is not."""
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")


@dataclass(frozen=True, slots=True)
class EmbedderCard:
    """Everything that decides an embedder's vectors, and where it comes from.

    Args:
        name: short name for tables.
        dim: dimensions of a vector.
        modalities: what it can embed.
        base_model: hub name or folder of the backbone.
        revision: commit of a hub model.
        weights: digest of the weights that were loaded (backbone and adapter).
        adapter: folder of the adapter, if there is one.
        prompt: wording around an item, per modality; None where the embedder has no prompt.
        role_prompts: further wording per role, for example a query instruction.
        layer: hidden state that is read; -1 the normed final one, 0 the embedding output, n block n's output.
        pooling: how positions become one vector.
        padding: side on which batches are padded (it must not matter; recorded for the sceptic).
        frames: which frames of a clip are shown.
        transcript: where a clip's transcript goes: "before" the frames, "after" them, or "none".
        dtype: arithmetic of the model.
        max_tokens: longest text in tokens; longer content is cut, the prompt never.
        versions: software that made the vectors; recorded, not part of the fingerprint.
        sound: whether clips are given with their own sound.
        truncate_dim: how many of the model's dimensions are kept, the first ones; 0 keeps all.
        merged_from: fingerprint of the embedder whose adapter was merged into the weights; recorded, not part
            of the fingerprint.
        normed: whether the model's final norm is applied to the state of ``layer``.
        trained_over: "nf4" if the adapter was trained over 4-bit weights (QLoRA); the embedder opens on the
            model as it is published. Recorded, not part of the fingerprint.
    """

    name: str
    dim: int
    modalities: tuple[Modality, ...] = ("text",)
    base_model: str = ""
    revision: str | None = None
    weights: str = ""
    adapter: str | None = None
    prompt: PromptTemplate | None = None
    role_prompts: Mapping[str, str] = field(default_factory=dict)
    layer: int | None = None
    pooling: str = ""
    padding: str = ""
    frames: FramePolicy | None = None
    transcript: Literal["before", "after", "none"] = "none"
    dtype: str = "float32"
    max_tokens: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    sound: bool = field(default=False, metadata=NEUTRAL)
    truncate_dim: int = field(default=0, metadata=NEUTRAL)
    merged_from: str = field(default="", metadata=NEUTRAL)
    trained_over: str = field(default="", metadata=NEUTRAL)
    normed: bool = field(default=False, metadata=NEUTRAL)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change whenever a vector may change; part of every cache key.

        Names and paths do not count (a moved folder keeps its vectors); the weights' digest does.
        """
        content = _counted(self)
        for name in ("name", "base_model", "revision", "adapter", "versions", "merged_from", "trained_over"):
            if name in ("base_model", "revision") and not self.weights:
                continue  # a remote model has no digest: its name is all that identifies it
            content.pop(name, None)
        return digest_of(content)[:16]

    def to_dict(self) -> dict[str, Any]:
        """JSON-like form, the fingerprint included; the content of ``embedder.json``."""
        return {**asdict(self), "modalities": list(self.modalities), "fingerprint": self.fingerprint}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> EmbedderCard:
        """The card of :meth:`to_dict`'s form; the stored fingerprint is ignored and computed anew.

        Raises:
            ValueError: unknown or missing fields, named.
        """
        given = {key: value for key, value in content.items() if key != "fingerprint"}
        if given.get("prompt") is not None:
            given["prompt"] = PromptTemplate(**given["prompt"])
        if given.get("frames") is not None:
            given["frames"] = FramePolicy(**given["frames"])
        if "modalities" in given:
            given["modalities"] = tuple(given["modalities"])
        try:
            return cls(**given)
        except TypeError as error:
            raise ValueError(f"not an embedder card: {error}") from error


def _counted(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, less those that are neutral: see :data:`~.prompts.NEUTRAL`."""
    content = {}
    for entry in fields(record):
        value = getattr(record, entry.name)
        if entry.metadata.keys() >= NEUTRAL.keys() and value == entry.default:
            continue
        content[entry.name] = _counted(value) if is_dataclass(value) else value
    return content


@runtime_checkable
class Embedder(Protocol):
    """Items in, unit vectors out.

    ``encode`` returns float32 of shape ``(len(items), card.dim)``, each row of norm 1, in the order of
    ``items``; ``encode([])`` has shape ``(0, card.dim)``. An item's vector does not depend on its
    neighbours, the batch size, the padding side or the process that made it, beyond float tolerance.

    It raises :class:`vidvec_msg.errors.ItemError` for items that it cannot embed (an empty text, a clip
    that does not decode), naming each; never a zero vector, never fewer rows.
    """

    @property
    def card(self) -> EmbedderCard:
        """What decides its vectors."""
        ...

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors of the items, see above."""
        ...


# --- what an embedder may offer beyond the contract -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inspection:
    """What an embedder makes of one item before its model runs.

    Args:
        item: its id.
        wording: the words as the tokenizer gets them, prompt included, placeholders not expanded.
        text_tokens: of the words.
        visual_tokens: that frames or an image become.
        frames_asked: by the frame policy, for a clip of this duration.
        frames_used: that the model sees.
        size: height and width of a frame or image, as the processor is given it.
        sound_seconds: of the clip's or file's sound that the model hears.
        cut_tokens: of content that did not fit.
        reader: who decoded the clip.
    """

    item: str
    wording: str = ""
    text_tokens: int = 0
    visual_tokens: int = 0
    frames_asked: int = 0
    frames_used: int = 0
    size: tuple[int, int] | None = None
    sound_seconds: float = 0.0
    cut_tokens: int = 0
    reader: str = ""


@runtime_checkable
class Inspects(Protocol):
    """An embedder that can say what its model is given."""

    def inspect(self, items: Sequence[Item], *, role: Role) -> list[Inspection]:
        """One entry per item, in order; raises :class:`vidvec_msg.errors.ItemError` as ``encode`` does."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """An embedder that can begin with the slow reading of items whose turn comes next."""

    def prepare(self, items: Sequence[Item]) -> None:
        """Starts decoding in the background and returns at once; never raises for a bad item.

        A later ``encode`` of the same items waits for what was begun. Whoever prepares items encodes them,
        or their frames stay in memory.
        """
        ...


@runtime_checkable
class Tallies(Protocol):
    """An embedder that adds up what its model was given."""

    @property
    def tally(self) -> object:
        """Since the embedder was made; its ``str`` is one line for a log, empty if nothing is to tell."""
        ...

"""Vectors that were computed elsewhere, looked up by item id.

For models whose dependencies do not fit into this environment, and for embedding once and measuring often.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np

from vidvec_msg.embedders.check import unit_vectors
from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors, check_role
from vidvec_msg.embedders.models import combined_digest
from vidvec_msg.errors import Failure, ItemError, RefusedRequest
from vidvec_msg.formats.foreign_vectors import FORMATS, ForeignVectors
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.formats.vectors import MANIFEST, VectorsFolder
from vidvec_msg.runs import file_digest

# where a folder of two sides keeps the vectors of each role
SIDES: dict[Role, str] = {"query": "queries", "document": "corpus"}

_GUESSING = 1_000_000  # ids among which a near one is looked for; more take too long
_ENDINGS = r"\.(mp4|m4v|mkv|webm|avi|mov|jpe?g|png|webp|wav|mp3|m4a|flac|txt)$"


@dataclass(frozen=True, eq=False)
class _Side:
    """The vectors of one role.

    Args:
        path: where they stand, for messages.
        ids: in row order.
        dim: of a vector.
        rows: positions → (positions, dim) float32 of any norm.
        card: of what made them.
    """

    path: Path
    ids: tuple[str, ...]
    dim: int
    rows: Callable[[Sequence[int]], Vectors]
    card: EmbedderCard

    @cached_property
    def position(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self.ids)}

    @cached_property
    def bare(self) -> dict[str, str]:
        """The ids by what is left of them without folder, ending, leading zeros and case."""
        return {_bare(one): one for one in self.ids[:_GUESSING]}


class Precomputed:
    """Answers from vectors that are there already.

    Args:
        path: a .npz, .npy, .parquet or .safetensors file with ids (docs/external_vectors.md has the table);
            a vectors folder; or a folder that holds two of these, ``corpus`` and ``queries``. With two, an
            id is looked up on its role's side first and on the other one after that (in the reverse direction
            a clip is the query).
        name: for tables; the stored card's name, or the file's, if not given.

    Raises:
        RefusedRequest: nothing of the kind there, or the two sides are of different embedders. Everything
            that is wrong with a file comes in one message.
    """

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        place = Path(path).expanduser()
        self._sides = _sides_of(place)
        card = _card_of(place, self._sides)
        self._card = card if name is None else dataclasses.replace(card, name=name)

    @property
    def card(self) -> EmbedderCard:
        """The card of the embedder that made the vectors; for a file, its digest stands for the weights."""
        return self._card

    @property
    def ids(self) -> Mapping[Role, tuple[str, ...]]:
        """The ids that it knows, in row order, of the sides that are there; one file serves both roles."""
        return {role: side.ids for role, side in self._sides.items()}

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """The stored vectors, as float32 of norm 1.

        Raises:
            ItemError: ids that are not there, and vectors that are zero or not finite, each named.
        """
        check_role(role)
        order = sorted(self._sides, key=lambda side: side != role)
        sides = list(dict.fromkeys(self._sides[one] for one in order))  # one file may serve both roles
        vectors = np.zeros((len(items), self.card.dim), dtype=np.float32)
        left = list(range(len(items)))
        for side in sides:
            here = [row for row in left if items[row].id in side.position]
            if here:
                vectors[here] = side.rows([side.position[items[row].id] for row in here])
            left = [row for row in left if items[row].id not in side.position]
        if left:
            raise ItemError(Failure(items[row].id, _absent(items[row].id, sides)) for row in left)
        return unit_vectors(vectors, items)


# --- what is there ----------------------------------------------------------------------------------------


def _sides_of(path: Path) -> dict[Role, _Side]:
    if path.suffix and not path.is_dir():
        return dict.fromkeys(SIDES, _file(path))
    if (path / MANIFEST).is_file():
        return dict.fromkeys(SIDES, _folder(path))
    found: dict[Role, _Side] = {}
    for role, name in SIDES.items():
        there = [one for ending in FORMATS if (one := path / f"{name}{ending}").is_file()]
        if (path / name).is_dir():
            there.append(path / name)
        if len(there) > 1:
            raise RefusedRequest(
                f"{path}: {name} is there more than once ({', '.join(one.name for one in there)}); leave one"
            )
        if there:
            found[role] = _folder(there[0]) if there[0].is_dir() else _file(there[0])
    if not path.is_dir():
        raise RefusedRequest(f"vectors {path}: there is no such file or folder")
    if not found:
        raise RefusedRequest(
            f"{path} holds no vectors that are known here: no {MANIFEST} (a vectors folder, which "
            f"`vidvec-msg embed --out` makes), and neither corpus nor queries as such a folder or as one of "
            f"{', '.join(FORMATS)}. To use one file, give its own name."
        )
    return found


def _file(path: Path) -> _Side:
    file = ForeignVectors.open(path)
    card = EmbedderCard(
        name=path.stem,
        dim=file.dim,
        modalities=get_args(Modality),  # an id may stand for anything
        weights=combined_digest(*map(file_digest, file.files)),
    )
    return _Side(path, file.ids, file.dim, file.rows, card)


def _folder(path: Path) -> _Side:
    folder = VectorsFolder.open(path)
    matrix = folder.matrix()  # (ids, dim)

    def rows(positions: Sequence[int]) -> Vectors:
        return matrix[list(positions)]

    return _Side(path, folder.ids, folder.dim, rows, _stored_card(folder))


def _stored_card(folder: VectorsFolder) -> EmbedderCard:
    """The stored card; vectors of other tools may give no more than a name."""
    known = {field.name for field in dataclasses.fields(EmbedderCard)}
    content = {key: value for key, value in folder.card.items() if key in known}
    try:
        return EmbedderCard.from_dict({"name": folder.path.name, **content, "dim": folder.dim})
    except (TypeError, ValueError) as error:
        raise RefusedRequest(f"vectors folder {folder.path}: its card cannot be read: {error}") from error


def _card_of(path: Path, sides: dict[Role, _Side]) -> EmbedderCard:
    """One card for both sides."""
    first, *others = dict.fromkeys(sides.values())
    if not others:
        return first.card
    (other,) = others
    files = [side for side in (first, other) if not side.path.is_dir()]
    if not files:
        if first.card.fingerprint == other.card.fingerprint:
            return first.card
        told = ", ".join(f"{side.card.name} {side.card.fingerprint}" for side in (first, other))
        raise RefusedRequest(f"{path}: corpus/ and queries/ were made by different embedders ({told})")
    if first.dim != other.dim:
        told = " and ".join(f"{side.path.name} {side.dim}" for side in (first, other))
        raise RefusedRequest(f"{path}: the two sides are of different embedders: dimensions of {told}")
    if len(files) == 1:
        raise RefusedRequest(
            f"{path}: {files[0].path.name} is a file and the other side a vectors folder; whether one "
            "embedder made both cannot be seen, so make both the one or the other"
        )
    # files do not say what made them: that both sides belong together is the user's word
    weights = combined_digest(first.card.weights, other.card.weights)
    return dataclasses.replace(first.card, name=path.resolve().name, weights=weights)


# --- what is not there ------------------------------------------------------------------------------------


def _absent(name: str, sides: Sequence[_Side]) -> str:
    """Why an item has no vector, with the id that was probably meant."""
    near = next((side.bare[_bare(name)] for side in sides if _bare(name) in side.bare), None)
    if near is not None:
        return f"no vector of this id, but one of {near!r}: ids must be equal"
    told = "; ".join(
        f"{side.path.name}: {len(side.ids)} ids, such as {side.ids[0]!r}" for side in sides if side.ids
    )
    return f"no vector of this id ({told or 'there are no ids'})"


def _bare(name: str) -> str:
    last = re.sub(_ENDINGS, "", name.casefold().rpartition("/")[2])
    return last.lstrip("0") or last

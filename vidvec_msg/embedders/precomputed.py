"""Vectors that were computed elsewhere, looked up by item id.

For models whose dependencies do not fit into this environment, and for embedding once and measuring often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vidvec_msg.embedders.check import unit_vectors
from vidvec_msg.embedders.contract import ROLES, EmbedderCard, Role, Vectors
from vidvec_msg.errors import Failure, ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.vectors import MANIFEST, VectorsFolder

# where a folder of two sides keeps the vectors of each role
SIDES: dict[Role, str] = {"query": "queries", "document": "corpus"}


class Precomputed:
    """Answers from vectors folders.

    Args:
        folder: a vectors folder, or a folder that holds two of them, ``corpus`` and ``queries``. With two, an
            id is looked up on its role's side first and on the other one after that (in the reverse direction
            a clip is the query).

    Raises:
        RefusedRequest: no complete vectors folder there, or the two sides are of different embedders.
    """

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder)
        if (path / MANIFEST).is_file():
            one = VectorsFolder.open(path)
            sides = dict.fromkeys(SIDES, one)
        else:
            sides = {
                role: VectorsFolder.open(path / name)
                for role, name in SIDES.items()
                if (path / name).is_dir()
            }
            if not sides:
                raise RefusedRequest(
                    f"{folder} is no complete vectors folder: neither {MANIFEST} nor the folders corpus/ and "
                    "queries/ are in it. `vidvec-msg embed --out` makes one."
                )
        cards = {role: _card(side) for role, side in sides.items()}
        first, *others = cards.values()
        if any(card.fingerprint != first.fingerprint for card in others):
            raise RefusedRequest(
                f"{folder}: corpus/ and queries/ were made by different embedders "
                f"({', '.join(f'{card.name} {card.fingerprint}' for card in cards.values())})"
            )
        self._card = first
        self._matrices = {role: side.matrix() for role, side in sides.items()}  # (ids, dim) each
        self._rows = {role: {one: row for row, one in enumerate(side.ids)} for role, side in sides.items()}

    @property
    def card(self) -> EmbedderCard:
        """The card of the embedder that made the vectors."""
        return self._card

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """The stored vectors, as float32 of norm 1.

        Raises:
            ItemError: ids that are not in the folder, each named.
        """
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        order = sorted(self._rows, key=lambda side: side != role)
        vectors = np.zeros((len(items), self.card.dim), dtype=np.float32)
        absent = []
        for position, item in enumerate(items):
            side = next((side for side in order if item.id in self._rows[side]), None)
            if side is None:
                absent.append(Failure(item.id, "no vector of this id in the vectors folder"))
            else:
                vectors[position] = self._matrices[side][self._rows[side][item.id]]
        if absent:
            raise ItemError(absent)
        return unit_vectors(vectors, items)


def _card(folder: VectorsFolder) -> EmbedderCard:
    """The stored card; vectors of other tools may give no more than a name."""
    known = {field.name for field in dataclasses.fields(EmbedderCard)}
    content = {key: value for key, value in folder.card.items() if key in known}
    try:
        return EmbedderCard.from_dict({"name": folder.path.name, **content, "dim": folder.dim})
    except (TypeError, ValueError) as error:
        raise RefusedRequest(f"vectors folder {folder.path}: its card cannot be read: {error}") from error

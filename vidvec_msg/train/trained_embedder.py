"""What a module trained, as an embedder folder: an adapter to the base model, or the whole model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.saved import save_embedder
from vidvec_msg.embedders.training_record import TrainingRecord
from vidvec_msg.embedders.whole import save_full
from vidvec_msg.formats.items import Item
from vidvec_msg.train.text_tower import TowerEmbedder
from vidvec_msg.train.tuning import ADAPTER

if TYPE_CHECKING:
    from vidvec_msg.train.module import TextContrastive

# What the reopened folder must give the vectors of, where whole weights are written.
PROBES = ("A small red ball rolls towards a wall.", "Keep trying.")


def write_trained(
    out: Path,
    module: TextContrastive,
    *,
    name: str,
    weights: Mapping[str, Tensor] | None = None,
    training: TrainingRecord | None = None,
    allow_untrained: bool = False,
) -> EmbedderCard:
    """Writes an embedder folder, which :func:`vidvec_msg.embedders.saved.load_saved` opens.

    Args:
        out: the folder; an earlier embedder there is replaced.
        module: what trained.
        name: of the embedder, for tables.
        weights: those that trained, gathered, where they are sharded over ranks; None where they are whole.
        training: how it was trained.
        allow_untrained: accepts an adapter that has not made a step yet.

    Returns:
        the card as it was written.

    Raises:
        RefusedRequest: ``out`` holds something else, or what was written does not open with the same weights.
    """
    card = module.card(name)
    if module.tuning == ADAPTER:
        return save_embedder(
            out,
            model=module.tower,
            card=card,
            state_dict=weights,
            training=training,
            allow_untrained=allow_untrained,
        )
    expected = None
    if weights is None:  # shards of a model could not be run on one rank
        items = [Item(str(row), text=text) for row, text in enumerate(PROBES)]
        here = TowerEmbedder(module.tower, module.tokenise, card)
        expected = (items, here.encode(items, role="document"))
    return save_full(
        out,
        tower=module.tower,
        card=card,
        state_dict=weights,
        frozen={key for key, weight in module.tower.named_parameters() if not weight.requires_grad},
        training=training,
        expected=expected,
        trust_remote_code=module.trust_remote_code,
    )

"""vidvec-msg: retrieval embedders made from multimodal LLMs, with text only.

    synthesise pairs  →  fit  →  embed + index  →  search  →  evaluate (both ways)

Importing the package loads neither torch nor transformers, faiss or ranx; names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vidvec_msg.embedders.contract import Embedder as Embedder
    from vidvec_msg.embedders.contract import EmbedderCard as EmbedderCard
    from vidvec_msg.embedders.contract import Role as Role
    from vidvec_msg.embedders.load import load_embedder as load_embedder
    from vidvec_msg.formats.collections import Collection as Collection
    from vidvec_msg.formats.items import Item as Item

__version__ = version("vidvec-msg")

_HOMES = {
    "Collection": "vidvec_msg.formats.collections",
    "Embedder": "vidvec_msg.embedders.contract",
    "EmbedderCard": "vidvec_msg.embedders.contract",
    "Item": "vidvec_msg.formats.items",
    "Role": "vidvec_msg.embedders.contract",
    "load_embedder": "vidvec_msg.embedders.load",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    offered = ", ".join(sorted(__all__))
    raise AttributeError(f"module 'vidvec_msg' has no attribute {name!r}; it offers {offered}")


def __dir__() -> list[str]:
    return sorted(__all__)

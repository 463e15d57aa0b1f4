"""Opening a sentence-transformers model, and what identifies it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from vidvec_msg.embedders.backbone import quiet_progress
from vidvec_msg.embedders.models import combined_digest, local_folder, remote_code_refusal, weights_digest
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import file_digest

logger = logging.getLogger(__name__)


def open_model(
    model: str, *, trust_remote_code: bool, dtype: torch.dtype, device: torch.device, **options: Any
) -> Any:
    """Loads a sentence-transformers model; nothing is unpickled.

    Args:
        model: folder or hub name.
        trust_remote_code: run Python files that come with the model.
        dtype: of the weights.
        device: where it runs.
        options: further arguments of ``SentenceTransformer``.

    Raises:
        RefusedRequest: it cannot be loaded, with the reason.
    """
    from sentence_transformers import SentenceTransformer

    path = Path(model).expanduser()
    check_folder(model)
    logger.info("loading %s", model)
    try:
        with quiet_progress():
            return SentenceTransformer(
                str(path) if path.is_dir() else model,
                device=str(device),
                trust_remote_code=trust_remote_code,
                model_kwargs={"dtype": dtype, "use_safetensors": True},
                **options,
            )
    except (OSError, ValueError, ImportError, KeyError, AttributeError) as error:
        if refusal := remote_code_refusal(
            model, error, revision=options.get("revision"), trusted=trust_remote_code, form="st"
        ):
            raise refusal from error
        missing = "" if path.is_dir() else " There is no folder of that name here."
        raise RefusedRequest(
            f"cannot load the sentence-transformers model {model!r}: {error}{missing}"
        ) from error


def check_folder(model: str) -> None:
    """Refuses a model that is called as a folder is and is none.

    Raises:
        RefusedRequest: the message says what is accepted.
    """
    path = Path(model).expanduser()
    if not path.is_dir() and (path.is_absolute() or model.startswith((".", "~"))):
        raise RefusedRequest(
            f"cannot load the sentence-transformers model {model!r}: no such folder; st: is followed by a "
            "folder that sentence-transformers wrote, a model checkpoint, or a hub name org/name"
        )


def folder_of_model(model: str, *, revision: str | None) -> Path:
    """Where the files of a model lie that was loaded.

    Raises:
        RefusedRequest: nowhere; without a digest of its weights, caches would take it for any other model.
    """
    names = [model] if "/" in model else [model, f"sentence-transformers/{model}"]  # as the library reads it
    for name in names:
        for file in ("config.json", "modules.json"):  # a CLIP model's configs lie in sub-folders alone
            if folder := local_folder(name, revision=revision, file=file):
                return folder
    raise RefusedRequest(f"model {model!r} was loaded, but its files cannot be found for their digest")


def token_limit(tokens: float | None) -> int | None:
    """A limit; None for the libraries' ways to say that there is none (None, infinity, 10 to the 30th)."""
    return None if tokens is None or tokens > 1e9 else int(tokens)


def digest_of_model(folder: Path) -> str:
    """Digest of the backbone's weights, of Dense layers in sub-folders, and of what says how modules work."""
    holders = sorted({path.parent for path in folder.rglob("*.safetensors")})
    if not holders:
        return ""  # the name is all that identifies it
    modules = sorted([*folder.glob("modules.json"), *folder.glob("sentence_*_config.json")])
    modules += sorted(path for path in folder.glob("*/config.json") if path.parent not in holders)
    return combined_digest(*(weights_digest(holder) for holder in holders), *map(file_digest, modules))

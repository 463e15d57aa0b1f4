"""Optional imports with an error that names the pip line."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from vidvec_msg.errors import RefusedRequest

# import name → the extra of this project that installs it
EXTRAS = {
    "faiss": "cpu",
    "deepspeed": "deepspeed",
    "bitsandbytes": "qlora",
    "open_clip": "open_clip",
    "rapidocr": "ocr",
    "onnxruntime": "ocr",
    "faster_whisper": "asr",
    "wandb": "wandb",
    "mteb": "mteb",
    "ray": "ray",
    "pymilvus": "milvus",
    "milvus_lite": "milvus",
}


def require(module: str, *, purpose: str) -> ModuleType:
    """Imports an optional module.

    Args:
        module: import name, for example ``"faiss"``.
        purpose: what it is needed for, to finish the sentence "… is needed to …".

    Raises:
        RefusedRequest: it is not installed; the message holds the pip line.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        extra = EXTRAS.get(module)
        line = f"pip install 'vidvec-msg[{extra}]'" if extra else f"pip install {module}"
        hint = " (or vidvec-msg[gpu] for the GPU build; never both)" if module == "faiss" else ""
        raise RefusedRequest(f"{module} is needed to {purpose} and is not installed: {line}{hint}") from error

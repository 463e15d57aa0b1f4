"""Dual encoders by open_clip: PE-Core, and what open_clip has trained and converted.

Safetensors only. open_clip itself would unpickle a ``.bin`` if it prefers one; the weights file is therefore
chosen here, before open_clip sees the folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vidvec_msg.embedders.backbone import choose_dtype
from vidvec_msg.embedders.models import combined_digest
from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.extras import require
from vidvec_msg.formats.items import Pixels
from vidvec_msg.runs import digest_of, file_digest

CONFIG = "open_clip_config.json"
HUB = "hf-hub:"
ZOO = "open_clip:"  # MODEL/TAG of open_clip's own lists, or a folder

_SAFE = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")  # open_clip's first choices
_FILES = ["*.json", "*.txt", "*.model", *_SAFE]  # fetched from a hub repository: tokenizer files included
_PRECISION = {torch.float32: "fp32", torch.bfloat16: "pure_bf16", torch.float16: "pure_fp16"}


class OpenClipTowers:
    """Text and image features of an open_clip model.

    Args:
        model: ``hf-hub:ORG/NAME``, ``open_clip:MODEL/TAG``, ``open_clip:MODEL/FILE.safetensors``, or a folder
            with ``open_clip_config.json``, with or without ``open_clip:`` before it.
        revision: commit of a hub repository.
        device: where it runs.
        dtype: a name of :data:`vidvec_msg.embedders.backbone.DTYPES`, or "auto".

    Raises:
        RefusedRequest: open_clip is not installed, there is no such model, its weights are pickled, or they
            do not fit.
    """

    def __init__(self, model: str, *, revision: str | None, device: torch.device, dtype: str) -> None:
        open_clip: Any = require("open_clip", purpose=f"load {model}")
        chosen = choose_dtype(dtype, device)
        try:
            with _root_logger_untouched():
                source = _source(open_clip, model, revision)
                self.model: Any = open_clip.create_model(
                    **source.arguments, precision=_PRECISION[chosen], device=device, require_pretrained=True
                )
                self.tokenizer: Any = open_clip.get_tokenizer(source.arguments["model_name"])
        except RefusedRequest:
            raise
        except (OSError, ValueError, ImportError, KeyError, RuntimeError, AssertionError) as error:
            raise RefusedRequest(f"cannot load the open_clip model {model!r}: {error}") from error
        self.model.eval().requires_grad_(False)
        preprocess = self.model.visual.preprocess_cfg
        made_of = open_clip.transform.PreprocessCfg(**preprocess)
        self._preprocess = open_clip.transform.image_transform_v2(made_of, is_train=False)
        self.device = device
        self._dtype = chosen
        # the same weights in another architecture (QuickGELU) or behind another resize give other vectors
        made = {"model": open_clip.get_model_config(source.arguments["model_name"]), "pixels": preprocess}
        made["quick_gelu"] = source.arguments.get("force_quick_gelu", False)
        self.weights = combined_digest(file_digest(source.weights), digest_of(made))
        self.versions = {"open_clip": str(open_clip.__version__)}
        self.max_tokens = int(self.tokenizer.context_length)
        self.dim = self.texts(["a"]).shape[1]

    @property
    def dtype(self) -> str:
        """Arithmetic of the model."""
        return str(self._dtype).removeprefix("torch.")

    def wording(self, text: str) -> str:
        """The text as it is: open_clip's tokenizers clean and lower it themselves."""
        return text

    def count_tokens(self, wording: str) -> int:
        """Tokens of a text before any cut, the tokenizer's own marks included."""
        if hasattr(self.tokenizer, "encode"):  # open_clip's own byte-pair encoding: a mark at either end
            return len(self.tokenizer.encode(wording)) + 2
        inner = self.tokenizer
        return len(inner.tokenizer(inner.clean_fn(wording), verbose=False)["input_ids"])

    @torch.inference_mode()
    def texts(self, wordings: Sequence[str]) -> np.ndarray:
        """Float32 (texts, dim), of any norm."""
        ids = self.tokenizer(list(wordings)).to(self.device)  # (texts, context length)
        features: np.ndarray = self.model.encode_text(ids).float().cpu().numpy()
        return features

    @torch.inference_mode()
    def frames(self, frames: Sequence[Pixels]) -> np.ndarray:
        """Float32 (frames, dim), of any norm, from frames of uint8 (height, width, 3), of any sizes."""
        pixels = torch.stack([self._tensor(frame) for frame in frames])  # (frames, 3, size, size)
        features: np.ndarray = (
            self.model.encode_image(pixels.to(self.device, self._dtype)).float().cpu().numpy()
        )
        return features

    def visual_tokens(self, frame: Pixels) -> int:
        """Patches of one frame; 0 where the vision tower has none (a ResNet)."""
        visual = self.model.visual
        if hasattr(visual, "grid_size"):
            rows, columns = visual.grid_size
            return int(rows * columns)
        patches = getattr(getattr(visual, "trunk", None), "patch_embed", None)
        return int(getattr(patches, "num_patches", 0))

    def _tensor(self, frame: Pixels) -> torch.Tensor:
        from PIL import Image

        tensor: torch.Tensor = self._preprocess(Image.fromarray(frame))
        return tensor


@contextmanager
def _root_logger_untouched() -> Iterator[None]:
    """open_clip logs by ``logging.info``, which gives a root logger without handlers one that prints: every
    line of this project would from then on appear twice."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)


class _Source:
    """What ``open_clip.create_model`` is called with, and the weights file that it will read."""

    def __init__(self, weights: Path, **arguments: Any) -> None:
        self.weights = weights
        self.arguments = arguments


def is_open_clip(model: str) -> bool:
    """Whether a name means open_clip: by its prefix, or a folder with open_clip's config and none of
    transformers'."""
    if model.startswith((HUB, ZOO)):
        return True
    folder = Path(model).expanduser()
    return (folder / CONFIG).is_file() and not _of_transformers(folder / "config.json")


def _of_transformers(config: Path) -> bool:
    """timm writes a config.json too, without a model type."""
    return config.is_file() and '"model_type"' in config.read_text(encoding="utf-8")


def _source(open_clip: Any, model: str, revision: str | None) -> _Source:
    if model.startswith(HUB):
        return _folder_source(_fetched(model.removeprefix(HUB), revision))
    if revision is not None:
        raise RefusedRequest(f"revision is for models of the hub; {model} is none: leave it out")
    name = model.removeprefix(ZOO)
    folder = Path(name).expanduser()
    return _folder_source(folder) if folder.is_dir() else _zoo_source(open_clip, name)


def _fetched(name: str, revision: str | None) -> Path:
    """The local copy of a hub repository, pickled weights left out."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))


def _folder_source(folder: Path) -> _Source:
    if not (folder / CONFIG).is_file():
        raise RefusedRequest(f"{folder} holds no {CONFIG}; an open_clip folder is what push_to_hf_hub writes")
    return _Source(_safe_weights(folder), model_name=f"local-dir:{folder}")


def _safe_weights(folder: Path) -> Path:
    """The file that open_clip will read from a folder.

    Raises:
        RefusedRequest: it would read a pickle, or nobody can say which of several.
    """
    for name in _SAFE:
        if (folder / name).is_file():
            return folder / name
    safe = sorted(folder.glob("*.safetensors"))
    pickled = sorted(path.name for path in folder.glob("*") if path.suffix in (".bin", ".pth", ".pt"))
    if len(safe) == 1 and not pickled:
        return safe[0]
    seen = ", ".join([*(path.name for path in safe), *pickled]) or "no weights"
    raise RefusedRequest(
        f"{folder} holds no {_SAFE[0]}, but {seen}: pickled weights run code when they are opened, and of "
        f"several files it is not clear which are meant. Keep one .safetensors file, named {_SAFE[0]}."
    )


def _zoo_source(open_clip: Any, name: str) -> _Source:
    """A model of open_clip's list, with weights of its list or from a file."""
    architecture, _, tag = name.partition("/")
    known = open_clip.list_models()
    if architecture not in known:
        raise RefusedRequest(
            f"open_clip knows no model {architecture!r}{did_you_mean(architecture, known)}; accepted are "
            f"{ZOO}MODEL/TAG, {ZOO}MODEL/FILE.safetensors, {HUB}ORG/NAME, and a folder with {CONFIG}"
        )
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    listed = open_clip.get_pretrained_cfg(architecture, tag) if tag in tags else None
    if listed is None and not Path(tag).is_file():
        raise RefusedRequest(
            f"open_clip has no weights {tag!r} for {architecture}{did_you_mean(tag, tags)}; it has "
            f"{', '.join(tags) or 'none'}; a .safetensors file is accepted too"
        )
    weights = Path(open_clip.download_pretrained(listed) if listed else tag)
    if weights.suffix != ".safetensors":
        raise RefusedRequest(
            f"the weights {tag!r} of {architecture} are in {weights.name}, which would have to be unpickled, "
            f"and that runs code. Take {HUB}ORG/NAME of a repository with safetensors, or save the model as "
            ".safetensors."
        )
    arguments: dict[str, Any] = {"model_name": architecture, "pretrained": tag}
    if listed and listed.get("quick_gelu"):
        arguments["force_quick_gelu"] = True  # trained so; open_clip only warns of the mismatch
    return _Source(weights, **arguments)

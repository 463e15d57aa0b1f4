"""The embedded default: a tiny multimodal LLM that really sees, and its procedural world of clips.

It proves the mechanism (text-only training moves pixels) on its own little world. It is **not** a model
for real videos, and stories it never saw do not transfer.

* `stories`: 32 micro-stories, what they show and what they mean; `drawing`, `scenes`, `clips`: how they look
* `collections`: the world as .mp4 files, a collection with splits, and training pairs
* `model`, `lessons`, `pretrain`, `build`: from a seed to the weights in `weights_dir()`
* `matching`, `yes_no`, `build_yes_no`: from those to the adapter in `yes_no_dir()`, which answers whether a
  clip shows a sentence

Importing this module loads nothing heavy.
"""

from __future__ import annotations

from pathlib import Path


def weights_dir() -> Path:
    """The folder with the shipped weights; transformers' Auto classes open it."""
    return Path(__file__).parent / "weights"


def yes_no_dir() -> Path:
    """The folder with the shipped yes/no skill: a PEFT adapter of the weights in `weights_dir()`."""
    return Path(__file__).parent / "weights_yes_no"

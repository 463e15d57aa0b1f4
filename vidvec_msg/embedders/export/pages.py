"""The README.md of a model folder: its templates, and the parts that every one of them has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.models import TINYWORLD
from vidvec_msg.embedders.training_record import TrainingRecord

PAGE = "README.md"

# what people write in such a column that a hub takes for a language
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def render(template: str, content: Mapping[str, Any]) -> str:
    """A page.

    Args:
        template: its name, without endings.
        content: every variable of the template; one that is missing is an error.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("vidvec_msg.embedders.export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    pages.filters |= {"words": quoted, "cell": _cell, "counted": _counted}
    page = pages.get_template(f"{template}.md.jinja").render(content)
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


def quoted(words: str) -> str:
    """As a Python string between double quotes."""
    return json.dumps(words, ensure_ascii=False)


def _cell(text: str) -> str:
    """As it can stand in a table."""
    return " ".join(text.replace("|", "\\|").split())


def _counted(values: Mapping[str, int]) -> str:
    named = [f"{_cell(value) or 'not given'} ({count:,} pairs)" for value, count in values.items()]
    return ", ".join(named)


# --- the header that hubs read ------------------------------------------------------------------------------


def header(
    card: EmbedderCard, training: TrainingRecord | None, *, library: str, adapter: bool = False
) -> dict[str, Any]:
    """What stands between the dashes at the top; nothing that is not known.

    Args:
        card: of the embedder.
        training: how it was trained, if that is known.
        library: that opens the folder.
        adapter: the folder holds an adapter to the base model.
    """
    own = [library, *(["lora"] if adapter else [])]
    tags = ["vidvec-msg", "feature-extraction", "sentence-similarity", "retrieval", *own]
    kinds = [f"{kind}-embedding" for kind in card.modalities]
    return {
        "library": library,
        "base_model": hub_name(card.base_model),
        "relation": "adapter" if adapter else "finetune",
        "languages": languages_of(training),
        "tags": list(dict.fromkeys([*tags, *kinds])),
    }


def hub_name(model: str) -> str:
    """A base model's name on the hub; empty for a folder and for the model inside this package."""
    here = model == TINYWORLD or Path(model).is_absolute() or Path(model).is_dir()
    return model if not here and _HUB_NAME.fullmatch(model) else ""


def base_told(card: EmbedderCard) -> str:
    """The base model for a reader elsewhere, who has no use for folders of this machine."""
    if hub_name(card.base_model):
        revision = f" at revision {card.revision}" if card.revision else ""
        return f"[{card.base_model}](https://huggingface.co/{card.base_model}){revision}"
    if card.base_model == TINYWORLD:
        return "tinyworld, the tiny model inside vidvec-msg"
    return f"{Path(card.base_model).name} (a folder of the machine that it was trained on)"


def languages_of(training: TrainingRecord | None) -> list[str]:
    """Languages that the pairs say they are in."""
    found = {} if training is None else training.pairs.provenance
    values = [value for column in ("language", "lang") for value in found.get(column, ())]
    return list(dict.fromkeys(value for value in values if _LANGUAGE.fullmatch(value)))


# --- the training -------------------------------------------------------------------------------------------


def training_content(training: TrainingRecord | None) -> dict[str, Any]:
    """Variables of training.md.jinja."""
    settings = ""
    if training is not None and training.config:
        settings = yaml.safe_dump(dict(training.config), sort_keys=False, allow_unicode=True).rstrip()
    return {
        "training": training,
        "pairs": None if training is None else training.pairs,
        "settings": settings,
    }


def limits(card: EmbedderCard, training: TrainingRecord | None) -> list[str]:
    """What a reader must not take for granted, a sentence each."""
    found = []
    media = [kind for kind in card.modalities if kind != "text"]
    measured = [] if training is None else [one.kinds for one in training.measurements]
    if training is None:
        found.append("How it was trained is not recorded in this folder.")
    elif media:
        seen = any(kind in both for kind in media for both in measured)
        told = "measured above" if seen else "not measured here"
        found.append(
            f"Only texts were trained on. How well it serves {' and '.join(media)} rests on what the base "
            f"model had learned before, and is {told}."
        )
    if not measured:
        found.append("Its quality was not measured in this fit.")
    elif "text → text" in measured and len(set(measured)) == 1:
        found.append("Measured on texts alone.")
    languages = languages_of(training)
    if languages:
        found.append(
            f"The pairs say that they are in {', '.join(languages)}; other languages were not looked at."
        )
    else:
        found.append("The language of the pairs is not recorded; other languages were not looked at.")
    known = {} if training is None else training.pairs.provenance
    licences = [value or "none given" for name in ("license", "licence") for value in known.get(name, ())]
    told = (
        f"The pairs name these licences: {', '.join(licences)}." if licences else "The pairs name no licence."
    )
    found.append(f"{told} The base model's licence holds for its weights; neither was examined here.")
    found.append(
        "Not evaluated: bias, safety, texts and clips much longer or shorter than those above, and any use "
        "but retrieval."
    )
    return found

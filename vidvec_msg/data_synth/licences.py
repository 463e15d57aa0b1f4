"""Whose personas they are: the licence that goes on with what is made from them."""

from __future__ import annotations

import re
from pathlib import Path

PERSONA_HUB = "cc-by-nc-sa-4.0"
_PERSONA_HUB_FILES = re.compile(r"persona\.jsonl|elite_persona.*|persona_?hub.*", re.IGNORECASE)
_MODEL = "The generating model's own terms apply too."
_NOTE = (
    "The personas come from PersonaHub (Ge et al. 2024, arXiv 2406.20094), whose data is under "
    "CC-BY-NC-SA-4.0: what is made from them is for non-commercial use, under the same licence, with the "
    f"authors named. {_MODEL}"
)


def licence_of(path: Path, given: str | None) -> tuple[str, str]:
    """The licence of a persona file, and a note for the card.

    Args:
        path: of the file.
        given: what the user says; None guesses from the file's name, on the careful side.
    """
    if given is not None:
        stated = f"The personas are under {given}, as stated for the run. {_MODEL}"
        return given.casefold(), _NOTE if given.casefold() == PERSONA_HUB else stated
    if _PERSONA_HUB_FILES.fullmatch(path.name):
        told = f"(Told from the file's name, {path.name}; --personas_licence says otherwise.)"
        return PERSONA_HUB, f"{_NOTE} {told}"
    return "unknown", (
        f"The licence of the personas in {path.name} is not known: --personas_licence says it. PersonaHub's "
        f"are under CC-BY-NC-SA-4.0. {_MODEL}"
    )

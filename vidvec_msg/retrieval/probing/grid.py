"""A grid of wordings and frame policies: every combination is a cell, checked before a model is loaded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vidvec_msg.embedders.prompts import (
    AUDIO_SLOT,
    TEXT_SLOT,
    VISUAL_SLOT,
    PromptTemplate,
    resolve_prompt,
    worded_for,
)
from vidvec_msg.errors import Problems, did_you_mean

GIVEN = "as given"
AXES = (
    "prompts",
    "prefixes",
    "query_instructions",
    "document_instructions",
    "transcripts",
    "fps",
    "max_frames",
)
_SLOTS = (TEXT_SLOT, VISUAL_SLOT, AUDIO_SLOT)
_PLACEMENTS = ("before", "after", "none")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")
_WORDS = 40  # characters of an instruction or prefix in a cell's name


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. What is None stays as the embedder has it.

    Args:
        name: for tables: the axes and their values.
        prompt: wording.
        prefix: words before a clip's, an image's or a sound's place; a line of their own.
        instructions: role → system turn.
        transcript: where a clip's transcript goes.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
    """

    name: str
    prompt: PromptTemplate | None = None
    prefix: str | None = None
    instructions: Mapping[str, str] | None = None
    transcript: str | None = None
    fps: float | None = None
    max_frames: int | None = None

    def template(self, own: PromptTemplate) -> PromptTemplate:
        """The wording, of an embedder whose own is given."""
        template = own if self.prompt is None else self.prompt
        if not self.prefix:
            return template
        return replace(
            template,
            video=f"{self.prefix}\n{template.video}",
            image=f"{self.prefix}\n{template.image}",
            audio=f"{self.prefix}\n{template.audio}",
        )


@dataclass(frozen=True)
class Grid:
    """All cells.

    Args:
        cells: the first is the embedder as it was given.
        left_out: combinations that cannot be, and why.
    """

    cells: tuple[Cell, ...]
    left_out: tuple[tuple[str, str], ...]


def read_grid(axes: Mapping[str, Sequence[Any] | None], *, max_cells: int) -> Grid:
    """The cells of some axes, see :data:`AXES`.

    Args:
        axes: name → values; None for an axis that is not varied.
        max_cells: how many may be compared, the embedder as given included.

    Raises:
        RefusedRequest: no axis, an empty or repeating one, an unknown prompt, placeholders that stand for
            nothing, a value out of range, or too many cells; all in one message.
    """
    problems = Problems("probe-prompts")
    varied = {name: list(values) for name, values in axes.items() if values is not None}
    if not varied:
        problems.add(f"the grid has no cells: give values for one or more of {', '.join(AXES)}")
    for name, values in varied.items():
        if not values:
            problems.add(f"{name} is empty, so the grid has no cells; give values or leave it out")
        if len(set(map(repr, values))) < len(values):
            problems.add(f"{name} repeats a value: {', '.join(map(repr, values))}")
        for value in values:
            _note_problem(name, value, problems)
    count = 1
    for values in varied.values():
        count *= len(values)
    if count + 1 > max_cells:
        sizes = " × ".join(f"{len(values)} {name}" for name, values in varied.items())
        problems.add(
            f"the grid has {count} cells ({sizes}) beside the embedder as given, and {max_cells} may be "
            "compared; the more are compared, the more of the best value is luck: leave values out, or raise "
            "--max_cells"
        )
    problems.refuse_if_any()
    cells, left_out = [Cell(GIVEN)], []
    for chosen in itertools.product(*varied.values()):
        cell = _cell(dict(zip(varied, chosen, strict=True)))
        try:
            for words in (cell.instructions or {}).values():
                worded_for(cell.prompt or PromptTemplate(), words)
        except ValueError as error:
            left_out.append((cell.name, str(error)))
            continue
        cells.append(cell)
    return Grid(tuple(cells), tuple(left_out))


def _note_problem(name: str, value: Any, problems: Problems) -> None:
    if name == "prompts":
        try:
            template = resolve_prompt(value)
        except ValueError as error:
            problems.add(str(error))
            return
        for field in ("text", "video", "image", "audio", "instruction"):
            _note_placeholders(f"prompt {value!r}, {field}", getattr(template, field), problems)
    elif name in ("prefixes", "query_instructions", "document_instructions"):
        _note_placeholders(f"{name} {value!r}", value, problems, slots=())
    elif name == "transcripts" and value not in _PLACEMENTS:
        problems.add(f"transcripts: {value!r}; accepted are {', '.join(_PLACEMENTS)}")
    elif name in ("fps", "max_frames") and not value > 0:
        problems.add(f"{name}: {value!r} must be above 0")


def _note_placeholders(where: str, words: str, problems: Problems, slots: Sequence[str] = _SLOTS) -> None:
    """A misspelled slot would be read out to the model as it stands."""
    for found in dict.fromkeys(_PLACEHOLDER.findall(words)):
        if found not in slots:
            accepted = f"slots are {', '.join(slots)}" if slots else "no placeholders are filled in here"
            problems.add(f"{where}: unknown placeholder {found}{did_you_mean(found, slots)}; {accepted}")


def _cell(chosen: Mapping[str, Any]) -> Cell:
    given = {"query": chosen.get("query_instructions"), "document": chosen.get("document_instructions")}
    instructions = {role: words for role, words in given.items() if words is not None}
    prompt = chosen.get("prompts")
    labels = {
        "prompts": "prompt", "prefixes": "prefix", "query_instructions": "query", "transcripts": "transcript",
        "document_instructions": "document",
    }  # fmt: skip
    name = ", ".join(f"{labels.get(axis, axis)}={_shown(value)}" for axis, value in chosen.items())
    return Cell(
        name,
        prompt=None if prompt is None else resolve_prompt(prompt),
        prefix=chosen.get("prefixes"),
        instructions=instructions or None,
        transcript=chosen.get("transcripts"),
        fps=chosen.get("fps"),
        max_frames=chosen.get("max_frames"),
    )


def _shown(value: Any) -> str:
    text = str(value) if value != "" else "none"
    return text if len(text) <= _WORDS else text[: _WORDS - 1] + "…"

"""Prompt templates: versioned YAML files with the words, the axes of variety, and the form of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from string import Formatter
from typing import Any

from vidvec_msg.data_synth.chat import Prompt
from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean, nearest
from vidvec_msg.runs import digest_of
from vidvec_msg.yaml_files import read_table

SHIPPED = Path(__file__).parent / "templates"
_KEYS = ("version", "about", "system", "user", "axes", "schema")


@dataclass(frozen=True, slots=True)
class Template:
    """The wording of one kind of request.

    Args:
        version: name and number; stands in every row that it made.
        system: the standing instruction.
        user: the request, with fields in braces.
        axes: field → values, of which each request gets one by seed; what keeps answers apart.
        schema: JSON schema of the answer.
        sha: 16 hex digits of all of it.
    """

    version: str
    system: str
    user: str
    axes: Mapping[str, Sequence[str]]
    schema: Mapping[str, Any]
    sha: str

    def prompt(self, **values: str) -> Prompt:
        """The words of one request.

        Args:
            values: of every field; braces in them stay as they are.
        """
        return Prompt(self.system.format(**values), self.user.format(**values), self.schema)

    def drawn(self, seed: int, text: str) -> dict[str, str]:
        """One value of every axis, by seed and text: the same in every run, whatever else is asked for."""
        return {axis: values[_draw(seed, axis, text) % len(values)] for axis, values in self.axes.items()}


def _draw(seed: int, axis: str, text: str) -> int:
    return int.from_bytes(blake2b(f"{seed}\0{axis}\0{text}".encode(), digest_size=8).digest(), "big")


def load_template(source: str | Path, *, fields: Sequence[str], answers: Sequence[str]) -> Template:
    """Reads a template.

    Args:
        source: a YAML file, or the name of a shipped one.
        fields: that the request has to have beside the axes, for example ``("persona",)``.
        answers: fields that its schema has to ask for.

    Raises:
        RefusedRequest: with every problem of the template.
    """
    path = _path_of(source)
    content = read_table(path, what="template", holds=", ".join(_KEYS))
    problems = Problems(f"template {path}")
    for key in content:
        if key not in _KEYS:
            problems.add(f"unknown key {key!r}{did_you_mean(str(key), _KEYS)}; known: {', '.join(_KEYS)}")
    for key in ("version", "system", "user"):
        if not isinstance(content.get(key), str) or not content[key].strip():
            problems.add(f"{key} is missing or no text")
    axes = _checked_axes(content.get("axes") or {}, fields, problems)
    schema = _checked_schema(content.get("schema"), answers, problems)
    problems.refuse_if_any()
    _check_fields(content["system"], content["user"], [*fields, *axes], problems)
    problems.refuse_if_any()
    parts = {"system": content["system"].strip(), "user": content["user"].strip()}
    sha = digest_of([parts, axes, schema])[:16]
    return Template(content["version"], parts["system"], parts["user"], axes, schema, sha)


def _path_of(source: str | Path) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    shipped = {one.stem: one for one in sorted(SHIPPED.glob("*.yaml"))}
    if str(source) in shipped:
        return shipped[str(source)]
    near = nearest(str(source), shipped)
    raise RefusedRequest(
        f"template {source}: no such file{f' (did you mean {near!r}?)' if near else ''}; give a YAML file, "
        f"or one of {', '.join(shipped)}"
    )


def _checked_axes(axes: Any, fields: Sequence[str], problems: Problems) -> dict[str, list[str]]:
    if not isinstance(axes, dict):
        problems.add("axes is no table of name: [values]")
        return {}
    for name, values in axes.items():
        if name in fields:
            problems.add(f"axis {name!r} has the name of a field that every request has")
        good = isinstance(values, list) and values and all(isinstance(v, str) and v.strip() for v in values)
        if not good:
            problems.add(f"axis {name!r} needs a list of texts")
    return dict(axes)


def _checked_schema(schema: Any, answers: Sequence[str], problems: Problems) -> dict[str, Any]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        problems.add(f"schema is no JSON schema of an object with {', '.join(answers)}")
        return {}
    missing = [name for name in answers if name not in properties]
    if missing:
        problems.add(f"schema does not ask for {', '.join(missing)}")
    return dict(schema)


def _check_fields(system: str, user: str, known: Sequence[str], problems: Problems) -> None:
    """Every field of the words is known, and every known one is used."""
    used: set[str] = set()
    for where, text in (("system", system), ("user", user)):
        try:
            found = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
        except ValueError as error:
            problems.add(f"{where}: {error}; braces of its own are written twice: {{{{ }}}}")
            continue
        for name in found:
            if name not in known:
                problems.add(
                    f"{where}: unknown field {{{name}}}{did_you_mean(name, known)}; known: "
                    f"{', '.join(known)} (braces of its own are written twice: {{{{ }}}})"
                )
        used.update(found)
    for name in known:
        if name not in used:
            problems.add(f"{{{name}}} is used nowhere; write it into system or user, or remove the axis")

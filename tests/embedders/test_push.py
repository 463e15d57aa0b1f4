"""An embedder on a hub: byte for byte, in one commit, the token in its header and nowhere else."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from embedders.hub_server import TOKEN, running_hub
from embedders.test_merge import KINDS, adapted
from safetensors.torch import load_file, save_file

from vidvec_msg.cli import main
from vidvec_msg.embedders.export.verb import export
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.merge import merge
from vidvec_msg.embedders.push import push
from vidvec_msg.embedders.saved import save_embedder
from vidvec_msg.embedders.training_record import TrainingRecord
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item

ITEMS = [Item("a", text="a dog"), Item("b", text="Keep trying.")]


@pytest.fixture(scope="module")
def embedder(tiny, llm, tmp_path_factory):
    """An embedder folder with an adapter and a model card."""
    out = tmp_path_factory.mktemp("push") / "embedder"
    card = dataclasses.replace(llm(dtype="float32").card, name="mine", weights="", versions={})
    model = adapted(tiny(), **KINDS["lora"])
    save_embedder(out, model=model, card=card, training=TrainingRecord(steps=3))
    return out


@pytest.fixture(scope="module")
def whole(embedder):
    return merge(str(embedder), embedder.parent / "whole")


@pytest.fixture
def copy(embedder, tmp_path):
    return Path(shutil.copytree(embedder, tmp_path / "copy"))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that the client reaches, with a token, without waiting between its attempts."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_hub() as made:
        yield made


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_files_arrive_byte_for_byte_in_one_commit(hub, embedder, capfd):
    words = ["push", "--embedder", str(embedder), "--to", "ann/mine", "--endpoint", hub.url]
    assert main([*words, "--private"]) == 0
    arrived = hub.repositories["ann/mine"]["main"]
    del arrived[".gitattributes"]
    assert arrived == content(embedder)
    assert set(arrived) == {
        *("README.md", "training.json", "embedder.json", "adapter_config.json", "adapter_model.safetensors")
    }
    assert hub.steps.count("commit") == 1
    assert hub.private == {"ann/mine"}
    told = capfd.readouterr()
    assert f"{embedder} → ann/mine at {hub.url}, private\n" in told.out
    assert "  adapter_model.safetensors" in told.out
    assert f"{hub.url}/ann/mine/commit/{hub.commits['ann/mine', 'main'][-1]}" in told.out
    assert "pushed 5 files, " in told.err


def test_the_token_is_in_the_header_and_nowhere_else(hub, embedder, capfd, caplog):
    caplog.set_level("DEBUG")
    push(embedder, "ann/mine", endpoint=hub.url)
    for asked, step, headers in hub.asked:
        assert TOKEN not in asked
        given = {name.lower(): value for name, value in headers.items() if TOKEN in value}
        assert given == ({} if step == "put" else {"authorization": f"Bearer {TOKEN}"}), step
    told = capfd.readouterr()
    assert TOKEN not in told.out + told.err + caplog.text
    assert not any(TOKEN.encode() in data for data in hub.repositories["ann/mine"]["main"].values())


def test_what_was_pushed_opens_with_the_same_vectors(hub, whole, tmp_path):
    push(whole, "ann/whole", endpoint=hub.url)
    for name, data in hub.repositories["ann/whole"]["main"].items():
        (tmp_path / "got").mkdir(exist_ok=True)
        (tmp_path / "got" / name).write_bytes(data)
    one, other = (load_embedder(folder).encode(ITEMS, role="query") for folder in (whole, tmp_path / "got"))
    np.testing.assert_array_equal(one, other)


def test_an_exported_folder_with_its_modules(hub, embedder, tmp_path):
    folder = export(str(embedder), tmp_path / "exported", to="transformers")
    (folder / "1_Pooling").mkdir()  # as a folder for sentence-transformers has it
    (folder / "1_Pooling" / "config.json").write_text("{}")
    push(folder, "ann/st", endpoint=hub.url)
    arrived = hub.repositories["ann/st"]["main"]
    assert {"export.json", "README.md", "model.safetensors"} <= set(arrived)
    assert arrived["1_Pooling/config.json"] == b"{}"


def test_a_branch(hub, embedder):
    hub.make("ann/mine")
    push(embedder, "ann/mine", revision="trial", endpoint=hub.url)
    push(embedder, "ann/mine", revision="trial", endpoint=hub.url)  # it is there now
    assert set(hub.repositories["ann/mine"]["main"]) == {".gitattributes"}
    assert "embedder.json" in hub.repositories["ann/mine"]["trial"]


def test_a_dry_run_asks_nobody(hub, embedder, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    push(embedder, "ann/mine", endpoint=hub.url, dry_run=True)
    assert hub.asked == []
    assert capsys.readouterr().out.endswith("dry run: nothing was uploaded\n")


def test_states_and_strangers_are_left_out(hub, copy, capsys):
    for name in ("optimizer.safetensors", "last.ckpt", "weights.bin", ".token", "trainer_state.json"):
        (copy / name).write_bytes(b"mine")
    (copy / "checkpoints" / "deep").mkdir(parents=True)
    (copy / "checkpoints" / "deep" / "model.safetensors").write_bytes(b"mine")
    (copy / "LICENSE").write_text("as you like")
    push(copy, "ann/mine", endpoint=hub.url)
    arrived = hub.repositories["ann/mine"]["main"]
    assert b"mine" not in arrived.values()
    assert arrived["LICENSE"] == b"as you like"
    told = capsys.readouterr().out
    assert "left out: checkpoints (no folder of a model)\n" in told
    assert "left out: optimizer.safetensors (the state of a training)\n" in told
    assert "left out: last.ckpt (no file of a model)\n" in told
    assert "left out: .token (hidden)\n" in told


def test_a_base_model_on_this_machine_is_told(hub, embedder, whole, capsys, tiny):
    push(embedder, "ann/mine", endpoint=hub.url, dry_run=True)
    told = capsys.readouterr().out
    assert (
        f"names the base model as a folder of this machine, {tiny()}: whoever downloads the adapter" in told
    )
    push(whole, "ann/mine", endpoint=hub.url, dry_run=True)
    assert "it is only told there" in capsys.readouterr().out


# --- what stands in the repository --------------------------------------------------------------------------


def test_files_of_another_model_would_mix(hub, embedder, whole):
    push(embedder, "ann/mine", endpoint=hub.url)
    hub.repositories["ann/mine"]["main"]["picture.png"] = b"theirs"
    with pytest.raises(
        RefusedRequest, match=r"holds 2 model files .*\(adapter_config\.json, adapter_model\.s"
    ):
        push(whole, "ann/mine", endpoint=hub.url)
    push(whole, "ann/mine", endpoint=hub.url, replace=True)
    arrived = hub.repositories["ann/mine"]["main"]
    assert "adapter_config.json" not in arrived
    assert {"model.safetensors", "picture.png"} <= set(arrived)


def test_private_on_a_public_repository(hub, embedder):
    hub.make("ann/mine")
    with pytest.raises(RefusedRequest, match="exists and is public; --private would not hold"):
        push(embedder, "ann/mine", private=True, revision="v2", endpoint=hub.url)
    assert "commit" not in hub.steps
    assert set(hub.repositories["ann/mine"]) == {"main"}  # no branch either


# --- refused by the hub -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "status", "kind", "message"),
    [
        (
            "create",
            401,
            RefusedRequest,
            r"does not accept the token \(401\): set HF_TOKEN to a token with wr",
        ),
        ("create", 403, RefusedRequest, r"may not write to ann/mine \(403\): it needs write access to ann\."),
        ("commit", 403, RefusedRequest, r"may not write to ann/mine \(403\)"),
        ("commit", 409, JobFailed, r"changed by somebody else meanwhile \(409\); nothing was published"),
        ("commit", 412, JobFailed, r"changed by somebody else meanwhile \(412\)"),
        ("create", 500, JobFailed, r"failed \(500\), several times; nothing was published\. Run it again"),
        ("preupload", 503, JobFailed, r"failed \(503\), several times"),
        ("batch", 502, JobFailed, r"failed \(502\)"),
        ("put", 500, JobFailed, r"failed \(500\)"),
        ("commit", 504, JobFailed, r"failed \(504\)"),
        ("preupload", 404, RefusedRequest, r"the hub refused ann/mine \(404\)"),
        ("commit", 413, RefusedRequest, r"the hub refused ann/mine \(413\)"),
    ],
)
def test_what_the_hub_refuses(hub, embedder, step, status, kind, message, capfd):
    hub.refuses[step] = status
    hub.says = f"because of {TOKEN}"  # a careless server
    with pytest.raises(kind, match=message) as caught:
        push(embedder, "ann/mine", endpoint=hub.url)
    assert TOKEN not in str(caught.value)
    if "The hub says" in str(caught.value):
        assert "because of ***" in str(caught.value)
    told = capfd.readouterr()
    assert TOKEN not in told.out + told.err
    assert "embedder.json" not in hub.repositories.get("ann/mine", {"main": {}})["main"]


def test_another_token_than_the_hubs(hub, embedder, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    words = ["push", "--embedder", str(embedder), "--to", "ann/mine", "--endpoint", hub.url]
    assert main(words) == 2
    told = capsys.readouterr()
    assert "does not accept the token (401)" in told.err
    assert "hf_wrong" not in told.out + told.err


def test_somebody_else_commits_meanwhile(hub, embedder, monkeypatch):
    real = hub.RequestHandlerClass._preupload

    def slow(self, repo, branch):
        hub.commits[repo, branch].append("f" * 40)
        real(self, repo, branch)

    monkeypatch.setattr(hub.RequestHandlerClass, "_preupload", slow)
    with pytest.raises(JobFailed, match=r"changed by somebody else meanwhile \(412\).*A commit has happened"):
        push(embedder, "ann/mine", endpoint=hub.url)


def test_no_network(hub, embedder, capsys):
    nobody = "http://127.0.0.1:9"  # the port of "discard"
    words = ["push", "--embedder", str(embedder), "--to", "ann/mine", "--endpoint", nobody]
    assert main(words) == 1
    assert f"{nobody} cannot be reached (ConnectError: " in capsys.readouterr().err


def test_no_hub_at_that_address(hub, embedder, monkeypatch):
    def page(self):
        self.send_response(200)
        self.send_header("Content-Length", "13")
        self.end_headers()
        self.wfile.write(b"<html></html>")

    monkeypatch.setattr(hub.RequestHandlerClass, "_create", page)
    with pytest.raises(JobFailed, match="answered something that is no answer of a hub"):
        push(embedder, "ann/mine", endpoint=hub.url)


def test_no_token_and_offline(hub, embedder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(RefusedRequest, match=r"there is no token for the hub: set HF_TOKEN .*hf auth login"):
        push(embedder, "ann/mine", endpoint=hub.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RefusedRequest, match="HF_HUB_OFFLINE is set, which forbids the client the network"):
        push(embedder, "ann/mine", endpoint=hub.url)
    assert hub.asked == []


def test_a_model_card_that_is_not_understood(hub, copy):
    (copy / "README.md").write_text("---\n[: \n---\n")
    with pytest.raises(RefusedRequest, match=r"does not take this: Invalid metadata in README\.md"):
        push(copy, "ann/mine", endpoint=hub.url)


# --- refused before anybody is asked ------------------------------------------------------------------------


def rewrite(path, change):
    save_file({name: change(tensor) for name, tensor in load_file(path).items()}, path, {"format": "pt"})


def test_weights_that_are_not_published(copy, whole, tmp_path):
    rewrite(copy / "adapter_model.safetensors", lambda tensor: torch.full_like(tensor, torch.nan))
    with pytest.raises(RefusedRequest, match="is not finite; the training diverged"):
        push(copy, "ann/mine")
    rewrite(copy / "adapter_model.safetensors", torch.zeros_like)
    with pytest.raises(RefusedRequest, match="every lora_B is zero, so the adapter changes nothing"):
        push(copy, "ann/mine")
    (copy / "adapter_model.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(RefusedRequest, match=r"\(40 bytes\) cannot be read"):
        push(copy, "ann/mine")
    other = Path(shutil.copytree(whole, tmp_path / "other"))
    rewrite(other / "model.safetensors", lambda tensor: tensor * 2)
    with pytest.raises(
        RefusedRequest, match=r"its weights are not those that embedder\.json was written for"
    ):
        push(other, "ann/mine")


def test_weights_of_an_exported_folder(embedder, tmp_path):
    folder = export(str(embedder), tmp_path / "plain", to="transformers")
    rewrite(folder / "model.safetensors", lambda tensor: torch.full_like(tensor, torch.inf))
    with pytest.raises(RefusedRequest, match="is not finite; such weights are not published"):
        push(folder, "ann/mine")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})
    )
    with pytest.raises(
        RefusedRequest, match=r"index\.json names model-00001-of-00002\.safetensors, which is n"
    ):
        push(folder, "ann/mine")
    (folder / "model.safetensors").unlink()
    with pytest.raises(RefusedRequest, match=r"holds no \.safetensors file; there is nothing to publish"):
        push(folder, "ann/mine")


def test_other_folders_and_names(embedder, tmp_path, tiny):
    run = tmp_path / "run"
    shutil.copytree(embedder, run / "embedder")
    with pytest.raises(
        RefusedRequest, match=rf"holds no embedder\.json: it is the folder of a fit, .*{run}/em"
    ):
        push(run, "ann/mine")
    with pytest.raises(RefusedRequest, match=r"push takes an embedder folder \(with embedder\.json\), what"):
        push(Path(tiny()), "ann/mine")
    with pytest.raises(RefusedRequest, match="does not exist"):
        push(tmp_path / "nothing", "ann/mine")
    for name in ("mine", "a/b/c", "ann/my embedder"):
        with pytest.raises(RefusedRequest, match="a repository is USER/NAME or ORGANISATION/NAME"):
            push(embedder, name)
    with pytest.raises(RefusedRequest, match="give an address that begins with https:// or http://"):
        push(embedder, "ann/mine", endpoint="hub.example.org")


def test_a_token_does_not_cross_the_network_in_the_clear(hub, embedder, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for address in (
        "http://hub.example.org",
        f"http://{TOKEN}@hub.example.org",
        "http://localhost@1.2.3.4:80",
    ):
        with pytest.raises(RefusedRequest, match="the token would cross the network unencrypted") as caught:
            push(embedder, "ann/mine", endpoint=address)
        assert TOKEN not in str(caught.value) + capsys.readouterr().out
    for address in ("http://localhost:9", "http://127.0.0.1:9", "https://hub.example.org"):
        push(embedder, "ann/mine", endpoint=address, dry_run=True)


@pytest.mark.slow
def test_the_command_with_the_endpoint_of_the_environment(embedder, tmp_path):
    """In a process of its own, as a user has it: HF_ENDPOINT and HF_TOKEN, nothing patched."""
    with running_hub() as hub:
        words = [
            sys.executable,
            "-m",
            "vidvec_msg.cli",
            "push",
            "--embedder",
            str(embedder),
            "--to",
            "ann/mine",
        ]
        own = {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
        }
        environment = {**os.environ, **own, "HF_HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
        environment.pop("TRANSFORMERS_OFFLINE", None)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert hub.repositories["ann/mine"]["main"].items() >= content(embedder).items()
        assert TOKEN not in done.stdout + done.stderr
        assert not any(
            TOKEN in path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
        )

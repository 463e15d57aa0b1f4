"""Every shipped config parses, its template and filters exist, and its numbers are what the verb accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vidvec_msg.cli import run_function
from vidvec_msg.data_synth.chat import Prompt, Sampling
from vidvec_msg.data_synth.filters.chain import build_filters
from vidvec_msg.data_synth.prices import Price, price_of
from vidvec_msg.data_synth.questions import Kind, Question
from vidvec_msg.data_synth.request import check_request
from vidvec_msg.data_synth.template import SHIPPED, load_template
from vidvec_msg.errors import Problems, RefusedRequest

CONFIGS = sorted((Path(__file__).parents[2] / "configs/synth").rglob("*.yaml"))
VERBS = [path for path in CONFIGS if path.name != "prices.yaml"]


@pytest.mark.parametrize("path", VERBS, ids=lambda path: path.name)
def test_a_config_is_the_command_line_of_a_verb(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vidvec_msg.data_synth.benchmark.verb import build_benchmark
    from vidvec_msg.data_synth.filter_verb import filter_pairs
    from vidvec_msg.data_synth.verb import synth

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    verb, source = (
        (build_benchmark, "messages")
        if "provider" in content
        else (synth, "personas")
        if "model" in content
        else (filter_pairs, "pairs")
    )
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("YOUTUBE_API_KEY", "k")
    words = ["--config", str(path), "--out", "/nowhere/o", f"--{source}", "/nowhere/p.jsonl"]
    with pytest.raises(
        RefusedRequest, match="no such file"
    ) as refusal:  # of the missing file, and of nothing else
        run_function(verb, words, program="vidvec-msg")
    assert "2 problems" not in str(refusal.value)


def test_there_are_configs() -> None:
    assert len(VERBS) >= 3


def test_the_price_table_has_the_form_that_is_read() -> None:
    (path,) = [one for one in CONFIGS if one.name == "prices.yaml"]
    assert price_of("google/gemma-3-27b-it", path) == Price(0, 0)
    assert price_of("another", path) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1]", "is no table, but a list; needed are rows of model: {input: DOLLARS, output: DOLLARS} per m"),
        ("{}", "it holds no rows of model"),
        ("m: 3", "m: needs input and output"),
        ("m: {input: 1, output: -2}", "output is -2; it must be a number that is not negative"),
        (
            "m: {input: 1, output: 2, bach_factor: 1}",
            r"unknown field 'bach_factor' \(did you mean 'batch_factor'",
        ),
        ("m: {", "is not YAML"),
    ],
)
def test_price_tables_that_are_none(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(RefusedRequest, match=told):
        price_of("m", path)


def test_prices_by_hand() -> None:
    price = Price(2.0, 8.0)
    assert price.of(1_000_000, 500_000) == 6.0
    assert price.of(1_000_000, 500_000, batch=True) == 3.0
    assert price.most(3_000, 100) == pytest.approx((2 * 1_000 + 8 * 100) / 1e6)


# ---- templates


def template(tmp_path: Path, **changes: Any) -> Path:
    content = {
        "version": "mine_v1",
        "system": "Write. {{}}",
        "user": "Persona: {persona}, {mood}",
        "axes": {"mood": ["glad", "sad"]},
        "schema": {"type": "object", "properties": {"message": {}, "storyline": {}}},
        **changes,
    }
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in content.items() if value is not None}))
    return path


def loaded(path: Path) -> Any:
    return load_template(path, fields=("persona",), answers=("message", "storyline"))


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    made = loaded(template(tmp_path))
    drawn = made.drawn(0, "x")
    prompt = made.prompt(persona="a {braced} baker", **drawn)
    assert prompt.system == "Write. {}"
    assert prompt.user == f"Persona: a {{braced}} baker, {drawn['mood']}"
    assert {made.drawn(0, str(n))["mood"] for n in range(20)} == {"glad", "sad"}
    assert [made.drawn(1, str(n)) for n in range(20)] != [made.drawn(0, str(n)) for n in range(20)]
    assert loaded(template(tmp_path, user="Persona {persona}, {mood}")).sha != made.sha


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"user": "{person} {mood}"},
            r"user: unknown field \{person\} \(did you mean 'persona'\?\); known: persona, mood",
        ),
        (
            {"user": "{persona}"},
            r"\{mood\} is used nowhere; write it into system or user, or remove the axis",
        ),
        ({"user": "{persona} {mood} {"}, "braces of its own are written twice"),
        ({"axes": {"mood": []}}, "axis 'mood' needs a list of texts"),
        ({"axes": {"persona": ["x"]}}, "axis 'persona' has the name of a field that every request has"),
        ({"schema": {"properties": {"message": {}}}}, "schema does not ask for storyline"),
        ({"schema": None}, "schema is no JSON schema of an object with message, storyline"),
        ({"sytem": "x"}, r"unknown key 'sytem' \(did you mean 'system'\?\)"),
        ({"version": None}, "version is missing"),
    ],
)
def test_templates_that_are_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusedRequest, match=told):
        loaded(template(tmp_path, **changes))


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_templates_carry_their_name_as_version(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["version"] == path.stem
    assert set(content["schema"]["required"]) == set(content["schema"]["properties"])


def test_no_filter_is_missing_from_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs/filter-pairs.md").read_text(encoding="utf-8")
    for one in build_filters(None, Problems("x")):
        assert f"`{one.name}`" in page, one.name


def test_check_request_is_given_every_number() -> None:
    from vidvec_msg.data_synth.chat import Sampling

    problems = Problems("synth")
    check_request(
        problems, model=" ", count=1, template="pair_v1", sampling=Sampling(), structured="xml", mode="post",
        prices=None, budget=None, numbers={"poll": (-1, 0)},
    )  # fmt: skip
    assert problems.found == [
        "poll is -1; it must be at least 0",
        "structured is 'xml'; accepted: auto, json_schema, json_object, none",
        "mode is 'post'; accepted: online, batch",
        "model is empty; give its name as the endpoint calls it",
    ]


def test_the_most_that_an_answer_costs_counts_scripts_whose_letters_are_tokens() -> None:
    kind = Kind("m", Sampling(max_tokens=1), dict, Price(input=3e6, output=0))
    latin, chinese = (Question("q", Prompt("", words, {}), {}) for words in ("a" * 300, "\u8bdd" * 300))
    assert kind.most(latin, batch=False) == pytest.approx(300)
    assert kind.most(chinese, batch=False) == pytest.approx(900)  # 300 tokens

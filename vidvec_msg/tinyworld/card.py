"""The card (README.md) that lies beside the weights, written from the build's own log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
---
# tinyworld

A {millions:.1f} M-parameter VideoLlama3 that captions its own little world of procedural clips, made from
scratch on CPUs.

**What it is for.** It proves a mechanism: an adapter trained on text alone (a literal storyline and the
message it carries) moves what the same model makes of *pixels*. It ships so that the whole loop runs
anywhere, offline, in minutes.

**What it is not.** It is not a model for real videos: it has seen nothing but 32 stories of circles,
squares and triangles. Stories it never saw do not transfer. Do not compare its figures with those of any
other model.

## Made by

    {command}

{clips} clips drawn, {steps} steps of {batch} clips, {seconds:.0f} s in all on {threads} CPU thread(s);
seed {seed}; torch {torch}, transformers {transformers}. The same command makes it again (to float rounding).
`build.json` beside this file holds the settings, the environment and the losses.

## Data

Drawn and written for this project, nothing else: see `vidvec_msg/tinyworld` (stories, scenes, lessons).
Pretraining saw (clip, literal caption), (caption, caption) and (message, paraphrase of the same message),
and never a caption or a clip together with a message. Two paraphrases of every message were kept from
everything.

## Architecture

Stock `VideoLlama3ForConditionalGeneration`: Qwen2 text part of width {width}, {layers} layers; vision part
of width {vision_width}, {vision_layers} layers, patches of {patch} px, no merging, no token compression; a
lower-casing BPE of {tokens} tokens. A clip is 8 frames at 2 per second (the middle of every half second),
48 × 48 px: 80 tokens. Weights are stored in bfloat16; load them in float32 on CPUs without bf16 units,
where bf16 is many times slower.

## Figures

Captions (greedy, new clips, weights as stored): right story {story:.0%} of validation clips, {combo:.0%}
of "combo" clips (a main colour that was never drawn with that story); right main actor {actor:.0%}.

{measured}
## Licence

Apache-2.0, weights, clips and texts alike.
"""


def write_card(folder: Path, log: Mapping[str, Any]) -> None:
    """Write README.md into a weights folder; figures added later under ``log["gates"]`` become its table."""
    validation, combo = log["captions"]["validation"], log["captions"]["combo"]
    text = _CARD.format(
        millions=log["parameters"] / 1e6,
        command=log["command"],
        clips=log["clips"],
        steps=log["schedule"]["steps"],
        batch=log["batch"],
        seconds=log["seconds"]["total"],
        threads=log["threads"],
        seed=log["seed"],
        torch=log["versions"]["torch"],
        transformers=log["versions"]["transformers"],
        tokens=log["tokens"],
        story=validation["right_story"],
        combo=combo["right_story"],
        actor=validation["right_actor"],
        measured=gates_table(log.get("gates")),
        **{name: log["size"][name] for name in ("width", "layers", "vision_width", "vision_layers", "patch")},
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def gates_table(gates: Mapping[str, Any] | None) -> str:
    """The figures of :mod:`vidvec_msg.tinyworld.gates` as Markdown; empty without figures."""
    if not gates:
        return ""
    lines = [
        f"Adapters fitted on text alone with configs/train/tinyworld.yaml: `{gates['command']}`. hit@1 in",
        f"percent, mean of {gates['seeds']} adapter seeds on one pretraining seed; 64 messages and 256 test",
        "clips (128 combo clips) as .mp4 files; chance is 3.1. No setting was chosen on the test split.",
        "",
        "| | message → video | video → message |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {row['what']} | {row['mean'][0]:.1f} | {row['mean'][1]:.1f} |"
        for row in gates["conditions"].values()
    ]
    return "\n".join(lines) + "\n"


_SKILL_CARD = """---
license: apache-2.0
library_name: peft
base_model: tinyworld
---
# tinyworld's yes/no skill

A LoRA adapter (rank {rank}, {thousands:.0f} k parameters) on the language model of tinyworld, the model in
`vidvec_msg/tinyworld/weights`. Asked whether a clip shows a sentence, it answers.

**What it is for.** It shows the reranker (`vidvec-msg rerank`, docs/rerank.md) on real pixels:
`mllm:tinyworld?adapter=FOLDER&wording=respond&yes=Y&no=No`. The tokenizer writes "Yes" as two tokens; the
first, which is also the whole word "Y", stands for it.

**What it is not.** It was taught on literal sentences about clips of its own little world, and never on
messages. It is no embedder: hidden states under this adapter are not those of docs/tinyworld.md.

## Made by

    {command}

{clips} clips drawn, {steps} steps of {batch} clips with four questions each, {seconds:.0f} s in all
({processor:.0f} s of processor time) on {threads} CPU thread(s); seed {seed}; torch {torch}, transformers
{transformers}, peft {peft}. `build.json` beside this file holds settings and losses.

## Data

Clips drawn anew; half of the sentences right, half wrong. In the first {easy} steps the wrong ones tell of
other stories, in those after it they are wrong in one of five ways (`vidvec_msg/tinyworld/matching.py`).
The last caption and the last gist of every story were kept from it.

## Figures

128 new clips each, sentences in wordings kept from it. AUC: a right sentence is above a wrong one. Within
a clip: a clip's right sentence is above its wrong one. Accuracy: yes or no is right. Chance is 50% for all.

{measured}
## Licence

Apache-2.0.
"""


_SKILL_SETTINGS = ("rank", "command", "clips", "steps", "easy", "batch", "threads", "seed")


def write_skill_card(folder: Path, log: Mapping[str, Any]) -> None:
    """Write README.md into the folder of the yes/no adapter, from its build's own log."""
    text = _SKILL_CARD.format(
        thousands=log["parameters"] / 1e3,
        seconds=log["seconds"]["total"],
        processor=log["seconds"]["processor"],
        measured=skill_table(log["scores"]),
        **{name: log["versions"][name] for name in ("torch", "transformers", "peft")},
        **{name: log[name] for name in _SKILL_SETTINGS},
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def skill_table(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Scores by kinds of wrong sentences (`yes_no_scores.matching_scores`) of several sets of clips as
    Markdown."""
    lines = ["| clips | wrong sentence | AUC | within a clip | accuracy |", "| --- | --- | --- | --- | --- |"]
    for clips, kinds in scores.items():
        for kind, found in kinds.items():
            figures = (f"{100 * found[name]:.1f}" for name in ("auc", "order", "accuracy"))
            lines.append(f"| {clips} | {kind} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"

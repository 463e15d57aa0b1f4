"""Runs every benchmark in a fresh process and writes what they measured.

    python benchmarks/run.py                 all of them but the slow: quality
    python benchmarks/run.py metrics search  some, by the part of their name after bench_

Each ``benchmarks/bench_*.py`` prints one JSON line per claim to stdout:

    {"claim": …, "ours": …, "peer": …, "unit": "s", "ratio": …, "bar": …, "ok": true, "note": …}

``ratio`` is how many times better ours is, ``bar`` what the project promises, ``ok`` whether it holds (null
for what this machine cannot measure; the note says why). All lines go to ``results.json``, with
the facts of the machine, and as a table to ``README.md``.
Exit code 1 if a script fails or a claim does not hold.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = (
    "vidvec-msg",
    "numpy",
    "numba",
    "ranx",
    "pytrec-eval-terrier",
    "faiss-cpu",
    "torch",
    "transformers",
    "peft",
    "pytorch-lightning",
    "sentence-transformers",
    "decord2",
    "av",
)
SLOW = {"quality"}  # hours; runs where it is named
FIELDS = ("claim", "ours", "peer", "unit", "ratio", "bar", "ok", "note")
# a line's ok, in words: on the terminal, and in the table
REACHED = {True: "reached", False: "NOT reached", None: "not measured"}
HOLDS = {True: "yes", False: "**no**", None: "not measured"}
TABLE_STARTS, TABLE_ENDS = "<!-- results: written by run.py -->", "<!-- end of results -->"


def main(names: list[str]) -> int:
    """Runs the chosen scripts, gathers their lines and writes the two files."""
    known = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}\n")
        return 2
    gathered = _earlier()
    failed = []
    for name in names or [name for name in known if name not in SLOW]:
        sys.stderr.write(f"bench_{name} …\n")
        lines = _run(known[name])
        if lines is None:
            failed.append(name)
        else:
            gathered[name] = {"machine": machine(), "lines": lines}
    (HERE / "results.json").write_text(
        json.dumps(gathered, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    _write_table(gathered)
    missed = [line["claim"] for name in gathered for line in gathered[name]["lines"] if line["ok"] is False]
    for text in [f"bench_{name} failed" for name in failed] + [f"not reached: {claim}" for claim in missed]:
        sys.stderr.write(f"{text}\n")
    return 1 if failed or missed else 0


def machine() -> dict[str, Any]:
    """What the numbers depend on: processor, cores, software, date."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _run(script: Path) -> list[dict[str, Any]] | None:
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return None
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        lacking = [field for field in FIELDS if field not in line]
        if lacking:
            raise SystemExit(f"{script.name}: a line lacks {', '.join(lacking)}: {line}")
        sys.stderr.write(f"  {line['claim']}: {_ratio(line)} ({REACHED[line['ok']]})\n")
    return lines


def _earlier() -> dict[str, Any]:
    path = HERE / "results.json"
    if not path.is_file():
        return {}
    earlier = json.loads(path.read_text(encoding="utf-8"))
    return {name: entry for name, entry in earlier.items() if (HERE / f"bench_{name}.py").is_file()}


def _write_table(gathered: dict[str, Any]) -> None:
    """Replaces the table in README.md, between its two markers."""
    rows = [
        "| claim | ours | peer | ratio | bar | holds | note |",
        "| --- | ---: | ---: | ---: | ---: | :-: | --- |",
    ]
    facts = []
    for name in sorted(gathered):
        entry = gathered[name]
        for line in entry["lines"]:
            cells = [
                line["claim"],
                _amount(line["ours"], line["unit"]),
                _amount(line["peer"], line["unit"]),
                _ratio(line),
                "" if line["bar"] is None else f"{line['bar']:g}×",
                HOLDS[line["ok"]],
                line["note"],
            ]
            rows.append(f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |")
        about = entry["machine"]
        versions = ", ".join(f"{package} {found}" for package, found in about["versions"].items())
        facts.append(
            f"- `bench_{name}.py`, {about['date']}: {about['cpu']}, {about['cores']} cores, OMP_NUM_THREADS "
            f"{about['threads']}, {about['system']}, Python {about['python']}; {versions}"
        )
    table = "\n".join([TABLE_STARTS, "", *rows, "", *facts, "", TABLE_ENDS])
    readme = HERE / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(TABLE_STARTS)
    readme.write_text(before + table + rest.partition(TABLE_ENDS)[2], encoding="utf-8")


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g} {unit}"


def _ratio(line: dict[str, Any]) -> str:
    return "" if line["ratio"] is None else f"{line['ratio']:.2g}×"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

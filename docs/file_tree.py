"""Writes the file tree into README.md, from the first sentence of each module's docstring.

python docs/file_tree.py           rewrite it between the markers
python docs/file_tree.py --check   exit 1 if it is out of date (a test calls this)
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- tree: begin -->", "<!-- tree: end -->"
COLUMN = 31

# what has no docstring, and the folders that are not opened here
OTHERS = [
    ("train.py", "front door: python train.py fit --config configs/NAME.yaml"),
    ("train/", "programs of training"),
    (
        "retrieval/",
        "programs: annotate_corpus, embed_corpus, build_index, search_index, evaluate_embedder, …",
    ),
    ("data_synth/", "programs: write_pairs, filter_pairs, estimate_cost"),
    ("configs/", "YAML, one folder per job, with measured cost"),
    ("docs/", "a page per verb"),
    ("tests/", "mirrors vidvec_msg/"),
    ("benchmarks/", "speed and memory beside the peers, one script a claim"),
]


def tree() -> str:
    lines = [_line(name, text, 0) for name, text in OTHERS]
    package = ROOT / "vidvec_msg"
    lines += ["vidvec_msg/"]
    lines += [_line(path.name, _sentence(path), 1) for path in sorted(package.glob("[!_]*.py"))]
    folders = ("formats", "media", "embedders", "train", "retrieval", "data_synth", "tinyworld", "samples")
    for folder in folders:
        lines.append(_line(f"{folder}/", _sentence(package / folder / "__init__.py"), 1))
        paths = sorted((package / folder).rglob("*.py"), key=lambda path: (len(path.parts), path))
        for path in paths:
            if path.name != "__init__.py":
                name = path.relative_to(package / folder).as_posix()
                lines.append(_line(name, _sentence(path), 2))
    return "\n".join(lines)


def _sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split()).replace("``", "").rstrip(".")
    return re.sub(r":\w+:`(\w+)`", r"\1", paragraph.partition(". ")[0])


def _line(name: str, text: str, depth: int) -> str:
    return ("  " * depth + name).ljust(COLUMN - 1) + " " + text


def main() -> int:
    readme = ROOT / "README.md"
    page = readme.read_text(encoding="utf-8")
    block = f"{BEGIN}\n```\n{tree()}\n```\n{END}"
    new = re.sub(f"{BEGIN}.*?{END}", lambda _: block, page, flags=re.DOTALL)
    if "--check" in sys.argv:
        return int(new != page)
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

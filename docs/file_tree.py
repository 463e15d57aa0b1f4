"""Writes the folders and the file tree into README.md, from the first sentence of each docstring.

python docs/file_tree.py           rewrite it between the markers
python docs/file_tree.py --check   exit 1 if it is out of date (a test calls this)
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vidvec_msg"
BEGIN, END = "<!-- tree: begin -->", "<!-- tree: end -->"
COLUMN = 31
FOLDERS = ("formats", "media", "embedders", "train", "retrieval", "data_synth", "tinyworld", "samples")

# what has no docstring, and the folders that are not opened here
OTHERS = [
    ("train.py", "front door: python train.py fit --config configs/NAME.yaml"),
    ("train/", "programs of training"),
    (
        "retrieval/",
        "programs: annotate_corpus, embed_corpus, build_index, search_index, evaluate_embedder, …",
    ),
    ("data_synth/", "programs: write_pairs, filter_pairs, build_benchmark"),
    ("configs/", "YAML, one folder per job, with measured cost"),
    ("docs/", "a page per verb"),
    ("tests/", "mirrors vidvec_msg/"),
    ("benchmarks/", "speed and memory beside the peers, one script a claim"),
]


def overview() -> str:
    """The folders."""
    lines = [_line(name, text, 0) for name, text in OTHERS] + ["vidvec_msg/"]
    for folder in FOLDERS:
        lines += [
            _line(f"{path.name}/", _sentence(path / "__init__.py"), depth)
            for path, depth in _packages(folder)
        ]
    return "\n".join(lines)


def tree() -> str:
    """Every module, below the package that it stands in."""
    lines = ["vidvec_msg/"]
    lines += [_line(path.name, _sentence(path), 1) for path in sorted(PACKAGE.glob("[!_]*.py"))]
    for folder in FOLDERS:
        for path, depth in _packages(folder):
            lines.append(_line(f"{path.name}/", _sentence(path / "__init__.py"), depth))
            modules = [module for module in sorted(path.glob("*.py")) if module.name != "__init__.py"]
            lines += [_line(module.name, _sentence(module), depth + 1) for module in modules]
    return "\n".join(lines)


def _packages(folder: str) -> list[tuple[Path, int]]:
    """A package and those in it, each with its depth in the tree."""
    top = PACKAGE / folder
    inner = sorted(path.parent for path in top.rglob("__init__.py") if path.parent != top)
    return [(top, 1), *((path, 1 + len(path.relative_to(top).parts)) for path in inner)]


def _sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split()).replace("``", "").rstrip(".")
    return re.sub(r":\w+:`(\w+)`", r"\1", paragraph.partition(". ")[0])


def _line(name: str, text: str, depth: int) -> str:
    return ("  " * depth + name).ljust(COLUMN - 1) + " " + text


def main() -> int:
    readme = ROOT / "README.md"
    page = readme.read_text(encoding="utf-8")
    files = f"<details><summary>File by file</summary>\n\n```\n{tree()}\n```\n</details>"
    block = f"{BEGIN}\n```\n{overview()}\n```\n\n{files}\n{END}"
    new = re.sub(f"{BEGIN}.*?{END}", lambda _: block, page, flags=re.DOTALL)
    if "--check" in sys.argv:
        return int(new != page)
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

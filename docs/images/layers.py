"""Draws docs/images/layers.svg, the picture of ARCHITECTURE.md: `python docs/images/layers.py`."""

from __future__ import annotations

from pathlib import Path

LAYERS = [
    ("programs", "train.py · train/ · retrieval/ · data_synth/", "what you run"),
    ("cli", "vidvec-msg VERB", "verb → function; the signature is the command line"),
    ("tinyworld", "stories → clips → a tiny multimodal LLM", "uses what a user can use, nothing more"),
    ("train  |  data_synth", "pairs → adapter   |   persona → pairs", "Lightning, PEFT   |   LLM endpoints"),
    ("retrieval", "corpus → vectors → index → run → numbers → report", "FAISS, ranx"),
    ("embedders", "item → unit vector", "the contract; multimodal LLMs; everybody else's"),
    (
        "media  |  formats",
        "which frames, decode   |   what is on disk",
        "decord, PyAV   |   standard library, numpy",
    ),
    ("runs, extras, errors", "output folders, optional imports, refusals", "standard library"),
]
WIDTH, ROW, GAP, LEFT = 860, 52, 12, 20


INK, PALE = "#17324d", "#44607a"


def text(x: int, y: int, size: float, words: str, *, fill: str = INK, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{more}>{words}</text>'


def draw() -> str:
    height = len(LAYERS) * (ROW + GAP) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'{head} font-family="ui-sans-serif, sans-serif">',
        "<title>The layers of vidvec_msg; imports go downwards only</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#fbfaf7"/>',
    ]
    for number, (name, content, uses) in enumerate(LAYERS):
        y = GAP + number * (ROW + GAP)
        size = f'width="{WIDTH - 2 * LEFT}" height="{ROW}" rx="6"'
        parts += [
            f'<rect x="{LEFT}" y="{y}" {size} fill="hsl(205 45% {94 - number * 4}%)"/>',
            text(LEFT + 16, y + 31, 15, name, more=' font-weight="600"'),
            text(225, y + 31, 13.5, content),
            text(WIDTH - LEFT - 14, y + 31, 11.5, uses, fill=PALE, more=' text-anchor="end"'),
        ]
        if number < len(LAYERS) - 1:
            parts.append(f'<path d="M{WIDTH // 2 - 5} {y + ROW + 3} h10 l-5 7 z" fill="{PALE}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")

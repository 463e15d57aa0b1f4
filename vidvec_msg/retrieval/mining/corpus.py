"""Further candidates for negatives: a file of texts, a collection's corpus, or another pairs source."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import Problems
from vidvec_msg.formats.pairs import Pair, read_pairs, rows_of


def read_candidates(source: str) -> list[Pair | str]:
    """Texts and pairs that negatives may come from.

    Args:
        source: a ``.txt`` file with a text a line; a ``.jsonl``, ``.csv`` or ``.parquet`` file whose rows
            have a ``text`` (and perhaps a ``title``, as a BEIR corpus); or whatever
            :func:`~vidvec_msg.formats.pairs.read_pairs` reads.

    Raises:
        RefusedRequest: no such file, a file without a text, rows that have neither texts nor pairs.
    """
    problems = Problems(f"corpus {source}")
    path = Path(source)
    if path.suffix == ".txt" and path.is_file():
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            problems.add(f"it is not UTF-8 ({error.reason} at byte {error.start}); convert it first")
            lines = []
        texts = [line.strip() for line in lines if line.strip()]
        if not texts:
            problems.add("it holds no text")
        problems.refuse_if_any()
        return list(texts)
    rows = list(rows_of(source, problems))
    if not rows or "text" not in rows[0][1] or {"anchor", "query"} & rows[0][1].keys():
        return list(read_pairs(source))
    found: list[Pair | str] = []
    for where, cells in rows:
        parts = [cells.get("title"), cells.get("text")]
        text = " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        if text:
            found.append(text)
        else:
            problems.add(f"{where}: text is empty; a text is needed")
    problems.refuse_if_any()
    return found

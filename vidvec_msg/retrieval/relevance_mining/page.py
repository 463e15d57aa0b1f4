"""The review as a page: two items side by side, and whether they mean the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.retrieval.human_judgement.page import judgement_page

_TEMPLATE = "vidvec_msg.retrieval.relevance_mining/review.html.jinja"


def review_page(title: str, rows: Sequence[Mapping[str, Any]], pictures: Mapping[str, str]) -> str:
    """The HTML of a review.

    Args:
        title: of the collection.
        rows: from :func:`~vidvec_msg.retrieval.relevance_mining.review_files.review_rows`.
        pictures: item id → JPEG as a data URI, for those that have one.
    """
    pairs = [[row[name] for name in ("first", "second", "first_text", "second_text")] for row in rows]
    return judgement_page(_TEMPLATE, rows, about=pairs, title=title, data={"pictures": dict(pictures)})

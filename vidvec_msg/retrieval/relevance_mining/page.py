"""The review as a page: one file, opened from the disk, worked through with the keyboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from vidvec_msg.runs import digest_of


def review_page(title: str, rows: Sequence[Mapping[str, Any]], pictures: Mapping[str, str]) -> str:
    """The HTML of a review.

    Decisions stay in the browser's storage until they are saved as a file, so that closing the page loses
    nothing; they are kept per review (a digest of its pairs).

    Args:
        title: of the collection.
        rows: from :func:`~vidvec_msg.retrieval.relevance_mining.review_files.review_rows`.
        pictures: item id → JPEG as a data URI, for those that have one.
    """
    from jinja2 import Environment

    here = files("vidvec_msg.retrieval.relevance_mining")
    source = (here / "review.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True)
    key = digest_of([(row["first"], row["second"]) for row in rows])[:16]
    return environment.from_string(source).render(
        title=title, key=key, data={"rows": list(rows), "pictures": dict(pictures), "key": key}
    )

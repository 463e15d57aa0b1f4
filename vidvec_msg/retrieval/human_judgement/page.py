"""A page on which people judge: one file, opened from the disk, worked through with the keyboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.runs import digest_of


def judgement_page(
    template: str, rows: Sequence[Mapping[str, Any]], *, about: Sequence[Any], **values: Any
) -> str:
    """The HTML of a page.

    Judgements stay in the browser's storage until they are saved as a file, so that closing the page loses
    nothing; they are kept per set of items, so that two pages do not mix theirs.

    Args:
        template: ``package/file``: a Jinja template that extends ``vidvec_msg.retrieval.human_judgement/
            page.html.jinja``, whose head says which blocks it fills.
        rows: what is judged, one after the other; the page's script sees them as ``rows``.
        about: what tells this set of items from another.
        values: for the template; ``data`` is what the page's script sees beside the rows.
    """
    from jinja2 import Environment, FunctionLoader

    environment = Environment(autoescape=True, loader=FunctionLoader(_source))
    key = digest_of(list(about))[:16]
    data = {"rows": list(rows), "key": key, **values.pop("data", {})}
    return environment.get_template(template).render(data=data, **values)


def _source(name: str) -> str:
    from importlib.resources import files

    package, _, file = name.partition("/")
    return (files(package) / file).read_text(encoding="utf-8")

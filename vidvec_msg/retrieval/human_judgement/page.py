"""A page on which people judge: one file, opened from the disk, worked through with the keyboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.runs import digest_of


def judgement_page(
    template: str, rows: Sequence[Mapping[str, Any]], *, about: Sequence[Any], whose: str = "", **values: Any
) -> str:
    """The HTML of a page.

    Judgements stay in the browser's storage until they are saved as a file, so that closing the page loses
    nothing. Each is kept by what it is about: a page that is made again, with other rows or in another order,
    shows those that were made before, and two pages do not mix theirs.

    Args:
        template: ``package/file``: a Jinja template that extends ``vidvec_msg.retrieval.human_judgement/
            page.html.jinja``, whose head says which blocks it fills.
        rows: what is judged, one after the other; the page's script sees them as ``rows``.
        about: of each row, what its judgement is about: equal ones have one judgement.
        whose: of a page that is for one person, who that is; different people's judgements are kept apart.
        values: for the template; ``data`` is what the page's script sees beside the rows.
    """
    from jinja2 import Environment, FunctionLoader

    environment = Environment(autoescape=True, loader=FunctionLoader(_source))
    data = {
        "rows": list(rows),
        "keys": [digest_of(one)[:16] for one in about],
        "store": digest_of([template, whose])[:16],
        **values.pop("data", {}),
    }
    return environment.get_template(template).render(data=data, **values)


def _source(name: str) -> str:
    from importlib.resources import files

    package, _, file = name.partition("/")
    return (files(package) / file).read_text(encoding="utf-8")

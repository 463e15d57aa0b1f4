"""Words around a text, one template per role."""

from __future__ import annotations

from typing import Any

from vidvec_msg.embedders.contract import Role
from vidvec_msg.embedders.prompts import TEXT_SLOT, PromptTemplate


def text_templates(query_prompt: str, document_prompt: str) -> dict[Role, str]:
    """The words around a text per role.

    Raises:
        ValueError: a template does not hold ``{text}`` exactly once.
    """
    templates: dict[Role, str] = {"query": query_prompt, "document": document_prompt}
    for role, template in templates.items():
        if template.count(TEXT_SLOT) != 1:
            raise ValueError(
                f"{role}_prompt is {template!r}; it must hold {TEXT_SLOT} exactly once, "
                f"for example 'a video of {TEXT_SLOT}'"
            )
    return templates


def prompts_on_card(templates: dict[Role, str]) -> dict[str, Any]:
    """The card's ``prompt`` or ``role_prompts``: nothing where no words are added; a prompt where both roles
    get the same words, so that nobody embeds the same items once per role."""
    query, document = templates["query"], templates["document"]
    if query != document:
        return {"role_prompts": {role: words for role, words in templates.items() if words != TEXT_SLOT}}
    if query == TEXT_SLOT:
        return {}
    return {"prompt": PromptTemplate(text=query, video="{video}", image="{video}")}

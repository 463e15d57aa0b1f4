"""What the scripted model of the tests writes: a story, queries and verdicts, told from the words asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MESSAGES: Mapping[str, str] = {
    "Small sums saved steadily grow into real security.": "A woman drops a coin into a jar every evening. "
    "Years later rain pours outside and a roofer hammers while her children eat rice under a dry roof.",
    "Listening helps more than advice.": "A boy sits on a kerb and cries. An old neighbour sits down beside "
    "him without a word, and after a while the boy leans on his shoulder and they watch buses go by.",
    "Haste ruins what patience would have finished.": "A baker opens the oven again and again and the dough "
    "sinks. Next door an oven stays shut, and a tall round loaf comes out at dusk.",
}
"""Message → its story."""

QUERIES: Mapping[str, tuple[str, ...]] = {
    "coin": ("woman drops coin into jar", "roofer hammers roof in rain"),
    "kerb": ("boy cries on kerb", "neighbour sits beside boy"),
    "oven": ("dough sinks in oven", "baker takes loaf out"),
}
"""A word of a story → its queries."""


def answer(words: str) -> dict[str, Any]:
    """What is written for the words of a request."""
    asked = dict(re.findall(r"^([A-Z][\w ]*): (.*)$", words, re.MULTILINE))
    if "Query" in asked:
        disclosing = "secret" in asked["Query"]
        return {"related": "unrelated" not in asked["Query"], "discloses": disclosing, "why": "as scripted"}
    if "Title" in asked:
        return {"score": sum(map(ord, asked["Title"] + asked["Message"])) % 101, "why": "by its letters"}
    if "Feedback" in asked:
        return {"story": f"{asked['Scene']} Nobody says a word."}
    if "Message" in asked and "Scene" in asked:
        good = "Nobody says a word" in asked["Scene"]
        return {
            "inferable": True,
            "implicit": good,
            "filmable": True,
            "feedback": "" if good else "Somebody seems to speak.",
        }
    if "Topic" in asked:
        return {
            "story": MESSAGES.get(asked["Message"], f"Somebody walks past the {asked['Message'].split()[0]}.")
        }
    scene = asked["Scene that the query was made from"] if "Scene" not in asked else asked["Scene"]
    for word, queries in QUERIES.items():
        if word in scene:
            return {"queries": list(queries)}
    return {"queries": ["somebody walks past", "street in the morning"]}

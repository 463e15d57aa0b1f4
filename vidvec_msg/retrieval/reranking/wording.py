"""How a pair is put to a language model: the words around the clip and the text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from vidvec_msg.embedders.chat import QUESTION_SLOT
from vidvec_msg.errors import did_you_mean
from vidvec_msg.formats.items import Modality
from vidvec_msg.yaml_files import read_table

CLIP_SLOT = "{clip}"


@dataclass(frozen=True, slots=True)
class Wording:
    """A question per kind of clip; each holds ``{clip}`` and ``{query}`` exactly once.

    With the clip first, it is computed once for all texts that it is asked about; behind the text it is
    computed for each of them.

    Args:
        video: of a clip with frames.
        text: of a text that stands for a clip.
        image: of an image.
        audio: of sound alone.
    """

    video: str
    text: str
    image: str
    audio: str

    def __post_init__(self) -> None:
        for entry in fields(self):
            words: str = getattr(self, entry.name)
            if words.count(CLIP_SLOT) != 1 or words.count(QUESTION_SLOT) != 1:
                raise ValueError(
                    f"the wording of {entry.name} is {words!r}; it must hold {CLIP_SLOT} and {QUESTION_SLOT} "
                    "exactly once each"
                )

    def around(self, kind: Modality) -> tuple[str, str]:
        """What stands before and behind the clip; one of the two holds ``{query}``."""
        before, after = str(getattr(self, kind)).split(CLIP_SLOT)
        return before, after


def _mirrored(words: str) -> Wording:
    """One word changes with the kind of clip, as in the prompts of embedders."""
    return Wording(words, *(words.replace("the video", f"the {kind}") for kind in ("text", "image", "audio")))


# Both are quoted in VidVec (arXiv 2602.08099) without what stands around them; that the clip comes first, and
# the sentence on a line of its own, is ours.
WORDINGS = {
    "match": _mirrored(
        "{clip}\n{query}\nDoes the video match the sentence? Answer with a single word - Yes or No."
    ),
    "respond": _mirrored("{clip}\n{query}\nRespond in a single word - Yes or No."),
}


def resolve_wording(wording: str) -> Wording:
    """The wording that an option stands for.

    Args:
        wording: a name of :data:`WORDINGS`, or a YAML file with the fields video, text, image and audio;
            those that it leaves out are made from ``video``.

    Raises:
        ValueError: none of them; the message says what is accepted.
    """
    if wording in WORDINGS:
        return WORDINGS[wording]
    if not wording.endswith((".yaml", ".yml")):
        raise ValueError(
            f"unknown wording {wording!r}{did_you_mean(wording, WORDINGS)}; known are "
            f"{', '.join(WORDINGS)}, or a YAML file with the fields video, text, image and audio"
        )
    example = 'fields such as `video: "{clip} … {query} …"`'
    content = read_table(Path(wording).expanduser(), what="wording file", holds=example)
    known = [entry.name for entry in fields(Wording)]
    if strangers := sorted(map(str, set(content) - set(known))):
        raise ValueError(
            f"wording file {wording}: unknown fields {', '.join(strangers)}; it has {', '.join(known)}"
        )
    if "video" not in content:
        raise ValueError(f"wording file {wording} has no field video, from which the others are made")
    made = _mirrored(str(content["video"]))
    return Wording(**{name: str(content.get(name, getattr(made, name))) for name in known})

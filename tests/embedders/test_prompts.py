"""Prompt presets: their wording to the letter, and what a template of one's own may be."""

from __future__ import annotations

import pytest

from vidvec_msg.embedders.prompts import PROMPTS, PromptTemplate, resolve_prompt

# what each source words, as the model reads it for a text, a clip and an image
WORDINGS = {
    "vidvec": (
        "X\nSummarize above sentence in one word: ",
        "V\nSummarize above video in one word: ",
        "V\nSummarize above image in one word: ",
    ),
    "lamra": (
        "X\nSummarize above sentence in one word: ",
        "V\nSummarize above video in one word: ",
        "V\nSummarize above image in one word: ",
    ),
    "e5v": (
        "X\nSummary above sentence in one word: ",
        "V\nSummary above image in one word: ",
        "V\nSummary above image in one word: ",
    ),
    "care": (
        "X\nSummary above sentence in one word:",
        "V\nSummary above video in one word:",
        "V\nSummary above image in one word:",
    ),
    "lco": (
        "X\nSummarize the above text in one word:",
        "V\nSummarize the above video in one word:",
        "V\nSummarize the above image in one word:",
    ),
    "qwen3vl-embedding": ("X", "V", "V"),
    "vlm2vec": (
        "Find a video that contains the following visual content: X",
        "V Understand the content of the provided video.",
        "V Represent the given image.",
    ),
    "moral": (
        "X\nThe moral of the story is that",
        "V\nThe moral of the video is that",
        "V\nThe moral of the image is that",
    ),
    "plain": ("X", "V", "V"),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_presets_say_what_their_source_says(name):
    preset = resolve_prompt(name)
    text, video, image = WORDINGS[name]
    assert preset.text.replace("{text}", "X") == text
    assert preset.video.replace("{video}", "V") == video
    assert preset.image.replace("{video}", "V") == image
    assert preset.chat is (name not in ("vlm2vec", "moral"))
    assert preset.instruction == ("Represent the user's input." if name == "qwen3vl-embedding" else "")


def test_words_of_ones_own_come_from_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text('text: "{text}\\nOne word: "\nvideo: "{video}\\nOne word: "\n', encoding="utf-8")
    assert resolve_prompt(str(path)) == PromptTemplate(text="{text}\nOne word: ", video="{video}\nOne word: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file; needed is a YAML file of fields such as `text:"),
        ("text: [", "is not YAML: expected the node"),
        ("just words", "is no table, but a text; needed are fields such as `text:"),
        ("1: '{text}'\ntexts: '{text}'", "unknown prompt fields 1, texts; known fields: text, video, image"),
        ("texts: '{text}'", "unknown prompt fields texts; known fields: text, video, image"),
        ("text: no slot", "prompt template 'text' is 'no slot'; it must hold {text} exactly once"),
        ("audio: '{text}'", "must hold {audio} exactly once"),
        ("{chat: false, instruction: Be brief.}", "is a system turn and chat is off"),
    ],
)
def test_files_that_are_no_template(tmp_path, content, reason):
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError) as refusal:
        resolve_prompt(str(path))
    assert reason in str(refusal.value)


def test_unknown_presets_get_the_nearest_name():
    with pytest.raises(
        ValueError, match=r"'vidvek' \(did you mean 'vidvec'\?\); known presets: care, e5v, l"
    ):
        resolve_prompt("vidvek")

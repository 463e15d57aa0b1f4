"""Both published wordings, and files of one's own."""

from __future__ import annotations

import pytest

from vidvec_msg.retrieval.reranking.wording import WORDINGS, resolve_wording


def test_published_words_stand_at_the_end():
    assert WORDINGS["match"].video.endswith(
        "Does the video match the sentence? Answer with a single word - Yes or No."
    )
    assert WORDINGS["respond"].video.endswith("Respond in a single word - Yes or No.")
    assert "Does the image match" in WORDINGS["match"].image
    assert WORDINGS["match"].around("video")[0] == ""


def test_a_file_needs_the_wording_of_clips_alone(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text('video: "Is the video {clip} about {query}?"\ntext: "{query}: {clip}?"\n')
    found = resolve_wording(str(path))
    assert found.text == "{query}: {clip}?"
    assert found.image == "Is the image {clip} about {query}?"
    assert found.around("text") == ("{query}: ", "?")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("video: no slots", "must hold {clip} and {query} exactly once"),
        ('video: "{clip} {clip} {query}"', "exactly once"),
        ('text: "{clip} {query}"', "has no field video"),
        ('video: "{clip} {query}"\nvidoe: x', "unknown fields vidoe"),
        ('video: "{clip} {query}"\nvidoe: x\n1: x', "unknown fields 1, vidoe"),
        ("- a list", "is no table, but a list; needed are fields such as `video:"),
        ("video: [", "is not YAML"),
    ],
)
def test_files_that_are_refused(content, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=message.replace("{", r"\{").replace("}", r"\}")):
        resolve_wording(str(path))


def test_unknown_names_are_refused_with_a_hint():
    with pytest.raises(ValueError, match="did you mean 'match'"):
        resolve_wording("mach")
    with pytest.raises(ValueError, match=r"wording file nowhere.yaml: no such file; needed is a YAML file"):
        resolve_wording("nowhere.yaml")

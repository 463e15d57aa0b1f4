"""The collection of literal queries: the world's own clips, wordings that the skill was not taught with."""

from pathlib import Path

from vidvec_msg import Collection
from vidvec_msg.tinyworld.caption_collection import write_captioned
from vidvec_msg.tinyworld.collections import write_world
from vidvec_msg.tinyworld.stories import STORIES


def test_clips_are_the_worlds_and_each_split_judges_its_own_queries(tmp_path: Path) -> None:
    counts = write_captioned(tmp_path / "literal", clips_per_story=2, size=48)
    assert counts == {"clips": 64, "gists": 64, "captions": 64}
    write_world(tmp_path / "world", clips_per_story={"test": 1}, size=48)
    for clip in (tmp_path / "world" / "clips").iterdir():
        assert (tmp_path / "literal" / "clips" / clip.name).read_bytes() == clip.read_bytes()

    gists = Collection.load(tmp_path / "literal", split="gists")
    texts = {item.id: item.text for item in gists.queries}
    for story in STORIES:
        assert texts[f"gist-{story.key}"] == story.gists[-1]
        assert set(gists.qrels["gists"][f"gist-{story.key}"]) == {f"test-{story.key}-{n}" for n in range(2)}

    captions = Collection.load(tmp_path / "literal", split="captions").qrels["captions"]
    assert len(captions) == 64
    assert all(set(found) == {query.removeprefix("caption-")} for query, found in captions.items())

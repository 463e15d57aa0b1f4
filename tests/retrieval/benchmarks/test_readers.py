"""Each reader on a miniature of its benchmark, in exactly the layout that it says it reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from retrieval.benchmarks.fixtures import MAKE

from vidvec_msg.cli import main
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection, missing_media
from vidvec_msg.retrieval.benchmarks.drivelhub import DRIVELHUB
from vidvec_msg.retrieval.benchmarks.material import Material
from vidvec_msg.retrieval.benchmarks.published import published_for
from vidvec_msg.retrieval.benchmarks.registry import BENCHMARKS
from vidvec_msg.retrieval.benchmarks.verb import import_benchmark


def imported(name: str, tmp_path: Path, **options) -> Collection:
    source = tmp_path / name
    if not source.exists():
        source.mkdir()
        MAKE[name](source)
    out = import_benchmark(name, source, tmp_path / f"{name}-collection", **options)
    return Collection.load(out)


def texts(collection: Collection) -> dict[str, str]:
    return {item.id: item.text for item in collection.queries}


def test_every_benchmark_has_a_miniature():
    assert MAKE.keys() == BENCHMARKS.keys()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_clip_has_its_file_and_a_text(name, tmp_path):
    collection = imported(name, tmp_path)
    assert missing_media(collection.corpus) == []
    judged = {clip for clips in collection.qrels["test"].values() for clip in clips}
    without = {"v2"} if name == "vhub" else set()  # it has descriptive captions alone
    assert judged == {item.id for item in collection.corpus} - without


def test_msrvtt_1k_a_is_one_sentence_a_clip(tmp_path):
    collection = imported("msrvtt", tmp_path)
    assert texts(collection)["ret1"] == "a little girl, singing"
    assert collection.qrels["test"] == {
        "ret0": {"video9770": 1}, "ret1": {"video9771": 1}, "ret2": {"video7020": 1},
    }  # fmt: skip


def test_msrvtt_official_is_the_test_videos_with_all_their_captions(tmp_path):
    collection = imported("msrvtt", tmp_path, part="official")
    assert [item.id for item in collection.corpus] == ["video7020", "video9771"]
    assert collection.qrels["test"] == {"1": {"video7020": 1}, "2": {"video7020": 1}, "3": {"video9771": 1}}
    assert collection.corpus[0].groups == {"category": "9"}


def test_msvd_reads_the_authors_own_descriptions(tmp_path):
    collection = imported("msvd", tmp_path)
    assert [item.id for item in collection.corpus] == ["0hyZ__3YhZc_598_603", "04Gt01vatkk_248_265"]
    assert texts(collection)["0hyZ__3YhZc_598_603#bd615800"] == "Someone slices a loaf."
    assert len(collection.queries) == 3


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (
            "raw-captions.json",
            json.dumps({"0hyZ__3YhZc_598_603": [["a", "man"]], "04Gt01vatkk_248_265": ["b"]}),
        ),
        ("captions.csv", "video_id,caption\n0hyZ__3YhZc_598_603,a man\n04Gt01vatkk_248_265,b\n"),
    ],
)
def test_msvd_reads_captions_in_other_plain_forms(file, content, tmp_path):
    source = tmp_path / "msvd"
    source.mkdir()
    MAKE["msvd"](source)
    (source / "AllVideoDescriptions.txt").unlink()
    (source / file).write_text(content)
    assert set(texts(imported("msvd", tmp_path)).values()) == {"a man", "b"}


def test_msvd_never_opens_a_pickle(tmp_path):
    source = tmp_path / "msvd"
    source.mkdir()
    MAKE["msvd"](source)
    (source / "AllVideoDescriptions.txt").unlink()
    (source / "raw-captions.pkl").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(RefusedRequest, match=r"is a pickle.*json\.dump\(pickle\.load"):
        imported("msvd", tmp_path)


def test_vatex_takes_ten_captions_of_each_listed_clip(tmp_path):
    collection = imported("vatex", tmp_path)
    assert [item.id[0] for item in collection.corpus] == ["C", "A"]
    assert len(collection.queries) == 20
    assert not any("中" in text for text in texts(collection).values())
    whole = import_benchmark("vatex", tmp_path / "vatex", tmp_path / "whole", part="validation")
    assert len(Collection.load(whole).queries) == 30


def test_didemo_joins_the_descriptions_of_a_clip_and_looks_at_30_seconds(tmp_path):
    collection = imported("didemo", tmp_path)
    assert list(texts(collection).values()) == ["a dog runs the dog sits", "rain falls"]
    assert {(item.start, item.end) for item in collection.corpus} == {(0.0, 30.0)}
    assert collection.corpus[0].video.suffix == ".mp4"  # the list says .mov


def test_activitynet_joins_sentences_and_keeps_to_the_list(tmp_path):
    collection = imported("activitynet", tmp_path)
    assert texts(collection) == {
        "v_uqiMw7tQ1Cc": "A weight lifting tutorial is given. The coach helps the guy.",
        "v_bXdq2zI1Ms0": "Three men speak.",
    }


def test_vidmsg_gathers_the_clips_of_a_message(tmp_path):
    collection = imported("vidmsg", tmp_path)
    assert list(collection.qrels["test"].values()) == [
        {"aaaaaaaaaaa": 1, "bbbbbbbbbbb": 1}, {"ccccccccccc": 1},
    ]  # fmt: skip
    assert collection.corpus[0].transcript == "coins"
    assert collection.corpus[2].groups == collection.queries[1].groups == {"topic": "health"}


def test_vidmsg_clips_of_one_name_in_two_folders_stay_two(tmp_path):
    source = tmp_path / "vidmsg"
    for folder in ("a", "b"):
        (source / folder).mkdir(parents=True)
        (source / folder / "1.mp4").write_bytes(b"clip")
    (source / "annotations.csv").write_text("clip,message,topic\na/1.mp4,one,t\nb/1.mp4,two,t\n")
    collection = imported("vidmsg", tmp_path)
    assert list(collection.qrels["test"].values()) == [{"a/1": 1}, {"b/1": 1}]
    assert collection.corpus[1].video.resolve() == source / "b" / "1.mp4"


def test_drivelhub_pairs_of_one_meaning_count_both_ways(tmp_path):
    collection = imported("drivelhub", tmp_path)
    assert collection.qrels["test"] == {
        "d0": {"d0": 1, "d2": 1}, "d1": {"d1": 1}, "d2": {"d2": 1, "d0": 1}, "d3": {"d3": 1},
    }  # fmt: skip


def test_drivelhub_without_judged_pairs_says_what_that_costs(tmp_path, capsys, monkeypatch):
    source = tmp_path / "drivelhub"
    source.mkdir()
    MAKE["drivelhub"](source)
    assert DRIVELHUB.read(source, "test").complete
    (source / "relevance.csv").unlink()
    monkeypatch.setitem(BENCHMARKS, "drivelhub", replace(DRIVELHUB, parts={"test": {"clips": 4, "texts": 4}}))
    collection = imported("drivelhub", tmp_path)
    assert all(len(clips) == 1 for clips in collection.qrels["test"].values())
    assert published_for(collection.root) == ()  # although clips and texts are as many as published
    assert "the numbers are not comparable with it" in capsys.readouterr().out


def test_drivelhub_refuses_a_pair_of_strangers(tmp_path):
    source = tmp_path / "drivelhub"
    source.mkdir()
    MAKE["drivelhub"](source)
    (source / "relevance.csv").write_text("id,other\nd0,d9\n")
    with pytest.raises(RefusedRequest, match=r"relevance\.csv, row 1: 'd9' is no id"):
        imported("drivelhub", tmp_path)


def test_vhub_asks_by_creative_captions_and_keeps_the_others_apart(tmp_path):
    collection = imported("vhub", tmp_path)
    assert list(collection.qrels["test"].values()) == [{"v1": 1}]
    names = [*collection.qrels["test"], *collection.qrels["descriptive"]]
    assert [name.rpartition("-")[0] for name in names] == [
        "v1#creative", "v1#descriptive", "v1#descriptive", "v2#descriptive",
    ]  # fmt: skip
    assert {item.groups["caption"] for item in collection.queries} == {"creative", "descriptive"}


def captioned(name: str, folder: Path, captions: list[tuple[str, str]]) -> Material:
    """A benchmark whose captions have no ids, with these captions of the clips a and b, in this order."""
    folder.mkdir()
    of_clip = {clip: [text for one, text in captions if one == clip] for clip, _ in captions}
    (folder / "test_list.txt").write_text("".join(f"{clip}\n" for clip in of_clip))
    if name == "msvd":
        (folder / "raw-captions.json").write_text(json.dumps(of_clip))
    elif name == "vatex":
        rows = [{"videoID": clip, "enCap": texts} for clip, texts in of_clip.items()]
        (folder / "vatex_validation_v1.0.json").write_text(json.dumps(rows))
    elif name == "vhub":
        table = [
            {"id": clip, "video": clip, "creative_captions": texts, "descriptive_captions": []}
            for clip, texts in of_clip.items()
        ]
        (folder / "annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    else:
        lines = [f"{clip}{number},{text},t" for number, (clip, text) in enumerate(captions)]
        (folder / "annotations.csv").write_text("\n".join(["clip,message,topic", *lines]) + "\n")
    return BENCHMARKS[name].read(folder, next(iter(BENCHMARKS[name].parts)))


@pytest.mark.parametrize("name", ["msvd", "vatex", "vhub", "vidmsg"])
def test_captions_keep_their_ids_when_others_come_before_them(name, tmp_path):
    rows = [("b", "a man runs"), ("b", "he is late"), ("a", "a dog")]
    before = captioned(name, tmp_path / "before", rows)
    after = captioned(name, tmp_path / "after", [("c", "new"), ("b", "first now"), *reversed(rows)])
    ids = {row["text"]: text for text, row in after.texts.items()}
    assert {row["text"]: text for text, row in before.texts.items()}.items() < ids.items()
    assert len(after.texts) == 5


@pytest.mark.parametrize("name", ["msvd", "vatex", "vhub"])
def test_equal_captions_are_texts_of_their_own(name, tmp_path):
    rows = [("a", "a dog"), ("a", "a  dog "), ("b", "a dog"), ("a", "a cat")]
    found = captioned(name, tmp_path / "one", rows)
    assert [row["text"] for row in found.texts.values()].count("a dog") == 3
    assert sorted(next(iter(judged)) for judged in found.qrels["test"].values()) == ["a", "a", "a", "b"]
    again = captioned(name, tmp_path / "two", rows[::-1])
    assert found.texts.keys() == again.texts.keys()


def test_a_message_keeps_the_id_that_its_file_brings(tmp_path):
    (tmp_path / "annotations.csv").write_text(
        "clip,message,topic,message_id\na,one,t,mine\nb,two,t,\nc,one,t,\n"
    )
    found = BENCHMARKS["vidmsg"].read(tmp_path, "test")
    own, made = found.texts
    assert (own, len(made)) == ("mine", 11)
    assert found.qrels["test"] == {"mine": {"a": 1, "c": 1}, made: {"b": 1}}


def test_avmeme_has_two_ways_to_ask_and_its_own_questions(tmp_path):
    collection = imported("avmeme", tmp_path)
    assert collection.qrels["usage"] == {"1#usage": {"1": 1}}
    assert collection.qrels["summary"].keys() == {"1#summary", "2#summary"}
    assert (collection.corpus[0].start, collection.corpus[0].end) == (3.0, 7.5)
    questions = [json.loads(line) for line in (collection.root / "questions.jsonl").read_text().splitlines()]
    assert questions[0]["options"] == ["A wizard, old", "A king"]
    assert [one["answer"] for one in questions] == [0, 0]
    assert questions[1]["groups"] == {"category": "sound effect", "text_cheat": "True"}


def test_avmeme_main_leaves_out_what_its_authors_flagged(tmp_path):
    collection = imported("avmeme", tmp_path, part="main")
    assert [item.id for item in collection.corpus] == ["1"]


@pytest.mark.parametrize(
    ("name", "file", "content", "words"),
    [
        (
            "msrvtt",
            "MSRVTT_JSFUSION_test.csv",
            "key,vid_key,video_id,text\na,b,c,d\n",
            "no column 'sentence'",
        ),
        ("vatex", "vatex_validation_v1.0.json", "{}", "is not VATEX's"),
        ("vatex", "vatex_validation_v1.0.json", '[{"id": 1}]', "an entry without 'videoID'"),
        ("didemo", "test_data.json", "[", "is not JSON"),
        ("activitynet", "val_1.json", '{"v_a": {}}', "is not ActivityNet Captions'"),
        ("vidmsg", "annotations.csv", "clip,message,topic\na.mp4,,x\n", "row 1: clip, message and topic"),
        ("vidmsg", "annotations.csv", "clip,mesage,topic\na,b,c\n", r"'message' \(did you mean 'mesage'\?\)"),
        (
            "avmeme",
            "annotations.csv",
            "id,video,question,candidates,answer\n1,a,b,x|y,z\n",
            "answer 'z' is none",
        ),
        ("avmeme", "annotations.csv", "id,video,question,candidates,answer\n1,a,b,x|x,x\n", "all different"),
    ],
)
def test_another_layout_is_refused_by_name(name, file, content, words, tmp_path):
    source = tmp_path / name
    source.mkdir()
    MAKE[name](source)
    (source / file).write_text(content)
    with pytest.raises(RefusedRequest, match=words):
        imported(name, tmp_path)
    assert not (tmp_path / f"{name}-collection").exists()


def test_the_verb_reads_from_the_command_line(tmp_path, capsys):
    source = tmp_path / "vidmsg"
    source.mkdir()
    MAKE["vidmsg"](source)
    words = ["import-benchmark", "--name", "vidmsg", "--source", str(source), "--out", str(tmp_path / "C")]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["licence"].startswith("annotations CC-BY-4.0")
    assert told["sizes"]["texts"] == {"found": 2, "published": 52}
    assert told["as_published"] is False

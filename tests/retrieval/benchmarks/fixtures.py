"""Each benchmark's annotations in miniature, in the very files and fields in which they are given out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def clips(folder: Path, *names: str) -> None:
    """Files with those names; an import never decodes them."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"clip")


def msrvtt(folder: Path) -> None:
    lines = [
        "key,vid_key,video_id,sentence",
        "ret0,msr9770,video9770,a person is connecting something to system",
        'ret1,msr9771,video9771,"a little girl, singing"',
        "ret2,msr7020,video7020,a woman creating a fondant baby",
    ]
    (folder / "MSRVTT_JSFUSION_test.csv").write_text("\n".join(lines) + "\n")
    videos = [
        {"category": 9, "url": "https://www.youtube.com/watch?v=x", "video_id": f"video{number}",
         "start time": 137.72, "end time": 149.44, "split": split, "id": number}
        for number, split in ((0, "train"), (7020, "test"), (9771, "test"))
    ]  # fmt: skip
    sentences = [
        {"caption": f"caption {number} of {video}", "video_id": video, "sen_id": number}
        for number, video in enumerate(("video0", "video7020", "video7020", "video9771"))
    ]
    content = {"info": {"year": "2016"}, "videos": videos, "sentences": sentences}
    (folder / "MSRVTT_data.json").write_text(json.dumps(content))
    clips(folder / "videos", "video9770.mp4", "video9771.mp4", "video7020.mp4", "video0.mp4")


def msvd(folder: Path) -> None:
    (folder / "test_list.txt").write_text("0hyZ__3YhZc_598_603\n04Gt01vatkk_248_265\n")
    (folder / "AllVideoDescriptions.txt").write_text(
        "#The MSVD corpus\n\n"
        "mv89psg6zh4_33_46 A bird in a sink keeps getting under the running water.\n"
        "0hyZ__3YhZc_598_603 A man is cutting bread.\n"
        "04Gt01vatkk_248_265 A woman is slicing.\n"
        "0hyZ__3YhZc_598_603 Someone slices a loaf.\n"
    )
    clips(folder / "YouTubeClips", "0hyZ__3YhZc_598_603.avi", "04Gt01vatkk_248_265.avi")


def vatex(folder: Path) -> None:
    rows = [
        {"videoID": f"{name}_000001_000011", "enCap": [f"English {name} {n}" for n in range(10)],
         "chCap": ["中文"] * 10}
        for name in ("AAAAAAAAAAA", "BBBBBBBBBBB", "CCCCCCCCCCC")
    ]  # fmt: skip
    (folder / "vatex_validation_v1.0.json").write_text(json.dumps(rows))
    (folder / "test_list.txt").write_text("CCCCCCCCCCC_000001_000011\nAAAAAAAAAAA_000001_000011\n")
    clips(folder / "videos", *(f"{row['videoID']}.mp4" for row in rows))


def didemo(folder: Path) -> None:
    first, second = "12090392@N02_13482799053_87ef417396.mov", "26895757@N00_2964216_d2.avi"
    rows = [
        {"annotation_id": n, "video": video, "description": text, "times": [[0, 1], [0, 1]],
         "num_segments": 6, "dl_link": "", "reference_description": ""}
        for n, (video, text) in enumerate(
            [(first, "a dog runs "), (second, "rain falls"), (first, "the dog sits"), ("other.mp4", "x")]
        )
    ]  # fmt: skip
    (folder / "test_data.json").write_text(json.dumps(rows))
    (folder / "test_list.txt").write_text(f"{first}\n{second}\n")
    clips(folder / "videos", first.replace(".mov", ".mp4"), second)


def activitynet(folder: Path) -> None:
    content = {
        "v_uqiMw7tQ1Cc": {"duration": 55.15, "timestamps": [[0, 4.14], [4.14, 33.36]],
                          "sentences": ["A weight lifting tutorial is given.", " The coach helps the guy."]},
        "v_bXdq2zI1Ms0": {"duration": 73.1, "timestamps": [[0, 73.1]], "sentences": ["Three men speak."]},
        "v_dropped": {"duration": 1.0, "timestamps": [[0, 1]], "sentences": ["Not in the list."]},
    }  # fmt: skip
    (folder / "val_1.json").write_text(json.dumps(content))
    (folder / "val_ids.json").write_text(json.dumps(["v_uqiMw7tQ1Cc", "v_bXdq2zI1Ms0"]))
    clips(folder / "videos", "v_uqiMw7tQ1Cc.mp4", "bXdq2zI1Ms0.mkv")


def vidmsg(folder: Path) -> None:
    lines = [
        "clip,message,topic,transcript",
        "https://www.youtube.com/watch?v=aaaaaaaaaaa&t=3,Saving pays,money,coins",
        "https://youtu.be/bbbbbbbbbbb,Saving pays,money,",
        "https://www.youtube.com/shorts/ccccccccccc,Rest heals,health,",
    ]
    (folder / "annotations.csv").write_text("\n".join(lines) + "\n")
    clips(folder, "aaaaaaaaaaa.mp4", "bbbbbbbbbbb.webm", "ccccccccccc.mp4")


def drivelhub(folder: Path) -> None:
    rows = [
        {"id": f"d{n}", "video": f"videos/d{n}.mp4", "narrative": f"narrative {n}", "modality": "audio"}
        for n in range(4)
    ]
    (folder / "annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "relevance.csv").write_text("id,other\nd0,d2\nd2,d0\nd1,d1\n")
    clips(folder / "videos", *(f"d{n}.mp4" for n in range(4)))


def vhub(folder: Path) -> None:
    rows = [
        {"id": "v1", "video": "v1.mp4", "creative_captions": ["Monday, as felt by socks"],
         "descriptive_captions": ["A man slips", "He falls"], "modality": "Visual"},
        {"id": "v2", "video": "v2.mp4", "creative_captions": [],
         "descriptive_captions": ["A cat looks"], "modality": "Visual+Text"},
    ]  # fmt: skip
    (folder / "annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    clips(folder, "v1.mp4", "v2.mp4")


def avmeme(folder: Path) -> None:
    lines = [
        "id,video,start,end,question,candidates,answer,summary,usage,category,language,text_cheat",
        '1,wizard.mp4,3,7.5,"Who says it?","[""A wizard, old"", ""A king""]","A wizard, old",'
        "A wizard stands,Used to deny,noisy speech,en,False",
        '2,pop.mp4,,,"Which system?",Windows|macOS|Linux,Windows,Errors pop up,,sound effect,,True',
    ]
    (folder / "annotations.csv").write_text("\n".join(lines) + "\n")
    clips(folder, "wizard.mp4", "pop.mp4")


MAKE: dict[str, Callable[[Path], None]] = {
    "msrvtt": msrvtt, "msvd": msvd, "vatex": vatex, "didemo": didemo, "activitynet": activitynet,
    "vidmsg": vidmsg, "drivelhub": drivelhub, "vhub": vhub, "avmeme": avmeme,
}  # fmt: skip

"""Wording: the same ids on the training path and the evaluation path, prompts never cut, metadata passed
on."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from embedders.conftest import TEXTS, noise
from tiny_models import FAMILIES as ALL

from vidvec_msg.embedders.chat import Chat, video_metadata
from vidvec_msg.embedders.prompts import PROMPTS, PromptTemplate
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.video import frames_in_memory, read_frames

VIDVEC = PROMPTS["vidvec"]
FAMILIES = [family for family in ALL if "omni" not in family]
SEEING = [family for family in FAMILIES if family != "text"]


@pytest.fixture(scope="module")
def chats(tiny):
    made = {}

    def chat(family: str = "videollama3", **options) -> Chat:
        key = (family, *options.items())
        if key not in made:
            made[key] = Chat.open(tiny(family), **options)
        return made[key]

    return chat


def clip(count: int = 4, fps: float = 2.0):
    return frames_in_memory(noise(count, 32, 32), FramePolicy(fps=fps))


def words(chat: Chat, turn) -> str:
    ids = chat.batch([turn])["input_ids"][0]
    return chat.tokenizer.decode(ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_has_the_same_ids_on_both_paths(chats, family):
    chat = chats(family)
    texts = [*TEXTS, "  blanks around  ", "two\nlines", "Größe 漢字 🙂"]
    batch = chat.batch([chat.text_turn(VIDVEC, text, max_tokens=1024) for text in texts])
    for text, row, mask in zip(texts, batch["input_ids"], batch["attention_mask"], strict=True):
        assert chat.text_ids(VIDVEC, text, max_tokens=1024) == row[mask > 0].tolist()


@pytest.mark.parametrize("family", SEEING)
def test_text_has_the_ids_that_transformers_own_call_gives(chats, family):
    chat = chats(family)
    content = [{"type": "text", "text": "a dog\nSummarize above sentence in one word: "}]
    whole = chat.processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=True, add_generation_prompt=True, return_dict=True
    )
    ids = whole["input_ids"]
    assert chat.text_ids(VIDVEC, "a dog", max_tokens=1024) == list(
        ids[0] if isinstance(ids[0], list) else ids
    )


@pytest.mark.parametrize("family", SEEING)
def test_clips_have_the_inputs_that_transformers_own_call_gives(chats, family):
    chat, frames = chats(family), clip()
    visual = [{"type": "video", "video": frames.pixels}]
    if family == "gemma3":  # knows no videos
        visual = [{"type": "image", "image": frame} for frame in frames.pixels]
    content = [*visual, {"type": "text", "text": "\nSummarize above video in one word: "}]
    sampled = {
        "do_sample_frames": False,
        "fps": 2.0,
        "video_metadata": [
            {"fps": 2.0, "total_num_frames": 4, "frames_indices": [0, 1, 2, 3], "duration": 2.0}
        ],
    }
    theirs = chat.processor.apply_chat_template(
        [[{"role": "user", "content": content}]],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={
            "padding": True,
            **({} if family == "gemma3" else sampled),
        },
    )
    ours = chat.batch([chat.visual_turn(VIDVEC, frames)])
    assert set(ours) == set(theirs)
    for key in theirs:
        np.testing.assert_array_equal(np.asarray(ours[key]), np.asarray(theirs[key]), err_msg=key)


def test_the_mirror_one_word_changes(chats):
    chat = chats()
    text = chat.text_turn(VIDVEC, "X", max_tokens=100).prompt
    video = chat.visual_turn(VIDVEC, clip()).prompt
    image = chat.visual_turn(VIDVEC, noise(32, 32)).prompt
    assert text.replace("X", "<slot>") == (
        "<|im_start|>user\n<slot>\nSummarize above sentence in one word: <|im_end|>\n<|im_start|>assistant\n"
    )
    assert video.replace("<|vision_start|><|video_pad|><|vision_end|>", "<slot>") == text.replace(
        "sentence", "video"
    ).replace("X", "<slot>")
    assert image.replace("<|vision_start|><|image_pad|><|vision_end|>", "<slot>") == text.replace(
        "sentence", "image"
    ).replace("X", "<slot>")


# --- length -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("most", [34, 40, 57, 100])
def test_content_is_cut_and_prompt_words_never(chats, tiny, family, most):
    chat = Chat.open(tiny(family))
    long = "The slow turtle passes the fast hare. " * 50
    whole = chat.text_ids(VIDVEC, long, max_tokens=10_000)
    cut = chat.text_ids(VIDVEC, long, max_tokens=most)
    assert most - 3 <= len(cut) <= most < len(whole)  # a token at the seam may merge with its neighbour
    rendered = chat.tokenizer.decode(cut)
    assert rendered.endswith(
        chat.tokenizer.decode(whole)[-60:]
    )  # the prompt's words and the generation prompt
    kept = rendered.split("\nSummarize")[0].split("\n")[-1].removeprefix("<|im_start|>User: ")
    assert kept
    assert long.startswith(kept)
    assert (chat.cut_items, chat.cut_tokens > 0) == (1, True)


def test_what_fits_is_not_cut(chats, tiny):
    chat = Chat.open(tiny("videollama3"))
    length = len(chat.text_ids(VIDVEC, TEXTS[1], max_tokens=1000))
    assert len(chat.text_ids(VIDVEC, TEXTS[1], max_tokens=length)) == length
    assert (chat.cut_items, chat.cut_tokens) == (0, 0)
    turn = chat.text_turn(VIDVEC, TEXTS[1], max_tokens=length - 2)
    assert turn.cut >= 2
    assert turn.tokens <= length - 2


def test_a_prompt_that_does_not_fit_is_an_error(chats):
    around = len(chats().text_ids(VIDVEC, "x", max_tokens=1000)) - 1
    with pytest.raises(ValueError, match=f"max_tokens is {around}, and the prompt around the content takes"):
        chats().text_ids(VIDVEC, "x", max_tokens=around)
    with pytest.raises(ValueError, match="max_tokens is 5"):
        chats().visual_turn(VIDVEC, clip(), max_tokens=5)


def test_a_long_transcript_is_cut_and_the_frames_are_not(chats):
    chat = chats()
    turn = chat.visual_turn(VIDVEC, clip(), transcript="said " * 500, placement="before", max_tokens=60)
    assert turn.tokens <= 60
    assert turn.cut > 300
    assert (chat.batch([turn])["input_ids"] == chat.processor.video_token_id).sum() == 4 * 16


# --- content that looks like machinery ---------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_control_tokens_in_content_are_words(chats, family):
    chat = chats(family)
    for token in chat.rendering._control:
        ids = chat.text_ids(VIDVEC, f"before {token} after", max_tokens=1000)
        clean = chat.text_ids(VIDVEC, "before after", max_tokens=1000)
        special = chat.tokenizer.convert_tokens_to_ids(token)
        assert ids.count(special) == clean.count(special)
    if family != "text":  # a placeholder in a transcript asks for no frames
        token = chat.rendering.token("image" if family == "gemma3" else "video")
        chat.batch([chat.visual_turn(VIDVEC, clip(), transcript=token, placement="before")])


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_empty_text(chats, text):
    with pytest.raises(ValueError, match="empty text"):
        chats().text_turn(VIDVEC, text, max_tokens=100)


# --- clips ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("before", "user\nHello there\n<frames>\nSummarize above video in one word: <|im_end|>"),
        ("after", "user\n<frames>\nHello there\nSummarize above video in one word: <|im_end|>"),
        ("none", "user\n<frames>\nSummarize above video in one word: <|im_end|>"),
    ],
)
def test_place_of_the_transcript(chats, placement, expected):
    turn = chats().visual_turn(VIDVEC, clip(), transcript=" Hello there ", placement=placement)
    assert expected in turn.prompt.replace("<|vision_start|><|video_pad|><|vision_end|>", "<frames>")


@pytest.mark.parametrize("transcript", [None, "", "  "])
@pytest.mark.parametrize("placement", ["before", "after"])
def test_no_transcript_leaves_no_trace(chats, transcript, placement):
    silent = chats().visual_turn(VIDVEC, clip(), transcript=transcript, placement=placement)
    assert silent.prompt == chats().visual_turn(VIDVEC, clip()).prompt


def test_frames_are_not_sampled_again_and_their_seconds_arrive(chats):
    frames = clip(count=5, fps=2.0)
    spoken = words(chats(), chats().visual_turn(VIDVEC, frames))
    assert [spoken.count(f"Time {second}s:") for second in ("0.0", "0.5", "1.0", "1.5", "2.0")] == [1] * 5
    spoken = words(chats("qwen3_vl"), chats("qwen3_vl").visual_turn(VIDVEC, frames))
    assert [spoken.count(f"<{second} seconds>") for second in ("0.2", "1.2", "2.0")] == [
        1
    ] * 3  # pairs of frames
    batch = chats("qwen2_5_vl").batch([chats("qwen2_5_vl").visual_turn(VIDVEC, frames)])
    assert batch["second_per_grid_ts"] == pytest.approx([1.0])  # two frames a grid step, 2 fps
    assert batch["video_grid_thw"][0, 0] == 3  # five frames, the last one repeated


def test_seconds_of_a_segment_count_from_its_beginning(chats, clip_file):
    frames = read_frames(clip_file, FramePolicy(fps=2), start=1.0, end=2.0)
    metadata = video_metadata(frames)
    assert metadata["frames_indices"] == [2, 7]
    assert metadata["fps"] == pytest.approx(10)
    assert metadata["total_num_frames"] == 10
    assert metadata["duration"] == pytest.approx(1.0)
    assert "Time 0.2s:" in words(chats(), chats().visual_turn(VIDVEC, frames))


@pytest.mark.parametrize("family", SEEING)
@pytest.mark.parametrize("count", range(1, 8))
def test_very_short_clips_fit_every_family(chats, family, count):
    chat = chats(family)
    batch = chat.batch([chat.visual_turn(VIDVEC, clip(count))])
    assert batch["input_ids"].shape[0] == 1


@pytest.mark.parametrize("family", ["videollama3", "qwen2_5_vl", "qwen3_vl"])
def test_pixel_budget_shows_in_the_token_count(chats, family):
    chat = chats(family)
    counts = []
    for budget in (64 * 64, 32 * 32):
        frames = frames_in_memory(noise(4, 64, 64), FramePolicy(fps=2, max_pixels=budget))
        ids = chat.batch([chat.visual_turn(VIDVEC, frames)])["input_ids"]
        counts.append(int((ids == chat.processor.video_token_id).sum()))
    assert counts[1] < counts[0]


def test_images_and_clips_do_not_mix(chats):
    turns = [chats().visual_turn(VIDVEC, clip()), chats().visual_turn(VIDVEC, noise(32, 32))]
    with pytest.raises(ValueError, match="images and clips go into batches of their own"):
        chats().batch(turns)


def test_texts_may_stand_among_clips(chats):
    chat = chats()
    turns = [
        chat.visual_turn(VIDVEC, clip(2)),
        chat.text_turn(VIDVEC, "a dog", max_tokens=99),
        chat.visual_turn(VIDVEC, clip(5)),
    ]
    batch = chat.batch(turns)
    assert batch["input_ids"].shape[0] == 3
    assert batch["input_ids"][1][batch["attention_mask"][1] > 0].tolist() == chat.text_ids(
        VIDVEC, "a dog", max_tokens=99
    )


def test_families_that_word_clips_by_their_neighbours_get_equals_only(chats):
    chat = chats("smolvlm")
    two, other_two, three = (chat.visual_turn(VIDVEC, clip(count)) for count in (2, 2, 3))
    assert chat.go_together(two, other_two)
    assert not chat.go_together(two, three)


def test_a_text_model_takes_no_clips(chats):
    with pytest.raises(ValueError, match="this model reads text only"):
        chats("text").visual_turn(VIDVEC, clip())


# --- templates -----------------------------------------------------------------------------------------


def test_without_a_chat_template_the_prompt_stands_alone(tiny):
    chat = Chat.open(tiny("qwen2_5_vl", chat_template=False))
    assert chat.template is None
    turn = chat.text_turn(VIDVEC, "a dog", max_tokens=100)
    assert turn.prompt == "a dog\nSummarize above sentence in one word: "
    video = chat.visual_turn(VIDVEC, clip())
    assert (
        video.prompt.endswith("<|video_pad|>\nSummarize above video in one word: ")
        or "<|vision_end|>\n" in video.prompt
    )
    batch = chat.batch([video])
    assert (batch["input_ids"] == chat.processor.video_token_id).sum() > 0
    plain = Chat.open(tiny("text", chat_template=False))
    assert plain.text_turn(VIDVEC, "a dog", max_tokens=100).prompt == turn.prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_instruction_is_a_system_turn(chats, family):
    asked = PromptTemplate(instruction="Represent the input.")
    prompt = chats(family).text_turn(asked, "a dog", max_tokens=200).prompt
    role = "<start_of_turn>user" if family == "gemma3" else "ystem"  # Gemma has no system turn
    assert prompt.index(role) < prompt.index("Represent the input.") < prompt.index("a dog")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_without_chat_is_the_bare_words(chats, family):
    bare = PromptTemplate(text="Find: {text}", video="{video} Understand.", image="{video} See.", chat=False)
    chat = chats(family)
    assert chat.template is not None
    assert chat.text_turn(bare, "a dog", max_tokens=100).prompt == "Find: a dog"
    if family == "text":
        return
    for kind, visual, words in (("video", clip(4), " Understand."), ("image", noise(32, 32), " See.")):
        turn = chat.visual_turn(bare, visual, transcript="said", placement="before")
        each = chat.rendering.placeholder("image" if family == "gemma3" else kind)
        count = 4 if family == "gemma3" and kind == "video" else 1
        assert turn.prompt == f"said\n{each * count}{words}"
        ids = chat.batch([turn])["input_ids"]
        assert ids.shape[1] > turn.tokens  # the processor put the tokens of the pixels in


def test_the_preset_without_a_chat_template_reaches_the_model(llm, texts):
    """vlm2vec's words alone, and another vector than with the chat around them."""
    embedder = llm("qwen2_vl", prompt="vlm2vec", dtype="float32")
    (seen,) = embedder.inspect([texts[0]], role="query")
    assert seen.wording == "Find a video that contains the following visual content: a dog"
    wrapped = PromptTemplate(text=PROMPTS["vlm2vec"].text)
    other = llm("qwen2_vl", prompt=wrapped, dtype="float32").encode(texts, role="query")
    assert np.abs(embedder.encode(texts, role="query") - other).max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", PROMPTS)
def test_every_preset_with_every_family(chats, family, name):
    chat, prompt = chats(family), PROMPTS[name]
    turns = [chat.text_turn(prompt, "a dog", max_tokens=200)]
    if family != "text":
        turns += [chat.visual_turn(prompt, clip(3), transcript="said", placement="after")]
    for turn in turns:
        assert prompt.instruction in turn.prompt
        if prompt.chat:  # the generation prompt: what is read is the state that would begin the answer
            assert turn.prompt.rstrip().removesuffix(":").endswith(("assistant", "Assistant", "model"))
    chat.batch(turns)


# --- templates with ways of their own ----------------------------------------------------------------------


def test_words_before_the_frames_stay_there_though_the_template_puts_media_first(chats):
    chat = chats("llava_onevision")
    spoken = chat.visual_turn(VIDVEC, clip(), transcript="said", placement="before").prompt
    assert spoken.startswith("<|im_start|>user \nsaid\n<video>\nSummarize above video in one word: <|im_")
    silent = chat.visual_turn(VIDVEC, clip()).prompt  # the template's own order
    assert silent.startswith("<|im_start|>user <video>\n\nSummarize above video in one word: <|im_end|>")


def test_a_family_without_videos_gets_its_frames_as_images(chats):
    chat = chats("gemma3")
    turn = chat.visual_turn(VIDVEC, clip(3), transcript="said", placement="before")
    assert "user\nsaid" + "<start_of_image>" * 3 + "Summarize above video" in turn.prompt
    batch = chat.batch([turn])
    assert batch["pixel_values"].shape[0] == 3
    assert batch["token_type_ids"].sum() == 3 * 4  # the positions that see each other in both directions


def test_a_template_that_words_one_image_for_all_is_an_error_of_the_item(tiny):
    chat = Chat.open(tiny("gemma3"))
    chat.processor.chat_template = (
        "{% for message in messages %}<start_of_image>"
        "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endfor %}"
    )
    chat.visual_turn(VIDVEC, clip(1))
    with pytest.raises(
        ValueError,
        match=r"template of Gemma3Processor words 3 images as 1 placeholders <start_of_image>; this model "
        "cannot be shown several images in one turn",
    ):
        chat.visual_turn(VIDVEC, clip(3))


def test_a_processor_that_sees_nothing_is_an_error_of_the_item(chats):
    blind = SimpleNamespace(chat_template=None)
    chat = Chat(chats("text").tokenizer, blind)
    reason = "reads no {}: its SimpleNamespace has neither a video processor nor an image processor"
    for kind, visual in (("video", clip()), ("image", noise(32, 32))):
        with pytest.raises(ValueError, match=reason.format(kind)):
            chat.visual_turn(VIDVEC, visual)


def test_a_template_that_refuses_a_system_turn_is_an_error_of_the_item(tiny):
    chat = Chat.open(tiny("text"))
    chat.tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    assert chat.text_turn(VIDVEC, "a dog", max_tokens=100).prompt.startswith("a dog")
    with pytest.raises(
        ValueError,
        match=r"chat template of Qwen2Tokenizer refuses this chat: System role not supported. .*"
        "write the instruction into the prompt's text, video and image",
    ):
        chat.text_turn(PROMPTS["qwen3vl-embedding"], "a dog", max_tokens=100)


def test_opening_needs_no_weights(tiny, tmp_path):
    for path in Path(tiny("videollama3")).iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, tmp_path)
    assert Chat.open(str(tmp_path)).text_ids(VIDVEC, "a dog", max_tokens=100)


def test_no_processor(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        RefusedRequest, match=r"cannot load a processor or tokenizer for .*Accepted are a folder"
    ):
        Chat.open(str(tmp_path))


# --- sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "least"), [(0, 32 * 32), (16 * 16, 16 * 16), (64 * 64, 32 * 32)])
def test_a_budget_below_the_size_from_which_a_processor_enlarges(tiny, budget, least):
    processor = Chat.open(tiny("qwen2_5_vl"), max_pixels=budget).processor
    for part in (processor.image_processor, processor.video_processor):
        assert (part.size.shortest_edge, part.size.longest_edge) == (least, 64 * 64)
    assert processor.video_processor.cap_pixels_per_frame is False
    side = Chat.open(tiny("smolvlm"), max_pixels=budget).processor.video_processor.size
    assert side.longest_edge == 32  # the length of a side, not a number of pixels


def test_padding_side_is_checked(tiny):
    with pytest.raises(ValueError, match="padding must be 'right' or 'left', got 'middle'"):
        Chat.open(tiny("text"), padding="middle")

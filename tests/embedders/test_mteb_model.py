"""mteb's evaluation of our embedders: the same numbers as our own, from text and from real clips."""

import json
import sys

import mteb
import numpy as np
import pytest
from datasets import Audio, Dataset, Image, Video
from fakes import KEYWORDS, KeywordEmbedder
from media.clips import write_clip
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.models_protocols import EncoderProtocol
from mteb.types import PromptType
from PIL import Image as Picture
from torch.utils.data import DataLoader

from vidvec_msg.embedders import mteb_model
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.mteb_model import as_mteb
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.retrieval.evaluate import evaluate

# the same metric under both names; R@k of mteb is over all positives, as ours
METRICS = {
    "ndcg_at_10": "ndcg@10",
    "recall_at_1": "recall@1",
    "recall_at_3": "recall@3",
    "hit_rate_at_1": "hit_rate@1",
}


def task_of(folder, category="t2t", modalities=("text",)) -> AbsTaskRetrieval:
    """A collection as an mteb task, held in memory."""
    rows = {
        side: [json.loads(line) for line in (folder / f"{side}.jsonl").read_text().splitlines()]
        for side in ("corpus", "queries")
    }

    def table(side):
        kept = [{key.replace("_id", "id"): value for key, value in row.items()} for row in rows[side]]
        for row in kept:
            if "video" in row:
                row["video"] = str(folder / row["video"])
        made = Dataset.from_list(kept)
        return made.cast_column("video", Video()) if "video" in made.column_names else made

    relevant = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        relevant.setdefault(query, {})[document] = int(score)

    class Local(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Local",
            description="A collection of this project.",
            dataset={"path": "local", "revision": "1"},
            type="Retrieval",
            category=category,
            modalities=list(modalities),
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, num_proc=None, **kwargs):
            split = RetrievalSplitData(
                corpus=table("corpus"), queries=table("queries"), relevant_docs=relevant, top_ranked=None
            )
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    return Local()


def write_collection(folder, corpus, queries, relevant):
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"{query}\t{document}\t1" for query, document in relevant]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def scores_of(model, task):
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    return result.task_results[0].scores["test"][0]


def own_values(folder, spec, out):
    report = json.loads(
        (evaluate(folder, spec, out, metrics=list(METRICS.values())) / "report.json").read_text()
    )
    return {name: entry["value"] for name, entry in report["forward"]["metrics"].items()}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Texts of keywords, some alike, with titles; every query has two positives, not all on top."""
    random = np.random.default_rng(0)
    counts = random.integers(0, 5, (30, len(KEYWORDS)))
    counts[:, 0] += 1

    def text(row):
        return " ".join(word for word, count in zip(KEYWORDS, row, strict=True) for _ in range(count))

    corpus = [{"_id": f"d{row:02d}", "title": "apple", "text": text(counts[row])} for row in range(30)]
    queries = [
        {"_id": f"q{row}", "text": text(counts[row] + random.integers(0, 3, len(KEYWORDS)))}
        for row in range(10)
    ]
    relevant = [(f"q{row}", f"d{one:02d}") for row in range(10) for one in (row, row + 10)]
    return write_collection(tmp_path_factory.mktemp("words") / "c", corpus, queries, relevant)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Real clips of the tiny world's size, one colour each, and sentences."""
    folder = tmp_path_factory.mktemp("clips") / "c"
    colours = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220), "grey": (128, 128, 128)}
    folder.mkdir()
    for name, colour in colours.items():
        frames = [np.full((48, 48, 3), colour, dtype=np.uint8) for _ in range(20)]
        for number, frame in enumerate(frames):
            frame[number : number + 8, 10:20] = 255
        write_clip(folder / f"{name}.mp4", frames)
    corpus = [{"_id": name, "video": f"{name}.mp4"} for name in colours]
    queries = [{"_id": f"q-{name}", "text": f"A {name} ball rolls towards the wall."} for name in colours]
    return write_collection(folder, corpus, queries, [(f"q-{name}", name) for name in colours])


def test_the_same_numbers_as_our_own_evaluation(words, tmp_path):
    found = scores_of(as_mteb(KeywordEmbedder()), task_of(words))
    own = own_values(words, "fakes:KeywordEmbedder", tmp_path / "e")
    assert 0.1 < own["recall@1"] < own["recall@3"] < 1
    for theirs, ours in METRICS.items():
        assert found[theirs] == pytest.approx(own[ours], abs=1e-5), ours


def test_clips(clips, tmp_path):
    """datasets' Video column without torchcodec: our reader and our frames."""
    embedder = load_embedder("tinyworld", decode_timeout=0)
    found = scores_of(as_mteb(embedder), task_of(clips, "t2v", ("text", "video")))
    own = own_values(clips, "tinyworld?decode_timeout=0", tmp_path / "e")
    for theirs, ours in METRICS.items():
        assert found[theirs] == pytest.approx(own[ours], abs=1e-5), ours


def test_what_mteb_is_told():
    embedder = KeywordEmbedder()
    model = as_mteb(embedder)
    assert isinstance(model, EncoderProtocol)
    meta = model.mteb_model_meta
    assert (meta.name, meta.revision) == ("vidvec-msg/keywords", embedder.card.fingerprint)
    assert (meta.embed_dim, meta.modalities) == (len(KEYWORDS), ["text", "video"])
    assert meta.similarity_fn_name == "cosine"
    assert as_mteb(KeywordEmbedder(bias=1.0)).mteb_model_meta.revision != meta.revision


def test_a_task_of_a_medium_that_is_not_read(clips):
    class Texts(KeywordEmbedder):
        def __init__(self):
            super().__init__()
            self.card = EmbedderCard(name="texts", dim=len(KEYWORDS), weights="x")

    with pytest.raises(ValueError, match="video"):
        scores_of(as_mteb(Texts()), task_of(clips, "v2v", ("video",)))


# --- rows ---------------------------------------------------------------------------------------------------


class Recorder:
    """Remembers items and role, and gives each item the same vector."""

    card = EmbedderCard(name="recorder", dim=2, modalities=("text", "image", "video", "audio"), weights="x")

    def encode(self, items, *, role):
        self.items, self.role = list(items), role
        self.bytes = [path.read_bytes() for item in items if (path := item.video or item.audio) is not None]
        return np.tile(np.float32([1, 0]), (len(items), 1))


def encoded(rows, features=None, prompt_type=None, **options):
    embedder = Recorder()
    data = Dataset.from_list(rows)
    for name, feature in (features or {}).items():
        data = data.cast_column(name, feature)
    model = as_mteb(embedder, **options)
    loader = DataLoader(
        data, batch_size=8, collate_fn=lambda batch: {key: [row[key] for row in batch] for key in batch[0]}
    )
    task = type("Task", (), {"name": "Local"})
    vectors = model.encode(
        loader, task_metadata=task, hf_split="test", hf_subset="default", prompt_type=prompt_type
    )
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(rows), 2)
    return embedder


def test_roles():
    rows = [{"id": "a", "text": "x"}]
    assert encoded(rows, prompt_type=PromptType.query).role == "query"
    assert encoded(rows, prompt_type=PromptType.document).role == "document"
    assert encoded(rows).role == "query"
    assert encoded(rows, role_elsewhere="document").role == "document"
    (item,) = encoded(rows).items
    assert (item.id, item.text) == ("a", "x")


def test_images(tmp_path):
    Picture.new("L", (6, 4), 100).save(tmp_path / "p.png")
    (item,) = encoded([{"image": str(tmp_path / "p.png")}], {"image": Image()}).items
    assert (item.id, item.image.shape, item.image.dtype) == ("0", (4, 6, 3), np.uint8)


@pytest.mark.parametrize(("name", "feature"), [("video", Video), ("audio", Audio)])
def test_media_from_files_and_from_bytes(tmp_path, name, feature):
    (tmp_path / "clip.bin").write_bytes(b"from a file")
    from_file = encoded([{name: str(tmp_path / "clip.bin")}], {name: feature()})
    assert from_file.bytes == [b"from a file"]
    held = encoded([{name: {"path": "clip.bin", "bytes": b"held"}}], {name: feature()})
    assert held.bytes == [b"held"]
    (item,) = held.items
    path = item.video or item.audio
    assert path.name == "clip.bin"
    assert not path.parent.exists()  # nothing is left behind


def test_what_is_refused():
    with pytest.raises(RefusedRequest, match="task Local gives text and video in one row"):
        encoded([{"text": "why?", "video": "clip.mp4"}])
    with pytest.raises(RefusedRequest, match="task Local gives no text, image, video or audio in one row"):
        encoded([{"label": "x"}])
    with pytest.raises(
        RefusedRequest, match="task Local gives a medium as int; accepted are columns of datasets"
    ):
        encoded([{"video": 3}])
    model = as_mteb(KeywordEmbedder())
    with pytest.raises(RefusedRequest, match="precision 'int8': vectors are float32 here"):
        model.encode([], task_metadata=None, hf_split="", hf_subset="", precision="int8")


def test_items_that_cannot_be_embedded_are_named(words, tmp_path):
    rows = [json.loads(line) for line in (words / "corpus.jsonl").read_text().splitlines()]
    rows[3] |= {"title": "", "text": "nothing known"}
    folder = write_collection(tmp_path / "c", rows, [{"_id": "q", "text": "apple"}], [("q", "d00")])
    with pytest.raises(ItemError, match="item 'd03': no keyword in it"):
        scores_of(as_mteb(KeywordEmbedder()), task_of(folder))


def test_similarity():
    model, one = as_mteb(KeywordEmbedder()), np.eye(3, dtype=np.float32)
    assert model.similarity(one, one[:2]).tolist() == np.eye(3)[:, :2].tolist()
    assert model.similarity(one[0], one).shape == (1, 3)
    assert model.similarity_pairwise(one, one[::-1].copy()).tolist() == [0.0, 1.0, 0.0]


class _NoMteb:
    """As on a machine without it."""

    def find_spec(self, name, *_):
        if name == "mteb":
            raise ModuleNotFoundError("No module named 'mteb'", name="mteb")


def test_without_mteb(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "mteb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_NoMteb(), *sys.meta_path])
    with pytest.raises(RefusedRequest, match=r"pip install 'vidvec-msg\[mteb\]'"):
        mteb_model.as_mteb(KeywordEmbedder())

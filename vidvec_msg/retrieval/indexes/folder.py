"""An index folder on disk: its names, what it is refused for, and how it comes into place. Needs no FAISS.

An index is one or more *segments*, each a FAISS file with its ids, and a set of deleted positions, counted
through the segments one after the other. ``index.json``, the manifest, names all files and comes last; how it
is changed later stands in ``changes.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vidvec_msg.checksums import checksum, named
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.vectors import IDS, VectorsFolder
from vidvec_msg.runs import digest_of, file_digest, read_json, umask

INDEX = "index.faiss"
EXACT = "vectors.npy"  # unit vectors of full length, for exact rescoring
DELETED = "deleted.npy"
MANIFEST = "index.json"
REMAKE = "vidvec-msg index"
FORMAT = 2  # 1: one segment, nothing deleted


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment, as the manifest lists it.

    Args:
        index: name of the FAISS file.
        ids: name of the Parquet file with ids and metadata; row = FAISS position.
        count: rows, deleted ones included.
        factory: FAISS factory string.
        search_parameters: FAISS's names and values, such as "nprobe=64".
        truncate_dim: the FAISS file holds so many leading dimensions, normalised anew; None: all.
        vectors: name of a ``.npy`` file (count, dim), float16 or float32, of unit rows; None: there is none.
        oversample: candidates per wanted result whose exact scores are taken from ``vectors``; None: FAISS's
            scores are final.
    """

    index: str
    ids: str
    count: int
    factory: str
    search_parameters: str = ""
    truncate_dim: int | None = None
    vectors: str | None = None
    oversample: int | None = None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SegmentEntry:
        """From an object of the manifest; keys of other writers are ignored."""
        return cls(**{field.name: content[field.name] for field in fields(cls) if field.name in content})

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        return asdict(self)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of its files."""
        return (self.index, self.ids) if self.vectors is None else (self.index, self.ids, self.vectors)


def engine_of(folder: Path) -> str:
    """What keeps the vectors of an index: "faiss" or "milvus".

    Raises:
        RefusedRequest: it has no manifest.
    """
    manifest = read_json(folder / MANIFEST, what="index", made_by=REMAKE)
    return str(manifest.get("engine", "faiss"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an index folder, as format 2 says it whatever it was written in.

    Raises:
        RefusedRequest: it is missing, of a later format, of another engine, lacks something, or names files
            outside the folder.
    """
    manifest = read_json(folder / MANIFEST, what="index", made_by=REMAKE)
    if (written := manifest.get("format", 1)) not in range(1, FORMAT + 1):
        raise RefusedRequest(
            f"index {folder} is of format {written}; this version of vidvec-msg knows up to {FORMAT}. "
            f"Update vidvec-msg, or make the index again: `{REMAKE}`."
        )
    if (engine := manifest.get("engine", "faiss")) != "faiss":
        raise RefusedRequest(
            f"index {folder} is kept by {engine}, not in FAISS files; this needs FAISS files."
        )
    needed = ("card", "factory", "count", "checksums", *(("segments",) if written > 1 else ()))
    lacking = [key for key in needed if key not in manifest]
    for entry in manifest.get("segments", ()):
        lacking += [f"{key} of a segment" for key in ("index", "ids", "count", "factory") if key not in entry]
    if lacking:
        raise RefusedRequest(
            f"index {folder}: {MANIFEST} lacks {', '.join(lacking)}. Make the index again: `{REMAKE}`."
        )
    only = SegmentEntry(
        INDEX, IDS, manifest["count"], manifest["factory"], manifest.get("search_parameters", "")
    )
    earlier = {"segments": [only.to_dict()], "deleted": None, "generation": 1, "engine": "faiss"}
    whole = {**earlier, **manifest, "format": FORMAT}
    if outside := [name for name in files_of(whole) if Path(name).name != name]:
        raise RefusedRequest(
            f"index {folder}: {MANIFEST} names {', '.join(map(repr, outside))}; the files of an index lie in "
            f"its folder. Make it again: `{REMAKE}`."
        )
    _refuse_bad_checksums(folder, whole)
    return whole


def _refuse_bad_checksums(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses a manifest that does not say a checksum of each of its files.

    Raises:
        RefusedRequest: naming each file.
    """
    problems = Problems(f"index {folder}: {MANIFEST}")
    given = manifest["checksums"] if isinstance(manifest["checksums"], dict) else {}
    for name in files_of(manifest):
        if name not in given:
            problems.add(f"no checksum of {name}. Make the index again: `{REMAKE}`")
            continue
        try:
            named(given[name])
        except RefusedRequest as error:
            problems.add(f"{name}: {error}, or make the index again: `{REMAKE}`")
    problems.refuse_if_any()


def segments_of(manifest: Mapping[str, Any]) -> list[SegmentEntry]:
    """The segments that a manifest lists, in their order."""
    return [SegmentEntry.from_dict(content) for content in manifest["segments"]]


def files_of(manifest: Mapping[str, Any]) -> list[str]:
    """Names of all files that a manifest lists."""
    names = [name for entry in segments_of(manifest) for name in entry.files]
    return [*names, manifest["deleted"]["file"]] if manifest["deleted"] else names


def described(
    folder: Path, names: Iterable[str], *, like: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """What a manifest says of files: ``checksums``, and ``sizes`` (bytes, for every opening).

    Args:
        folder: holds them.
        names: of the files.
        like: checksums that those of some of the files will be compared with.
    """
    names, like = list(names), like or {}
    return {
        "checksums": {name: checksum(folder / name, like=like.get(name, "")) for name in names},
        "sizes": {name: (folder / name).stat().st_size for name in names},
    }


def key_of(folder: VectorsFolder, factory: str) -> str:
    """Changes with the vectors, their ids and metadata, their embedder, and the factory."""
    shards = [shard.checksum or file_digest(folder.path / shard.file) for shard in folder.files]
    return digest_of([shards, file_digest(folder.path / IDS), folder.manifest["card"], factory])


def is_complete(out: Path, key: str) -> bool:
    """Whether ``out`` holds the whole index with this key.

    Raises:
        RefusedRequest: it holds another one.
    """
    if not (out / MANIFEST).is_file():
        return False
    found = read_json(out / MANIFEST, what="index", made_by=REMAKE)
    if found.get("key") == key:
        return True
    if found.get("generation", 1) > 1:
        raise RefusedRequest(
            f"--out {out} holds an index that was changed since it was built ({found.get('count')} vectors, "
            f"generation {found['generation']}); give another folder, or remove it first."
        )
    raise RefusedRequest(
        f"--out {out} holds an index of other vectors or of another factory "
        f"(found {found.get('factory_asked')!r}, {found.get('count')} vectors of "
        f"{found.get('card', {}).get('name')}); give another folder, or remove it first."
    )


def checked_card(folder: VectorsFolder) -> EmbedderCard:
    """The card of a vectors folder, which another tool may have written, fit to stand in an index.

    Raises:
        RefusedRequest: no vectors, ids that are not unique, a card that is none or has another dimension.
    """
    try:
        card = EmbedderCard.from_dict(folder.card)
    except ValueError as error:
        raise RefusedRequest(f"vectors folder {folder.path}: {error}") from error
    problems = Problems(f"vectors folder {folder.path}")
    if not folder.count:
        problems.add("it holds no vectors; embed a collection that is not empty")
    for name, times in folder.repeated_ids().items():
        problems.add(f"id {name!r} stands {times} times; ids must be unique")
    if card.dim != folder.dim:
        problems.add(f"its card says {card.dim} dimensions, its vectors have {folder.dim}")
    problems.refuse_if_any()
    return card


def refuse_damaged(path: Path, expected: str, *, size: int | None = None, verify: bool = True) -> None:
    """Refuses a file of an index that is missing, has another size or, if ``verify``, another checksum.

    Args:
        path: the file.
        expected: its checksum.
        size: its bytes; None if the manifest does not say.
        verify: also reads the file to compare the checksum.

    Raises:
        RefusedRequest: naming the file, what was found and what was expected.
    """
    if not path.is_file():
        raise damaged(path, "no file", expected)
    if size is not None and (there := path.stat().st_size) != size:
        raise RefusedRequest(
            f"index {path.parent}: {path.name} is damaged: found {there} bytes, expected {size}. "
            f"Copy it again, or make it again: `{REMAKE}`."
        )
    if verify and (found := checksum(path, like=expected)) != named(expected):
        raise damaged(path, found, expected)


def damaged(path: Path, found: str, expected: str) -> RefusedRequest:
    """What is said of a file that is not what the manifest says: its checksum, found and expected."""
    return RefusedRequest(
        f"index {path.parent}: {path.name} is damaged: found {found}, expected {named(expected)}. "
        f"Copy it again, or make it again: `{REMAKE}`."
    )


def refuse_foreign_embedder(folder: Path, made_with: EmbedderCard, given: EmbedderCard) -> None:
    """Refuses queries of another embedder than the index was made with.

    Raises:
        RefusedRequest: with both fingerprints and what to do.
    """
    if given.dim == made_with.dim and given.fingerprint == made_with.fingerprint:
        return
    raise RefusedRequest(
        f"index {folder} was made with another embedder: found {made_with.name} ({made_with.dim} dimensions, "
        f"fingerprint {made_with.fingerprint}), but queries come from {given.name} ({given.dim} dimensions, "
        f"fingerprint {given.fingerprint}). Give the index's own embedder, or build an index with yours: "
        f"`{REMAKE}`."
    )


@contextmanager
def put_in_place(out: Path) -> Iterator[Path]:
    """A temporary folder whose files are in ``out`` when the block ends well, the manifest last.

    Its name is unique, so that two writers cannot write into each other's files.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        yield staged
        staged.chmod(0o777 & ~umask())  # mkdtemp makes private folders
        if (out / MANIFEST).exists():
            raise RefusedRequest(
                f"--out {out}: another process finished an index there; give another folder."
            )
        if not out.exists() or not any(out.iterdir()):
            staged.replace(out)
            return
        names = sorted((path.name for path in staged.iterdir()), key=lambda name: name == MANIFEST)
        for name in names:  # ``out`` holds the vectors already
            (staged / name).replace(out / name)
    finally:
        shutil.rmtree(staged, ignore_errors=True)

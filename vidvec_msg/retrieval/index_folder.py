"""An index folder on disk: its names, what it is refused for, and how it comes into place. Needs no FAISS."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.vectors import IDS, VectorsFolder
from vidvec_msg.runs import digest_of, file_digest, read_json

INDEX = "index.faiss"
MANIFEST = "index.json"
REMAKE = "vidvec-msg index"


def key_of(folder: VectorsFolder, factory: str) -> str:
    """Changes with the vectors, their ids and metadata, their embedder, and the factory."""
    shards = [shard.sha256 or file_digest(folder.path / shard.file) for shard in folder.files]
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
    if not folder.ids:
        problems.add("it holds no vectors; embed a collection that is not empty")
    for name, times in Counter(folder.ids).most_common():
        if times == 1:
            break
        problems.add(f"id {name!r} stands {times} times; ids must be unique")
    if card.dim != folder.dim:
        problems.add(f"its card says {card.dim} dimensions, its vectors have {folder.dim}")
    problems.refuse_if_any()
    return card


def refuse_damaged(path: Path, expected: str, *, verify: bool = True) -> None:
    """Refuses a file of an index that is missing or, if ``verify``, has another checksum.

    Raises:
        RefusedRequest: naming the file, what was found and what was expected.
    """
    found = "no file" if not path.is_file() else file_digest(path) if verify else expected
    if found != expected:
        raise RefusedRequest(
            f"index {path.parent}: {path.name} is damaged: found {found}, expected SHA-256 {expected}. "
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
        umask = os.umask(0)
        os.umask(umask)
        staged.chmod(0o777 & ~umask)  # mkdtemp makes private folders
        if (out / MANIFEST).exists():
            raise RefusedRequest(
                f"--out {out}: another process finished an index there; give another folder."
            )
        if not out.exists() or not any(out.iterdir()):
            staged.replace(out)
            return
        for name in (INDEX, IDS, MANIFEST):  # ``out`` holds the vectors already
            (staged / name).replace(out / name)
    finally:
        shutil.rmtree(staged, ignore_errors=True)

"""An embedder, or pairs → a repository on the Hugging Face hub, by its official client; the verb ``push``.

The token is the client's own matter (HF_TOKEN, or what ``hf auth login`` stored): it is never an option,
never passed on here, and blanked out of whatever is said.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vidvec_msg.embedders.upload_list import UploadList, size_told, upload_list
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.runs import software_versions

if TYPE_CHECKING:
    from huggingface_hub import HfApi

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# what would be read together with the pushed files, if it stood beside them
_OF_A_MODEL = (".safetensors", ".json", ".jinja", ".bin", ".pt", ".model")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_HOW = "set HF_TOKEN to a token with write access, or run `hf auth login`"


def push(
    embedder: Path,
    to: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    replace: bool = False,
    endpoint: str | None = None,
    dry_run: bool = False,
) -> None:
    """Uploads an embedder folder, merged or not, or an exported one, to a model repository on a hub; pairs of
    synth or filter-pairs to a dataset repository.

    The folder is checked, what will be uploaded is printed with its size, and everything becomes one commit:
    a reader of the repository sees all of it or nothing. Checkpoints, optimizer states and run folders are
    never uploaded. The token is HF_TOKEN or that of `hf auth login`; there is no option for it.

    Args:
        embedder: the folder: an embedder folder of fit or merge, or what export, synth or filter-pairs wrote.
        to: the repository, USER/NAME or ORGANISATION/NAME; made if it does not exist.
        private: only you and those you allow see the repository. An existing public one is refused.
        revision: branch to commit to; made if it does not exist. The repository's main branch by default.
        message: of the commit; says what was made if not given.
        replace: remove model files of the repository that the folder does not have, in the same commit.
        endpoint: address of the hub; HF_ENDPOINT or https://huggingface.co by default.
        dry_run: print what would be uploaded, and upload nothing.

    Raises:
        RefusedRequest: the folder or the name is not fit, or the hub does not let you; nothing was published.
        JobFailed: the hub cannot be reached, or failed; nothing was published.
    """
    if not _NAME.fullmatch(to):
        raise RefusedRequest(f"--to is {to!r}; a repository is USER/NAME or ORGANISATION/NAME")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise RefusedRequest(
            f"--endpoint is {endpoint!r}; give an address that begins with https:// or http://"
        )
    found = upload_list(embedder)
    api = _client(endpoint)
    _refuse_open_network(api.endpoint)
    sys.stdout.write(_listing(found, to, api.endpoint, private=private, revision=revision))
    if dry_run:
        sys.stdout.write("dry run: nothing was uploaded\n")
        return
    _refuse_without_token()
    with _said_plainly(to, api.endpoint):
        before = _open_repository(api, to, found.kind, private=private, revision=revision)
        strangers = before.beside(found)
        if strangers and not replace:
            named = f"{', '.join(strangers[:4])}{', …' if len(strangers) > 4 else ''}"
            raise RefusedRequest(
                f"{to} holds {len(strangers)} model files that {found.folder} does not have ({named}), and "
                "they would stand beside the pushed ones. Give --replace to remove them in the same commit, "
                "another --revision, or another name."
            )
        operations = _operations(found, removed=strangers)
        made = "Embedder" if found.kind == "model" else "Pairs"
        done = api.create_commit(
            to,
            operations,
            commit_message=message or f"{made} made with vidvec-msg",
            revision=revision,
            parent_commit=before.commit,
            repo_type=found.kind,
        )
    sys.stdout.write(f"{done.commit_url}\n")
    logger.info("pushed %d files, %s, to %s", len(found.files), size_told(found.size), to)


def _client(endpoint: str | None) -> HfApi:
    from huggingface_hub import HfApi
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # not in its stubs

    if not sys.stderr.isatty():
        disable_progress_bars()
    return HfApi(
        endpoint=None if endpoint is None else endpoint.rstrip("/"),
        library_name="vidvec-msg",
        library_version=software_versions().get("vidvec-msg"),
    )


def _listing(found: UploadList, to: str, endpoint: str, *, private: bool, revision: str | None) -> str:
    where = f"{to} at {endpoint}{f', branch {revision}' if revision else ''}{', private' if private else ''}"
    width = max(map(len, found.files))
    lines = [f"{found.folder} → {where}"]
    lines += [f"  {name:<{width}}  {size_told(size):>9}" for name, size in found.files.items()]
    lines.append(f"{len(found.files)} files, {size_told(found.size)}")
    lines += [f"left out: {name} ({reason})" for name, reason in found.left_out.items()]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines) + "\n"


# --- the hub ------------------------------------------------------------------------------------------------


def _refuse_open_network(endpoint: str) -> None:
    """Refuses an address to which the token would go in the clear; HF_ENDPOINT may be one too."""
    address = urlsplit(endpoint)
    if address.scheme == "http" and address.hostname not in _THIS_MACHINE:
        raise RefusedRequest(
            "the endpoint is an http:// address of another machine, and the token would cross the network "
            "unencrypted: give an https:// address; http:// is for a hub on this machine alone (localhost)"
        )


def _refuse_without_token() -> None:
    from huggingface_hub import get_token

    if get_token() is None:
        raise RefusedRequest(f"there is no token for the hub: {_HOW}")


@dataclass(frozen=True, slots=True)
class _Repository:
    """What a repository's branch holds before the push.

    Args:
        files: names.
        commit: that the branch is at.
    """

    files: tuple[str, ...]
    commit: str | None

    def beside(self, found: UploadList) -> list[str]:
        """Model files that the folder does not have."""
        published = set(found.published.values())
        return [name for name in self.files if name.endswith(_OF_A_MODEL) and name not in published]


def _open_repository(api: HfApi, to: str, kind: str, *, private: bool, revision: str | None) -> _Repository:
    """Makes the repository and the branch if they are not there."""
    look = api.dataset_info if kind == "dataset" else api.model_info
    api.create_repo(to, private=private or None, exist_ok=True, repo_type=kind)
    if private and not look(to).private:
        raise RefusedRequest(f"{to} exists and is public; --private would not hold. Make it private first.")
    if revision is not None:
        api.create_branch(to, branch=revision, exist_ok=True, repo_type=kind)
    info = look(to, revision=revision)
    return _Repository(tuple(sibling.rfilename for sibling in info.siblings or ()), info.sha)


def _operations(found: UploadList, *, removed: Sequence[str]) -> list[Any]:
    """Of one commit: `upload_folder` may make several of a large folder, and a reader would see a part."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    return [
        *(CommitOperationDelete(path_in_repo=name) for name in removed),
        *(
            CommitOperationAdd(path_in_repo=published, path_or_fileobj=found.folder / name)
            for name, published in found.published.items()
        ),
    ]


# --- what goes wrong there ----------------------------------------------------------------------------------


@contextmanager
def _said_plainly(to: str, endpoint: str) -> Iterator[None]:
    """Turns the client's errors into ours, without the token in them."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # what the client's network library raises, and OSError
    network: tuple[Any, ...] = HfHubHTTPError.__bases__
    try:
        yield
    except RefusedRequest:
        raise
    except OfflineModeIsEnabled as error:
        raise RefusedRequest(
            "HF_HUB_OFFLINE is set, which forbids the client the network; unset it"
        ) from error
    except (*network, RuntimeError) as error:  # the latter around an upload that failed
        raise _as_ours(error, to, endpoint) from None
    except JSONDecodeError:
        raise JobFailed(
            f"{endpoint} answered something that is no answer of a hub; nothing was published"
        ) from None
    except ValueError as error:  # the header of README.md, or a server that answers otherwise than a hub
        raise RefusedRequest(f"the hub does not take this: {_blanked(str(error))}") from None


def _as_ours(error: BaseException, to: str, endpoint: str) -> RefusedRequest | JobFailed:
    source = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
    status = getattr(getattr(source, "response", None), "status_code", None)
    told = _blanked(str(getattr(source, "server_message", None) or ""))
    ending = f" The hub says: {told}" if told else ""
    if status is None:
        reason = _blanked(f"{type(source).__name__}: {source}")
        return JobFailed(f"{endpoint} cannot be reached ({reason}); nothing was published. Run it again.")
    if status == 401:
        return RefusedRequest(f"the hub does not accept the token (401): {_HOW}.{ending}")
    if status == 403:
        return RefusedRequest(
            f"the token may not write to {to} (403): it needs write access to {to.partition('/')[0]}.{ending}"
        )
    if status in (409, 412):
        return JobFailed(
            f"{to} was changed by somebody else meanwhile ({status}); nothing was published. Look at it, "
            f"then run it again.{ending}"
        )
    if status == 429 or status >= 500:
        return JobFailed(
            f"{endpoint} failed ({status}), several times; nothing was published. Run it again later.{ending}"
        )
    return RefusedRequest(f"the hub refused {to} ({status}).{ending or ' It gave no reason.'}")


def _blanked(text: str) -> str:
    """One line without the token, whoever put it there."""
    from huggingface_hub import get_token

    token = get_token()
    line = " ".join(text.split())
    return line.replace(token, "***") if token else line

"""A hub on loopback: repositories, branches, commits and large files, as far as the official client asks.

Written after the requests of huggingface_hub (``create_repo``, ``create_branch``, ``model_info``,
``create_commit`` with its pre-upload, LFS batch and upload); files are kept as they arrive.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from loopback import LoopbackHandler, LoopbackServer, running

TOKEN = "hf_secret0123456789"


class Hub(LoopbackServer):
    """Change the attributes while it runs.

    Args:
        refuses: step → status it answers with: create, branch, info, yaml, preupload, batch, put, commit.
        says: message that goes with a refusal.
    """

    root = ""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.refuses: dict[str, int] = {}
        self.says = ""
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}  # name → branch → file → bytes
        self.commits: dict[tuple[str, str], list[str]] = {}  # of a branch, the oldest first
        self.private: set[str] = set()
        self.large: dict[str, bytes] = {}  # by SHA-256
        self.asked: list[tuple[str, str, dict[str, str]]] = []  # method and path, step, headers

    @property
    def steps(self) -> list[str]:
        """What was asked for, in order."""
        return [step for _, step, _ in self.asked]

    def make(self, name: str, files: dict[str, bytes] | None = None, *, private: bool = False) -> None:
        """A repository with a first commit."""
        self.repositories[name] = {"main": {".gitattributes": b"", **(files or {})}}
        self.commits[name, "main"] = ["0" * 40]
        if private:
            self.private.add(name)


def running_hub() -> AbstractContextManager[Hub]:
    return running(Hub())


_ROUTES = (
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/(?:models|datasets)/(?P<repo>[^/]+/[^/]+)/branch/(?P<branch>[^/]+)", "branch"),
    ("GET", r"/api/(?:models|datasets)/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<branch>[^/]+))?", "info"),
    ("POST", r"/api/validate-yaml", "yaml"),
    ("POST", r"/api/(?:models|datasets)/(?P<repo>[^/]+/[^/]+)/preupload/(?P<branch>[^/]+)", "preupload"),
    ("POST", r"/(?:datasets/)?(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
    ("PUT", r"/large/(?P<oid>[0-9a-f]{64})", "put"),
    ("POST", r"/api/(?:models|datasets)/(?P<repo>[^/]+/[^/]+)/commit/(?P<branch>[^/]+)", "commit"),
)


class _Handler(LoopbackHandler):
    server: Hub

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        fitting = [(re.fullmatch(pattern, path), step) for kind, pattern, step in _ROUTES if kind == method]
        match, step = next((found for found in fitting if found[0]), (None, ""))
        if match is None:
            self._reply(404, {"error": f"no such route: {method} {path}"})
            return
        with self.server.lock:
            self.server.asked.append((f"{method} {path}", step, dict(self.headers)))
            if step in self.server.refuses:
                self._reply(self.server.refuses[step], {"error": self.server.says})
            elif step != "put" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._reply(401, {"error": "Invalid username or password."})
            else:
                values = {key: unquote(value) for key, value in match.groupdict().items() if value}
                getattr(self, f"_{step}")(**values)

    def _reply(self, status: int, content: Any) -> None:
        told = {"X-Error-Message": content["error"]} if status >= 400 and content.get("error") else {}
        self.send(status, content, told)

    # --- steps

    def _create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.server.repositories:
            address = f"{self.server.url}/{name}"
            self._reply(409, {"error": "You already created this model repo", "url": address})
            return
        self.server.make(name, private=asked.get("visibility") == "private")
        self._reply(200, {"url": f"{self.server.url}/{name}"})

    def _branch(self, repo: str, branch: str) -> None:
        branches = self.server.repositories[repo]
        if branch in branches:
            self._reply(409, {"error": "Reference already exists"})
            return
        branches[branch] = dict(branches["main"])
        self.server.commits[repo, branch] = list(self.server.commits[repo, "main"])
        self._reply(201, {})

    def _info(self, repo: str, branch: str = "main") -> None:
        if repo not in self.server.repositories:
            self._reply(404, {"error": "Repository not found"})
            return
        files = self.server.repositories[repo][branch]
        content = {"id": repo, "sha": self.server.commits[repo, branch][-1]}
        content |= {"private": repo in self.server.private, "tags": [], "downloads": 0, "likes": 0}
        self._reply(200, {**content, "siblings": [{"rfilename": name} for name in files]})

    def _yaml(self) -> None:
        content = json.loads(self.body)["content"]
        try:
            header = yaml.safe_load(content.split("---\n")[1]) if content.startswith("---\n") else {}
            good = isinstance(header, dict)
        except yaml.YAMLError:
            good = False
        errors = [] if good else [{"message": "the header is not YAML"}]
        self._reply(200 if good else 400, {"errors": errors, "warnings": []})

    def _preupload(self, repo: str, branch: str) -> None:
        def entry(file: dict[str, Any]) -> dict[str, Any]:
            large = file["path"].endswith(".safetensors") or file["size"] > 10_000_000
            return {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}

        self._reply(200, {"files": [entry(file) for file in json.loads(self.body)["files"]]})

    def _batch(self, repo: str) -> None:
        def entry(file: dict[str, Any]) -> dict[str, Any]:
            upload = {"href": f"{self.server.url}/large/{file['oid']}"}
            return {**file, "actions": {"upload": upload}}

        self._reply(200, {"objects": [entry(file) for file in json.loads(self.body)["objects"]]})

    def _put(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            self._reply(400, {"error": "other bytes than announced"})
            return
        self.server.large[oid] = self.body
        self._reply(200, {})

    def _commit(self, repo: str, branch: str) -> None:
        lines = [json.loads(line) for line in self.body.splitlines()]
        commits = self.server.commits[repo, branch]
        if lines[0]["value"].get("parentCommit", commits[-1]) != commits[-1]:
            self._reply(412, {"error": "A commit has happened since."})
            return
        files = dict(self.server.repositories[repo][branch])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.server.repositories[repo][branch] = files
        commits.append(hashlib.sha1(self.body).hexdigest())
        address = f"{self.server.url}/{repo}/commit/{commits[-1]}"
        self._reply(200, {"commitUrl": address, "commitOid": commits[-1]})

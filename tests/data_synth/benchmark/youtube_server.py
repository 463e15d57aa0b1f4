"""A loopback server with the JSON of the YouTube Data API v3: search.list with pages, and videos.list."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loopback import LoopbackHandler, LoopbackServer, running


@dataclass(frozen=True)
class Video:
    """A video of the fake service.

    Args:
        title: whose words a query has to share.
        duration: as the service writes it.
        live: "none", "live" or "upcoming".
        gone: found by a search, unknown to videos.list.
    """

    title: str
    description: str = ""
    duration: str = "PT45S"
    live: str = "none"
    gone: bool = False


def error(status: int, reason: str, message: str = "") -> tuple[int, Any]:
    """An error in the service's own form."""
    words = message or f"it says {reason}"
    return status, {
        "error": {
            "code": status,
            "message": words,
            "errors": [{"message": words, "domain": "youtube.quota", "reason": reason}],
        }
    }


class YouTubeServer(LoopbackServer):
    """Change the attributes while it runs.

    Args:
        videos: id → video.
        page: results a page.
    """

    root = "/youtube/v3"

    def __init__(self, videos: dict[str, Video], page: int = 50) -> None:
        super().__init__(_Handler)
        self.videos, self.page = videos, page
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.paths: list[str] = []
        self.scripted: list[Any] = []  # (status, body[, headers]), "cut" or "torn": go before all else
        self.delay = 0.0

    def searched(self) -> list[str]:
        """The queries of search.list, a page each."""
        return [parameters["q"] for call, parameters in self.calls if call == "search"]


class _Handler(LoopbackHandler):
    server: YouTubeServer

    def do_GET(self) -> None:
        server, parts = self.server, urlsplit(self.path)
        parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        call = parts.path.rpartition("/")[2]
        with server.lock:
            server.calls.append((call, parameters))
            server.headers.append(self.small_headers())
            server.paths.append(self.path)
            scripted = server.scripted.pop(0) if server.scripted else None
        time.sleep(server.delay)
        if scripted == "cut":
            self.close_connection = True
            return
        if scripted == "torn":
            self.tear(b'{"items": [')
            return
        if scripted is not None:
            self.send(*scripted)
        else:
            self.send(200, _found(server, parameters) if call == "search" else _known(server, parameters))


def _found(server: YouTubeServer, parameters: dict[str, str]) -> dict[str, Any]:
    """Videos by shared words with the query, as many a page as there are; the best first."""
    asked = set(parameters["q"].casefold().split())
    scores = {name: len(asked & set(one.title.casefold().split())) for name, one in server.videos.items()}
    names = sorted((name for name, score in scores.items() if score), key=lambda name: -scores[name])
    first = int(parameters.get("pageToken", "P0")[1:])
    size = min(server.page, int(parameters["maxResults"]))
    items: list[dict[str, Any]] = [
        {"kind": "youtube#searchResult", "id": {"kind": "youtube#video", "videoId": name}}
        for name in names[first : first + size]
    ]
    rest = {"nextPageToken": f"P{first + size}"} if first + size < len(names) else {}
    return {
        "kind": "youtube#searchListResponse",
        **rest,
        "pageInfo": {"totalResults": len(names), "resultsPerPage": size},
        "items": items,
    }


def _known(server: YouTubeServer, parameters: dict[str, str]) -> dict[str, Any]:
    names = parameters["id"].split(",")
    assert len(names) <= 50, "the service takes 50 ids a call"
    items = [_item(name, server.videos[name]) for name in reversed(names) if not server.videos[name].gone]
    return {"kind": "youtube#videoListResponse", "items": items}


def _item(name: str, video: Video) -> dict[str, Any]:
    return {
        "kind": "youtube#video",
        "id": name,
        "snippet": {
            "title": video.title,
            "description": video.description,
            "channelTitle": "A channel",
            "publishedAt": "2024-05-01T12:00:00Z",
            "liveBroadcastContent": video.live,
        },
        "contentDetails": {"duration": video.duration},
    }


def youtube_server(videos: dict[str, Video], page: int = 50) -> AbstractContextManager[YouTubeServer]:
    """A running server; gone at the end of the block."""
    return running(YouTubeServer(videos, page))

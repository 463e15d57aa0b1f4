"""Clips from YouTube: a search by its Data API, and the lengths and descriptions of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vidvec_msg.data_synth.benchmark.providers.contract import (
    Clip,
    Wanted,
    seconds_of,
    too_long,
    youtube_address,
)  # fmt: skip
from vidvec_msg.data_synth.benchmark.providers.youtube_client import COSTS, YouTubeClient
from vidvec_msg.errors import Problems, did_you_mean

PARAMETERS = (
    "channelId", "location", "locationRadius", "order", "publishedAfter", "publishedBefore", "regionCode",
    "relevanceLanguage", "safeSearch", "topicId", "videoCaption", "videoCategoryId", "videoDefinition",
    "videoDuration", "videoEmbeddable", "videoLicense", "videoSyndicated", "videoType",
)  # fmt: skip
"""Of search.list that a user may set; https://developers.google.com/youtube/v3/docs/search/list"""

_PAGE = 50  # results a call, the most that the API gives: a call costs the same with fewer
_SHORT = 240.0  # seconds that videoDuration=short stands for
_SEARCH_FIELDS = "nextPageToken,items(id/videoId)"
_VIDEO_FIELDS = (
    "items(id,snippet(title,description,channelTitle,publishedAt,liveBroadcastContent),"
    "contentDetails/duration)"
)


def check_parameters(parameters: Mapping[str, Any], problems: Problems) -> None:
    """Notes search parameters that there are not, or that are not a text or a number."""
    for name, value in parameters.items():
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            problems.add(
                f"youtube: unknown parameter {name!r}{did_you_mean(name, PARAMETERS)}; known: {known}"
            )
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            problems.add(f"youtube: {name} is {value!r}; it must be a text")


@dataclass(slots=True)
class YouTube:
    """Searches YouTube.

    Args:
        client: makes the calls.
        parameters: of search.list.
        pages: of results that one query may take, 50 results and 100 units each.
    """

    client: YouTubeClient
    parameters: Mapping[str, Any]
    pages: int = 1
    name: str = field(init=False, default="youtube")

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Provider`."""
        return {"parameters": dict(self.parameters), "pages": self.pages}

    def search(self, wanted: Wanted) -> Sequence[Clip]:
        """Page after page, until there are enough clips of the right length, or no more pages.

        See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Provider`.
        """
        found: list[Clip] = []
        usable, token = 0, ""
        for _ in range(self.pages):
            page = self.client.get("search", self._parameters(wanted, token))
            ids = [video for item in page.get("items", []) if (video := _video_id(item))]
            if ids:
                for clip in self._clips(ids, wanted):
                    found.append(clip)
                    usable += not clip.left_out
                    if usable == wanted.limit:
                        return found
            token = str(page.get("nextPageToken") or "")
            if not token:
                break
        return found

    def most(self, searches: int) -> str:
        """Units of a number of searches."""
        units = searches * self.pages * (COSTS["search"] + COSTS["videos"])
        days = f", {-(-units // self.client.quota)} days of --quota" if self.client.quota else ""
        return f"{units:,} units of the YouTube Data API{days}"

    def close(self) -> None:
        """Closes the memory of calls."""
        self.client.close()

    def _parameters(self, wanted: Wanted, token: str) -> dict[str, str]:
        parameters = {
            "part": "snippet",
            "type": "video",
            "maxResults": str(_PAGE),
            "fields": _SEARCH_FIELDS,
            "q": wanted.query,
        }
        if wanted.max_seconds <= _SHORT:
            parameters["videoDuration"] = "short"
        parameters |= {name: str(value) for name, value in self.parameters.items()}
        return parameters | ({"pageToken": token} if token else {})

    def _clips(self, ids: Sequence[str], wanted: Wanted) -> list[Clip]:
        """What videos.list says of search results, in their order."""
        answer = self.client.get(
            "videos",
            {"part": "snippet,contentDetails", "id": ",".join(ids), "fields": _VIDEO_FIELDS},
        )
        known = {str(item.get("id")): item for item in answer.get("items", []) if isinstance(item, Mapping)}
        return [_clip(one, known.get(one), wanted.max_seconds) for one in dict.fromkeys(ids)]


def _video_id(item: Any) -> str:
    identity = item.get("id") if isinstance(item, Mapping) else None
    found = identity.get("videoId") if isinstance(identity, Mapping) else None  # channels have none
    return found if isinstance(found, str) else ""


def _clip(video_id: str, item: Mapping[str, Any] | None, max_seconds: float) -> Clip:
    address = youtube_address(video_id)
    if item is None:
        return Clip(video_id, address, left_out="gone: the service knows no such video any more")
    snippet = item.get("snippet") or {}
    written = str((item.get("contentDetails") or {}).get("duration") or "")
    duration = seconds_of(written)
    live = snippet.get("liveBroadcastContent", "none")
    if live != "none" or written == "P0D":  # a broadcast that goes on or is to come has no length
        reason = f"live: a broadcast ({live})"
    elif duration is None:
        reason = f"no length: {written!r}"
    else:
        reason = too_long(duration, max_seconds)
    about = {
        name: snippet[key]
        for name, key in (("channel", "channelTitle"), ("published", "publishedAt"))
        if snippet.get(key)
    }
    title, description = (str(snippet.get(name, "")) for name in ("title", "description"))
    return Clip(video_id, address, title, description, duration, about, reason)

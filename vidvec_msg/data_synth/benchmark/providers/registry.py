"""From ``--provider`` to a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.benchmark.providers.contract import Provider
from vidvec_msg.data_synth.benchmark.providers.links import Links, read_links
from vidvec_msg.data_synth.benchmark.providers.local import Local, source_kind
from vidvec_msg.data_synth.benchmark.providers.youtube import YouTube, check_parameters
from vidvec_msg.data_synth.benchmark.providers.youtube_client import YouTubeClient
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.embedders.endpoint.retries import Retrying
from vidvec_msg.errors import Problems, RefusedRequest, nearest

FORMS = {"youtube": "youtube", "local": "local:FOLDER", "links": "links:FILE.csv"}


@dataclass(frozen=True, slots=True)
class YouTubeOptions:
    """Of the provider youtube.

    Args:
        parameters: of its search.
        pages: of results a query.
        quota: units a day.
        key_env: environment variable that holds the key.
        base_url: of the service.
    """

    parameters: Mapping[str, Any]
    pages: int
    quota: int
    key_env: str
    base_url: str


def providers_of(
    specs: Sequence[str],
    problems: Problems,
    *,
    folder: Path,
    youtube: YouTubeOptions,
    vectors: MessageVectors,
    retrying: Retrying,
    timeout: float,
) -> list[Provider]:
    """The providers of a build; what is wrong with them is noted.

    Args:
        specs: as ``--provider`` takes them.
        problems: where it is noted.
        folder: of the build.
        youtube: options of that provider.
        vectors: of the embedder.
        retrying: the patience with a service.
        timeout: seconds one call of a service may take.
    """
    found: list[Provider] = []
    check_parameters(youtube.parameters, problems)
    if not specs:
        problems.add(f"no provider; give one or several of {', '.join(FORMS.values())}")
    for spec in dict.fromkeys(specs):
        name, _, rest = spec.partition(":")
        if name == "youtube" and not rest:
            try:
                client = YouTubeClient(
                    folder / "replies", youtube.key_env, youtube.base_url, youtube.quota, timeout, retrying
                )
                retrying.host = client.host
                found.append(YouTube(client, youtube.parameters, youtube.pages))
            except RefusedRequest as refusal:
                problems.add(str(refusal))
        elif name == "local" and rest:
            kind = source_kind(Path(rest), problems)
            if kind is not None and kind != "index" and vectors.spec is None:
                problems.add(f"provider {spec}: give the embedder that searches it: --embedder SPEC")
            elif kind == "files" and folder.resolve().is_relative_to(Path(rest).resolve()):
                problems.add(
                    f"provider {spec}: --out {folder} lies in it, and what a build writes would be searched "
                    "as clips; give a folder elsewhere"
                )
            elif kind is not None:
                found.append(Local(Path(rest), kind, vectors, folder / "local"))
        elif name == "links" and rest:
            links = read_links(Path(rest), problems)
            if links:
                found.append(Links(Path(rest), links, vectors))
        else:
            near = nearest(name, FORMS)
            hint = f" (did you mean {FORMS[near]!r}?)" if near else ""
            problems.add(f"unknown provider {spec!r}{hint}; known: {', '.join(FORMS.values())}")
    for one in FORMS:
        if sum(provider.name == one for provider in found) > 1:
            problems.add(f"provider {one} is given twice; join its folders or lists first")
    return found

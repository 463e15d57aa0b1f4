"""An embedder answers with the option that lies nearest to the clip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.errors import Failure, TooManyFailures
from vidvec_msg.formats.collections import missing_media
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import digest_of_items, embed_items
from vidvec_msg.retrieval.mcq.question import Answer, Question, best_option
from vidvec_msg.runs import digest_of


class EmbedderAnswerer:
    """The highest cosine between the clip and the options.

    The clip asks: it is a query and the options are documents, if the embedder words the two differently. An
    option has the id of its text in the collection, so that vectors computed elsewhere serve too; one that
    means nothing by itself is embedded with its question before it. Without the clip, the question's words
    stand in its place: what the options give away by themselves.

    Args:
        embedder: any.
        folder: for its vectors, so that an interrupted exam goes on and a repeated one embeds nothing.
        spec: what ``load_embedder`` made the embedder from.
        batch_size: items per call; 0: see :func:`vidvec_msg.retrieval.embed.items_per_call`.
    """

    sees_letters = False

    def __init__(self, embedder: Embedder, folder: Path, *, spec: str, batch_size: int = 0) -> None:
        self.embedder, self.folder, self.spec, self.batch_size = embedder, folder, spec, batch_size

    @property
    def name(self) -> str:
        """For tables."""
        return self.embedder.card.name

    @property
    def fingerprint(self) -> str:
        """The embedder's."""
        return self.embedder.card.fingerprint

    def answers(
        self, questions: Sequence[Question], *, with_clip: bool, failures: list[Failure]
    ) -> Iterator[Answer]:
        """See :class:`~vidvec_msg.retrieval.mcq.answerer.Answerer`."""
        asked = {
            one.id: one.clip if with_clip else Item(_name_of(one.words), text=one.words) for one in questions
        }
        options = {one.id: _options(one) for one in questions}
        worded = bool(self.embedder.card.role_prompts)  # as evaluate does in the reverse direction
        left, why = self._vectors(asked.values(), "query" if worded else "document")
        right, why_not = self._vectors(
            (option for ones in options.values() for option in ones), "document" if worded else "query"
        )
        for one in questions:
            clip, choices = asked[one.id].id, [option.id for option in options[one.id]]
            reasons = [why[clip]] if clip in why else []
            reasons += [why_not[name] for name in choices if name in why_not]
            if reasons:
                failures.append(Failure(one.id, reasons[0]))
                continue
            # row by row: the same bits for the same pair, so that equal texts tie exactly
            scores = [float(np.dot(left[clip], right[name])) for name in choices]
            chosen, tied = best_option(scores, [option.id for option in one.options])
            yield Answer(one.id, chosen, tuple(scores), tied=tied)

    def _vectors(self, asked: Iterable[Item], role: Role) -> tuple[dict[str, Vectors], dict[str, str]]:
        """Id → vector (dim,); id → reason for those that have none."""
        items = list({item.id: item for item in asked}.values())
        # by content: a clip that was replaced under its id is embedded anew, into another folder
        missing = {failure.item: failure for failure in missing_media(items)}
        folder = self.folder / f"{role}-{digest_of_items(items, missing)[:12]}"
        try:
            made = embed_items(
                items,
                self.embedder,
                role=role,
                out=folder,
                batch_size=self.batch_size,
                max_failures=len(items),
                spec=self.spec,
            )
        except TooManyFailures as error:  # not one of them has a vector
            return {}, dict.fromkeys((item.id for item in items), str(error))
        vectors = np.asarray(made.matrix(), dtype=np.float32)  # (rows, dim)
        reasons = {failure.item: failure.reason for failure in made.failures}
        return dict(zip(made.ids, vectors, strict=True)), reasons


def _options(question: Question) -> list[Item]:
    """What is embedded for each option."""
    if question.alone:
        return [Item(option.id, text=option.text) for option in question.options]
    texts = [f"{question.words} {option.text}" for option in question.options]
    return [Item(_name_of(text), text=text) for text in texts]


def _name_of(text: str) -> str:
    return f"text {digest_of(text)[:16]}"

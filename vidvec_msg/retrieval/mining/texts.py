"""Which texts a row may take as negatives: never its own, nor one of its anchor or of its group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.near_texts import words_of

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Texts that can become negatives, and who must not take them.

    Args:
        texts: distinct in their words (:func:`same_words`), in the order of code points, which decides ties.
        of_anchor: words of an anchor → numbers of the texts that belong to it.
        of_group: group → numbers of the texts that belong to it.
        number: words of a text → its number.
    """

    texts: tuple[str, ...]
    of_anchor: dict[str, set[int]]
    of_group: dict[str, set[int]]
    number: dict[str, int]

    @classmethod
    def of(cls, pairs: Sequence[Pair], further: Sequence[Pair | str] = ()) -> Candidates:
        """The positives of all pairs, and further texts.

        Args:
            pairs: that negatives are mined for.
            further: texts, and pairs whose positives and negatives are candidates too; the anchors and groups
                of such pairs bind as those of ``pairs`` do.
        """
        known = [*pairs, *(entry for entry in further if isinstance(entry, Pair))]
        loose = [entry for entry in further if isinstance(entry, str)]
        loose += [text for entry in further if isinstance(entry, Pair) for text in entry.negatives]
        spelled: dict[str, str] = {}
        for text in sorted({*(pair.positive for pair in known), *loose}):
            spelled.setdefault(same_words(text), text)  # the first in order stands for all spellings
        texts = tuple(sorted(spelled.values()))
        number = {same_words(text): place for place, text in enumerate(texts)}
        of_anchor: dict[str, set[int]] = defaultdict(set)
        of_group: dict[str, set[int]] = defaultdict(set)
        for pair in known:
            own = {number[same_words(pair.positive)]}
            if (itself := number.get(same_words(pair.anchor))) is not None:
                own.add(itself)  # a text that is an anchor here and a message there
            of_anchor[same_words(pair.anchor)] |= own
            if pair.group is not None:
                of_group[pair.group] |= own
        return cls(texts, dict(of_anchor), dict(of_group), number)

    def forbidden(self, pair: Pair, kept: Sequence[str] = ()) -> Numbers:
        """Numbers of the texts that a pair must not take, ascending.

        Args:
            pair: one of those that the candidates were made of.
            kept: negatives that it has and keeps.
        """
        found = set(self.of_anchor.get(same_words(pair.anchor), ()))
        if pair.group is not None:
            found |= self.of_group.get(pair.group, set())
        for text in kept:
            if (number := self.number.get(same_words(text))) is not None:
                found.add(number)
        return np.array(sorted(found), dtype=np.int64)


def same_words(text: str) -> str:
    """What two spellings of a text have in common: its words without case, punctuation and spacing.

    "Keep trying!" as a negative of "keep trying" would be a false one. A text without a word stays as it is.
    """
    return " ".join(words_of(text)) or text

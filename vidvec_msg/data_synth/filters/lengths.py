"""Messages that are short and storylines that are dense: bounds in words."""

from __future__ import annotations

from collections.abc import Sequence

from vidvec_msg.data_synth.filters.contract import Draft, Reason


class Lengths:
    """Rejects texts that are too short or too long.

    Args:
        message_words: least and most. The prompt asks for 6 to 14; a little beyond does no harm.
        storyline_words: least and most. The prompt asks for 70 to 110.

    Raises:
        ValueError: bounds that nothing satisfies.
    """

    name = "lengths"

    def __init__(
        self, message_words: Sequence[int] = (4, 18), storyline_words: Sequence[int] = (40, 180)
    ) -> None:
        for what, bounds in (("message_words", message_words), ("storyline_words", storyline_words)):
            if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1]:
                raise ValueError(f"{what} is {list(bounds)}; it is the least and the most, such as [4, 18]")
        self.message_words, self.storyline_words = tuple(message_words), tuple(storyline_words)

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected."""
        for what, count, (least, most) in (
            ("message", len(draft.message_words), self.message_words),
            ("storyline", len(draft.storyline_words), self.storyline_words),
        ):
            if count < least:
                return Reason(f"{what} too short", f"{count} words, at least {least}")
            if count > most:
                return Reason(f"{what} too long", f"{count} words, at most {most}")
        return None

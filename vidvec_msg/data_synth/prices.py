"""What an answer costs: a table of prices per million tokens, from a file of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vidvec_msg.errors import Problems, did_you_mean
from vidvec_msg.yaml_files import read_table

CHARS_PER_TOKEN = 3.0  # of English, on the careful side: most tokenizers take 4 to 5
_FIELDS = ("input", "output", "batch_factor")


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model.

    Args:
        input: dollars per million tokens of the request.
        output: dollars per million tokens of the answer.
        batch_factor: share of it that a batch costs.
    """

    input: float
    output: float
    batch_factor: float = 0.5

    def of(self, prompt_tokens: float, completion_tokens: float, *, batch: bool = False) -> float:
        """Dollars of one answer."""
        full = (self.input * prompt_tokens + self.output * completion_tokens) / 1e6
        return full * self.batch_factor if batch else full

    def most(self, characters: int, max_tokens: int, *, batch: bool = False) -> float:
        """Dollars that a request can cost at most, by its characters and the longest answer."""
        return self.of(characters / CHARS_PER_TOKEN, max_tokens, batch=batch)


def price_of(model: str, table: Path | None) -> Price | None:
    """A model's price.

    Args:
        model: as the endpoint calls it.
        table: YAML, model (or a pattern such as ``gpt-*``; the first that fits counts) → ``input`` and
            ``output`` in dollars per million tokens, and ``batch_factor``. None knows no price.

    Returns:
        None if the table does not name the model.

    Raises:
        RefusedRequest: no such file, or it is no such table.
    """
    if table is None:
        return None
    form = "rows of model: {input: DOLLARS, output: DOLLARS} per million tokens"
    rows = read_table(table, what="--prices", holds=form)
    problems = Problems(f"prices {table}")
    if not rows:
        problems.add(f"it holds no {form}")
    for name, row in rows.items():
        if not isinstance(row, dict) or not {"input", "output"} <= row.keys():
            problems.add(f"{name}: needs input and output, in dollars per million tokens")
            continue
        for key, value in row.items():
            if key not in _FIELDS:
                problems.add(f"{name}: unknown field {key!r}{did_you_mean(str(key), _FIELDS)}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                problems.add(f"{name}: {key} is {value!r}; it must be a number that is not negative")
    problems.refuse_if_any()
    for name, row in rows.items():
        if fnmatchcase(model, str(name)):
            return Price(**{key: float(value) for key, value in row.items()})
    return None

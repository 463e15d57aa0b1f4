"""Ratings of any number of people as tables bring them: a column a person, a row a rating, a file a person.

What a table is, its header says:

- **long**: a task, a rater, a rating per row (the page saves it, crowd platforms give it out);
- **wide**: a task per row and a column per person, whose heading is their name;
- **one person's**: a task and a rating per row; the file's name is the person's. A ``tasks.csv`` that was
  given to one person is that person's.

A task is named by ``task_id``, or by ``message_id`` and ``clip_id``. Commas, semicolons and tabs are told
apart by the header; a byte-order mark is passed over, also that of UTF-16.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vidvec_msg.data_synth.annotation.candidates import Candidate
from vidvec_msg.data_synth.annotation.scale import MEANINGS, rating_of
from vidvec_msg.data_synth.annotation.tasks import COLUMNS, TASKS
from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean

ROLES: Mapping[str, tuple[str, ...]] = {
    "task": ("task_id", "task", "Input.task_id"),
    "message": ("message_id", "Input.message_id"),
    "clip": ("clip_id", "Input.clip_id"),
    "rater": ("rater", "rater_id", "WorkerId", "worker_id"),
    "rating": ("rating", "Answer.rating", "score"),
    "status": ("AssignmentStatus",),
}
"""What a column can be, and the headings by which it is known; those of Mechanical Turk among them."""

_AS_GIVEN = re.compile(rf"{re.escape(Path(TASKS).stem)}(_\d+| ?\(\d+\))?")  # tasks_1 was set aside
_REJECTED = "rejected"
_DELIMITERS = (",", ";", "\t", "|")
_NO_PERSON = {*COLUMNS, "title", "description", "source", "keywords", "rank", "score", "note", "rated_at"}


@dataclass(slots=True)
class Ratings:
    """Who gave what.

    Args:
        of_task: task → rater → rating, 1 to 6; raters in the order in which they stand in the files.
        missing: cells of tasks that somebody was asked about and did not rate.
        rejected: rows of assignments that were rejected, whose ratings are not counted.
        files: names of the files that could be read.
    """

    of_task: dict[str, dict[str, int]] = field(default_factory=dict)
    missing: int = 0
    rejected: int = 0
    files: list[str] = field(default_factory=list)

    @property
    def raters(self) -> list[str]:
        """Everybody who rated something, by name."""
        return sorted({rater for given in self.of_task.values() for rater in given})

    def given(self, task: str) -> list[int]:
        """The ratings of a task."""
        return list(self.of_task.get(task, {}).values())


def read_ratings(
    paths: Sequence[Path],
    candidates: Sequence[Candidate],
    problems: Problems,
    *,
    columns: Mapping[str, str] | None = None,
    raters: Sequence[str] = (),
) -> Ratings:
    """The ratings of all files together, as far as they can be used.

    Args:
        paths: tables, .csv, .tsv or .txt, in any mixture of the three forms.
        candidates: that people were asked about.
        problems: noted there: files that cannot be read, ratings out of the scale, unknown tasks, somebody
            who rated a task twice and differently.
        columns: heading per role (task, message, clip, rater, rating, status) where it differs.
        raters: headings of the people's columns in wide tables; all that are not known as something else if
            not given.
    """
    before = len(problems.found)
    unknown = [role for role in columns or {} if role not in ROLES]
    for role in unknown:
        problems.add(f"columns: unknown role {role!r}{did_you_mean(role, ROLES)}; known: {', '.join(ROLES)}")
    names = {role: (columns or {}).get(role) for role in ROLES}
    counts = Counter(path.name for path in paths)
    reader = _Reader(candidates, names, raters, problems, {name for name in counts if counts[name] > 1})
    for path in paths:
        reader.read(path)
    if not paths:
        problems.add("ratings: no file was given")
    elif len(problems.found) == before and not reader.found.of_task:
        problems.add("the files hold no rating: fill in a column per person, or save what the page holds")
    return reader.found


@dataclass(slots=True)
class _Reader:
    """Reads file after file; knows where each rating stood."""

    candidates: Sequence[Candidate]
    names: Mapping[str, str | None]
    people: Sequence[str]
    problems: Problems
    alike: Collection[str] = ()  # names that several files have, in different folders
    found: Ratings = field(default_factory=Ratings)
    tasks: dict[tuple[str, str], str] = field(init=False)
    known: set[str] = field(init=False)
    places: dict[tuple[str, str], str] = field(default_factory=dict)  # (task, rater) → file and row

    def __post_init__(self) -> None:
        self.tasks = {(one.message_id, one.clip_id): one.task for one in self.candidates}
        self.known = set(self.tasks.values())

    def read(self, path: Path) -> None:
        try:
            header, rows = table_of(path)
        except RefusedRequest as refusal:
            self.problems.add(str(refusal))
            return
        named = f"{path.parent.name}/{path.name}" if path.name in self.alike else path.name
        repeated = sorted({name for name in header if name and header.count(name) > 1})
        if repeated:
            self.problems.add(f"{named}: two columns are called {repeated[0]!r}; whose is which?")
            return
        columns = {role: header.index(name) for role in ROLES if (name := self._heading(role, header))}
        if "task" not in columns and not {"message", "clip"} <= columns.keys():
            self.problems.add(
                f"{named}: no column names the task (task_id, or message_id and clip_id); it has: "
                f"{', '.join(header)}. Say which it is: --columns '{{task: NAME}}'"
            )
            return
        people = self._people(named, header, columns, _person(path, header, rows))
        if not people and not {"rater", "rating"} <= columns.keys():
            return  # it was told why
        self.found.files.append(named)
        for number, row in rows:
            where = f"{named}, row {number}"
            if len(row) > len(header):
                self.problems.add(f"{where}: {len(row)} cells, and the header has {len(header)}")
                continue
            cells = [*row, *[""] * (len(header) - len(row))]
            if "status" in columns and cells[columns["status"]].strip().lower() == _REJECTED:
                self.found.rejected += 1
                continue
            task = self._task(cells, columns, where)
            if task is None:
                continue
            for rater, cell in self._cells(cells, columns, people, where):
                self._take(task, rater, cell, where)

    def _heading(self, role: str, header: Sequence[str]) -> str | None:
        """The heading of a role in a table."""
        given = self.names[role]
        return next((name for name in ((given,) if given else ROLES[role]) if name in header), None)

    def _people(
        self, named: str, header: Sequence[str], columns: Mapping[str, int], person: str
    ) -> dict[str, int]:
        """Rater → column of a wide table, and of one person's; empty for a long one."""
        if "rater" in columns and "rating" in columns:
            return {}
        if "rater" in columns:
            self.problems.add(
                f"{named}: a column of raters and none of ratings; it has: {', '.join(header)}. Say "
                "which it is: --columns '{rating: NAME}'"
            )
            return {}
        if "rating" in columns and not self.people:
            return {person: columns["rating"]}
        lost = [name for name in self.people if name not in header]
        if lost:
            self.problems.add(f"{named} has no column {lost[0]!r}{did_you_mean(lost[0], header)}")
        taken = {*columns.values()}
        wanted = self.people or [
            name for place, name in enumerate(header)
            if name and place not in taken and name.removeprefix("Input.") not in _NO_PERSON
        ]  # fmt: skip
        if not wanted:
            self.problems.add(f"{named}: none of its columns is a person's; it has: {', '.join(header)}")
        return {name: header.index(name) for name in wanted if name in header}

    def _task(self, cells: Sequence[str], columns: Mapping[str, int], where: str) -> str | None:
        if "task" in columns:
            named = cells[columns["task"]].strip()
            task = named if named in self.known else None
        else:
            pair = cells[columns["message"]].strip(), cells[columns["clip"]].strip()
            named, task = " and ".join(pair), self.tasks.get(pair)
        if task is None and any(cell.strip() for cell in cells):
            self.problems.add(
                f"{where}: {named!r} is no task of these candidates; was the message worded otherwise, or "
                "were other clips ranked, when the tasks were exported?"
            )
        return task

    def _cells(
        self, cells: Sequence[str], columns: Mapping[str, int], people: Mapping[str, int], where: str
    ) -> Iterator[tuple[str, str]]:
        if people:
            yield from ((rater, cells[place]) for rater, place in people.items())
        elif "rater" in columns and "rating" in columns:
            rater = cells[columns["rater"]].strip()
            if rater:
                yield rater, cells[columns["rating"]]
            else:
                self.problems.add(f"{where}: a rating without a rater")

    def _take(self, task: str, rater: str, cell: str, where: str) -> None:
        try:
            rating = rating_of(cell)
        except ValueError:
            self.problems.add(
                f"{where}: {rater} gave {cell.strip()!r}; a rating is 1 to {max(MEANINGS)} ({max(MEANINGS)}, "
                'or "too obvious"), or empty'
            )
            return
        if rating is None:
            self.found.missing += 1
            return
        before = self.found.of_task.setdefault(task, {}).setdefault(rater, rating)
        if before != rating:
            earlier = self.places[task, rater]
            self.problems.add(
                f"{where}: {rater} gave {rating} to task {task}, and {before} in {earlier}; keep one of them"
            )
        self.places.setdefault((task, rater), where)


def _person(path: Path, header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Whose a table without names is: the file is called so, unless it still is a ``tasks.csv``, or a copy of
    one. Then its column of raters says it, if it names one person, or else its folder."""
    if not _AS_GIVEN.fullmatch(path.stem):
        return path.stem
    place = header.index("raters") if "raters" in header else len(header)
    given = {row[place].strip() if place < len(row) else "" for _, row in rows}
    [one, *others] = given
    return one if one and not others and " | " not in one else path.resolve().parent.name


def table_of(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header and rows of a delimited text file, rows with their numbers (the first below the header is 1).

    The delimiter is the one that cuts the header into most cells. Rows without anything in them are left out.

    Raises:
        RefusedRequest: no such file, no text, or no row below a header.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedRequest(f"{path} cannot be read: {error.strerror}") from error
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what Excel calls Unicode text
    try:
        text = content.decode("utf-16" if content.startswith(marks) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedRequest(f"{path} is not UTF-8 ({error.reason}); save it as such first") from error
    lines = text.lstrip("\r\n")
    if lines[:4] == "sep=":  # Excel's own hint, above the header
        lines = re.split(r"\r\n|\r|\n", lines, maxsplit=1)[-1]
    first = re.split(r"[\r\n]", lines, maxsplit=1)[0]  # of old Macs a lone carriage return ends a line
    delimiter = max(_DELIMITERS, key=lambda one: len(next(csv.reader([first], delimiter=one), [])))
    try:
        table = list(csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise RefusedRequest(f"{path} is no table of cells that are quoted alike: {error}") from error
    rows = [(number, row) for number, row in enumerate(table) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise RefusedRequest(f"{path} holds no row below a header")
    return [name.strip() for name in rows[0][1]], rows[1:]

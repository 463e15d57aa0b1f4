"""Tables of ratings as people and platforms give them back, and all that can be wrong with them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from data_synth.annotation.candidate_files import MESSAGES, candidates, ranked, row, wide
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.data_synth.annotation.candidates import first_of_each, read_candidates
from vidvec_msg.data_synth.annotation.ratings import Ratings, read_ratings
from vidvec_msg.errors import Problems, RefusedRequest

PAIRS = (("m1", "a"), ("m1", "b"), ("m2", "c"))


@pytest.fixture
def found(tmp_path):
    """Three candidates of two messages."""
    return candidates(tmp_path, *PAIRS)


def read(found, *paths: Path, **options) -> Ratings:
    """Ratings without a problem."""
    problems = Problems("ratings")
    read_in = read_ratings(paths, found, problems, **options)
    problems.refuse_if_any()
    return read_in


def problems_of(found, *paths: Path, **options) -> list[str]:
    problems = Problems("ratings")
    read_ratings(paths, found, problems, **options)
    return problems.found


def plain(ratings: Ratings, found) -> list[dict[str, int]]:
    return [ratings.of_task.get(one.task, {}) for one in found]


# --- candidates ---------------------------------------------------------------------------------------------


def test_a_task_keeps_its_id_whatever_else_changes_and_not_its_wording(tmp_path, found):
    again = read_candidates(ranked(tmp_path / "again", [row("m1", "a", rank=7, title="other")]))
    assert again[0].task == found[0].task
    reworded = read_candidates(ranked(tmp_path / "new", [row("m1", "a", message="Another message")]))
    assert reworded[0].task != found[0].task


def test_the_best_of_each_message_are_its_first_rows(found):
    assert [one.clip_id for one in first_of_each(found, 1)] == ["a", "c"]
    assert first_of_each(found, 0) == found


def test_a_path_is_looked_for_beside_the_file_and_an_address_is_none(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(b"x")
    rows = [row("m1", "a", video="clip.mp4"), row("m1", "b", video="gone.mp4"), row("m1", "c")]
    one, other, web = read_candidates(ranked(tmp_path, rows))
    assert (one.file, other.file, web.file) == (tmp_path / "clip.mp4", None, None)
    assert (one.address, web.address) == ("", "https://www.youtube.com/watch?v=c__________")


def test_every_fault_of_the_candidates_comes_in_one_message(tmp_path):
    rows = [
        row("m1", "a"), row("m1", "a"), row("m1", "b", message="Another"), row("m2", "a", video="x.mp4"),
        {"message_id": "m1"}, row("m1", "c\t"),
    ]  # fmt: skip
    path = ranked(tmp_path, rows)
    path.write_text(path.read_text() + "[1]\nnot json\n")
    with pytest.raises(RefusedRequest) as refusal:
        read_candidates(path)
    told = str(refusal.value)
    for words in (
        "clip 'a' is a candidate of 'm1' twice", "message 'm1' has another text",
        "clip 'a' has another video",
        "without message, clip_id, video (or text), which must be texts",
        "clip_id 'c\\t' has a control character",
        "a JSON list; each line must be an object", "not a JSON object",
    ):  # fmt: skip
        assert words in told
    with pytest.raises(RefusedRequest, match="there is no such file; `vidvec-msg build-benchmark` writes"):
        read_candidates(tmp_path / "gone.jsonl")


# --- the three forms ----------------------------------------------------------------------------------------


def test_a_column_a_rater(tmp_path, found):
    path = wide(tmp_path / "r.csv", found, {"Ann": [5, 4, None], "Bo": [1, "too obvious", 3.0]})
    ratings = read(found, path)
    assert plain(ratings, found) == [{"Ann": 5, "Bo": 1}, {"Ann": 4, "Bo": 6}, {"Bo": 3}]
    assert (ratings.missing, ratings.raters, ratings.files) == (1, ["Ann", "Bo"], ["r.csv"])


def test_columns_of_the_task_are_nobodys_ratings(tmp_path, found):
    one = found[0]
    header = "task_id,message_id,message,topic,clip_id,video,duration,raters,Ann\n"
    cells = f'{one.task},m1,"{one.message}",growth,a,{one.video},40,Ann | Bo,4\n'
    (tmp_path / "tasks.csv").write_text(header + cells)
    assert plain(read(found, tmp_path / "tasks.csv"), found)[0] == {"Ann": 4}


def test_a_row_a_rating_as_the_page_saves_it(tmp_path, found):
    lines = ["task_id,message_id,clip_id,rater,rating,rated_at,note"]
    lines += [f'"{found[0].task}","m1","a","Ann","5","2026-11-30T10:00:00Z","so, so"']
    lines += [f'"{found[1].task}","m1","b","Ann","cannot judge","2026-11-30T10:01:00Z",""']
    (tmp_path / "r.csv").write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    ratings = read(found, tmp_path / "r.csv")
    assert plain(ratings, found) == [{"Ann": 5}, {}, {}]
    assert ratings.missing == 1


def test_a_table_of_mechanical_turk_needs_no_mapping(tmp_path, found):
    lines = ["HITId,WorkerId,Input.task_id,Answer.rating"]
    lines += [f"H{n},W{n % 2},{found[0].task if n < 2 else found[1].task},{n + 1}" for n in range(4)]
    (tmp_path / "batch.csv").write_text("\n".join(lines))
    ratings = read(found, tmp_path / "batch.csv")
    assert plain(ratings, found) == [{"W0": 1, "W1": 2}, {"W0": 3, "W1": 4}, {}]


def test_rejected_assignments_do_not_count(tmp_path, found):
    lines = ["HITId,WorkerId,AssignmentStatus,Input.task_id,Answer.rating"]
    for number, status in enumerate(("Approved", "Rejected", "Submitted", "rejected ")):
        lines.append(f"H,W{number},{status},{found[0].task},{number + 1}")
    lines.append(f"H,W0,Rejected,{found[0].task},5")  # another one for what he was approved for: no quarrel
    (tmp_path / "batch.csv").write_text("\n".join(lines))
    ratings = read(found, tmp_path / "batch.csv")
    assert plain(ratings, found) == [{"W0": 1, "W2": 3}, {}, {}]
    assert (ratings.rejected, ratings.missing) == (3, 0)
    (tmp_path / "batch.csv").write_text("\n".join(lines).replace("AssignmentStatus", "state"))
    assert read(found, tmp_path / "batch.csv", columns={"status": "state"}).rejected == 3


def test_other_headings_are_named(tmp_path, found):
    (tmp_path / "r.csv").write_text(f"thing,person,stars\n{found[0].task},Ann,2\n")
    columns = {"task": "thing", "rater": "person", "rating": "stars"}
    assert plain(read(found, tmp_path / "r.csv", columns=columns), found)[0] == {"Ann": 2}


def test_a_file_a_person_is_called_like_the_person(tmp_path, found):
    for name, rating in (("Ann", 4), ("Bo", 2)):
        (tmp_path / f"{name}.csv").write_text(f"message_id,clip_id,rating\nm1,a,{rating}\n")
    ratings = read(found, tmp_path / "Ann.csv", tmp_path / "Bo.csv")
    assert plain(ratings, found)[0] == {"Ann": 4, "Bo": 2}


def test_a_tasks_table_that_was_given_to_one_person_is_that_persons(tmp_path, found):
    """Not everybody's is called "tasks" and taken for one person's."""
    paths = []
    for folder, raters, rating in (("Ann", "Ann", 4), ("Bo_Li", "Bo Li", 4), ("Cleo", "Ann | Cleo", 2)):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / ("tasks_1.csv" if folder == "Cleo" else "tasks.csv"))
        paths[-1].write_text(f"task_id,raters,rating\n{found[0].task},{raters},{rating}\n")
    ratings = read(found, *paths)
    assert plain(ratings, found)[0] == {"Ann": 4, "Bo Li": 4, "Cleo": 2}
    assert ratings.files == ["Ann/tasks.csv", "Bo_Li/tasks.csv", "tasks_1.csv"]
    paths[1].write_text(f"task_id,raters,rating\n{found[0].task},Bo Li,9\n")
    assert problems_of(found, *paths)[0].startswith("Bo_Li/tasks.csv, row 1: Bo Li gave '9'")


def test_raters_can_be_named_where_another_column_could_be_one(tmp_path, found):
    path = wide(tmp_path / "r.csv", found, {"Ann": [5, 4, 4], "remark": ["fine", "", ""]})
    assert "remark gave 'fine'; a rating is 1 to 6" in problems_of(found, path)[0]
    assert read(found, path, raters=["Ann"]).raters == ["Ann"]
    assert problems_of(found, path, raters=["Anne"]) == ["r.csv has no column 'Anne' (did you mean 'Ann'?)"]


# --- delimiters and encodings -------------------------------------------------------------------------------

NAMES = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, blacklist_characters=",;|\t"), min_size=1, max_size=8
).filter(lambda name: name == name.strip() and name.removeprefix("Input.") not in MESSAGES)


@settings(max_examples=25)
@given(
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    names=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    grid=st.lists(st.lists(st.sampled_from([None, 1, 2, 3, 4, 5, 6]), min_size=3, max_size=3), min_size=3),
)
def test_any_delimiter_and_encoding_gives_the_same_ratings(
    tmp_path_factory, delimiter, encoding, ending, names, grid
):
    from vidvec_msg.data_synth.annotation.ratings import _NO_PERSON, ROLES

    taken = {*_NO_PERSON, *(name for some in ROLES.values() for name in some)}
    names = [f"{name}'s" if name in taken else name for name in names]
    folder = tmp_path_factory.mktemp("ratings")
    found = candidates(folder, *PAIRS)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=ending)
    writer.writerow(["task_id", *names])
    for one, ratings in zip(found, grid, strict=False):
        writer.writerow([one.task, *("" if r is None else r for r in ratings[: len(names)])])
    (folder / "r.csv").write_bytes(text.getvalue().encode(encoding))
    problems = Problems("ratings")
    read_in = read_ratings([folder / "r.csv"], found, problems)
    wanted = [
        {name: r for name, r in zip(names, ratings, strict=False) if r is not None} for ratings in grid[:3]
    ]
    assert plain(read_in, found) == wanted
    if any(wanted):
        assert not problems.found
    assert read_in.missing == sum(r is None for ratings in grid[:3] for r in ratings[: len(names)])


def test_excels_own_hint_and_blank_rows_are_passed_over(tmp_path, found):
    (tmp_path / "r.csv").write_text(f"sep=;\ntask_id;Ann\n;\n\n{found[2].task};4\n")
    assert plain(read(found, tmp_path / "r.csv"), found)[2] == {"Ann": 4}
    (tmp_path / "r.csv").write_bytes(f"sep=;\rtask_id;Ann\r{found[2].task};4\r".encode())
    assert plain(read(found, tmp_path / "r.csv"), found)[2] == {"Ann": 4}


def test_a_file_that_is_no_table_is_refused_by_name(tmp_path, found):
    (tmp_path / "latin.csv").write_bytes("task_id,Zoë\n".encode("latin-1"))
    (tmp_path / "empty.csv").write_text("task_id,Ann\n")
    (tmp_path / "torn.csv").write_text(f'task_id,Ann\n{found[0].task},"4\n')
    told = problems_of(found, *(tmp_path / f"{name}.csv" for name in ("latin", "empty", "torn", "gone")))
    for words, one in zip(
        (
            "latin.csv is not UTF-8", "empty.csv holds no row", "torn.csv is no table",
            "gone.csv cannot be read",
        ),
        told, strict=True,
    ):  # fmt: skip
        assert words in one


# --- bad input ----------------------------------------------------------------------------------------------


def test_values_out_of_the_scale_are_named_with_their_row_all_at_once(tmp_path, found):
    path = wide(tmp_path / "r.csv", found, {"Ann": [0, 7, 4], "Bo": ["4.5", "yes", -1]})
    assert [one.partition("; ")[0] for one in problems_of(found, path)] == [
        "r.csv, row 1: Ann gave '0'", "r.csv, row 1: Bo gave '4.5'", "r.csv, row 2: Ann gave '7'",
        "r.csv, row 2: Bo gave 'yes'", "r.csv, row 3: Bo gave '-1'",
    ]  # fmt: skip


def test_somebody_who_rated_a_task_twice_must_have_given_the_same(tmp_path, found):
    one = wide(tmp_path / "one.csv", found, {"Ann": [5, 4, None]})
    same = wide(tmp_path / "same.csv", found, {"Ann": [5, None, 3]})
    assert plain(read(found, one, same), found) == [{"Ann": 5}, {"Ann": 4}, {"Ann": 3}]
    other = wide(tmp_path / "other.csv", found, {"Ann": [2, 4, None]})
    (told,) = problems_of(found, one, other)
    assert told == (
        f"other.csv, row 1: Ann gave 2 to task {found[0].task}, and 5 in one.csv, row 1; keep one of them"
    )


def test_tasks_of_other_candidates_are_told(tmp_path, found):
    (tmp_path / "r.csv").write_text(f"task_id,Ann\nt0,4\n{found[0].task},4\n")
    (told,) = problems_of(found, tmp_path / "r.csv")
    assert told.startswith("r.csv, row 1: 't0' is no task of these candidates; was the message worded")


def test_a_table_says_whose_ratings_of_what_it_holds(tmp_path, found):
    task = found[0].task
    (tmp_path / "a.csv").write_text("clip,Ann\na,4\n")
    (tmp_path / "b.csv").write_text(f"task_id,rater,grade\n{task},Ann,4\n")
    (tmp_path / "c.csv").write_text(f"task_id,topic\n{task},growth\n")
    (tmp_path / "d.csv").write_text(f"task_id,Ann,Ann\n{task},4,5\n")
    (tmp_path / "e.csv").write_text(f"task_id,rater,rating\n{task},,5\n{task},Ann,4,3\n")
    told = problems_of(found, *(tmp_path / f"{name}.csv" for name in "abcde"))
    for words, one in zip(
        (
            "a.csv: no column names the task (task_id, or message_id and clip_id); it has: clip, Ann",
            "b.csv: a column of raters and none of ratings", "c.csv: none of its columns is a person's",
            "d.csv: two columns are called 'Ann'", "e.csv, row 1: a rating without a rater",
            "e.csv, row 2: 4 cells, and the header has 3",
        ),
        told, strict=True,
    ):  # fmt: skip
        assert words in one


def test_files_without_a_rating_and_no_file_are_told(tmp_path, found):
    path = wide(tmp_path / "r.csv", found, {"Ann": [None, None, None]})
    assert "the files hold no rating" in problems_of(found, path)[0]
    assert problems_of(found) == ["ratings: no file was given"]
    assert "unknown role 'user' (did" not in problems_of(found, path, columns={"user": "x"})[0]
    assert (
        "unknown role 'raters' (did you mean 'rater'?)"
        in problems_of(found, path, columns={"raters": "x"})[0]
    )

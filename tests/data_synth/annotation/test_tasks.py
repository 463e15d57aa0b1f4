"""What people are given: a table for platforms, and a page that keeps what they say and saves it."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from data_synth.annotation.candidate_files import ranked, row
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.data_synth.annotation.assignment import assigned
from vidvec_msg.data_synth.annotation.candidates import read_candidates
from vidvec_msg.data_synth.annotation.ratings import read_ratings
from vidvec_msg.data_synth.annotation.tasks import COLUMNS, export_tasks
from vidvec_msg.errors import Problems, RefusedRequest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def source(tmp_path) -> Path:
    """Six candidates: three clips of each message."""
    rows = [row(message, f"{message}{clip}", rank=rank) for message in ("m1", "m2")
            for rank, clip in enumerate("abc", start=1)]  # fmt: skip
    return ranked(tmp_path / "D", rows)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def held(path: Path) -> dict:
    """What a page's script sees."""
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])


# --- the table ----------------------------------------------------------------------------------------------


def test_a_task_is_a_row_and_shows_nothing_that_would_tell(source, tmp_path):
    out = export_tasks(source, tmp_path / "T")
    rows = table(out / "tasks.csv")
    assert {one["task_id"] for one in rows} == {one.task for one in read_candidates(source)}
    assert tuple(rows[0]) == COLUMNS
    text = (out / "tasks.csv").read_text() + (out / "rate.html").read_text()
    assert not [told for told in ("title of", "stairs") if told in text]
    assert not (out / "tasks.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert json.loads((out / "tasks.json").read_text())["tasks"] == 6


def test_the_order_is_drawn_by_seed_and_does_not_depend_on_the_files(source, tmp_path):
    def order(name: str, path: Path = source, seed: int = 0) -> list[str]:
        return [one["clip_id"] for one in table(export_tasks(path, tmp_path / name, seed=seed) / "tasks.csv")]

    lines = source.read_text().splitlines(keepends=True)
    turned = tmp_path / "turned.jsonl"
    turned.write_text("".join(reversed(lines)))
    assert order("A") == order("B") == order("C", turned)
    assert order("A") != order("E", seed=1)
    assert order("A") != [json.loads(line)["clip_id"] for line in lines]
    assert sorted(order("E", seed=1)) == sorted(order("A"))


def test_the_best_of_each_message_can_be_chosen(source, tmp_path):
    rows = table(export_tasks(source, tmp_path / "T", per_message=2) / "tasks.csv")
    assert {one["clip_id"] for one in rows} == {"m1a", "m1b", "m2a", "m2b"}


def test_people_have_a_table_and_a_page_of_their_own(source, tmp_path):
    out = export_tasks(source, tmp_path / "T", raters=["Ann", "Bo Li", "Cleo"], raters_per_task=2)
    rows = {one["task_id"]: one["raters"].split(" | ") for one in table(out / "tasks.csv")}
    for name, folder in (("Ann", "Ann"), ("Bo Li", "Bo_Li"), ("Cleo", "Cleo")):
        own = {one["task_id"] for one in table(out / "raters" / folder / "tasks.csv")}
        assert own == {task for task, people in rows.items() if name in people}
        page = held(out / "raters" / folder / "rate.html")
        assert {one["task_id"] for one in page["rows"]} == own
        assert page["who"] == name
    assert json.loads((out / "tasks.json").read_text())["raters"] == {"Ann": 4, "Bo Li": 4, "Cleo": 4}


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 7), st.integers(0, 5))
def test_everybody_rates_as_much_and_each_task_has_different_people(tasks, people, each, seed):
    each = min(each, people)
    names = [f"r{number}" for number in range(people)]
    chosen = assigned([f"t{number}" for number in range(tasks)], names, each, seed=seed)
    assert all(len(set(who)) == len(who) == each for who in chosen.values())
    load = Counter(name for who in chosen.values() for name in who)
    counts = [load[name] for name in names]
    assert max(counts) - min(counts) <= 1


def test_an_export_can_be_repeated_and_what_people_saved_there_stays(source, tmp_path):
    out = export_tasks(source, tmp_path / "T")
    before = (out / "rate.html").read_bytes()
    (out / "judged-Ann.csv").write_text("mine")
    assert (export_tasks(source, out) / "rate.html").read_bytes() == before
    assert (out / "judged-Ann.csv").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RefusedRequest, match="other already holds files"):
        export_tasks(source, tmp_path / "other")


def test_a_table_that_somebody_filled_in_is_not_overwritten(source, tmp_path, caplog):
    out = export_tasks(source, tmp_path / "T", raters=["Ann"], raters_per_task=1)
    own = out / "raters" / "Ann" / "tasks.csv"
    rows = own.read_text().splitlines()
    filled = "\n".join([f"{rows[0]},rating", *(f"{line},4" for line in rows[1:])])
    own.write_text(filled)
    untouched = (out / "tasks.csv").read_bytes()
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:4]))  # two candidates less
    export_tasks(source, out, raters=["Ann"], raters_per_task=1)
    assert own.with_name("tasks_1.csv").read_text() == filled
    assert "raters/Ann/tasks.csv was changed since it was made: it is now" in caplog.text
    assert len(table(own)) == 4
    assert (out / "tasks.csv").read_bytes() != untouched  # nobody's: replaced without a copy
    assert not (out / "tasks_1.csv").exists()


def test_no_words_of_the_table_are_a_formula(tmp_path):
    path = ranked(tmp_path / "D", [
        row("m1", "-a", message='=HYPERLINK("http://x";"y")', topic="+1"), row("m2", "b", topic=""),
    ])  # fmt: skip
    rows = {one["clip_id"]: one for one in table(export_tasks(path, tmp_path / "T") / "tasks.csv")}
    assert rows["-a"]["message"] == '\'=HYPERLINK("http://x";"y")'
    assert rows["-a"]["topic"] == "'+1"
    assert rows["b"]["topic"] == ""


def test_every_fault_of_a_request_comes_in_one_message(source, tmp_path):
    with pytest.raises(RefusedRequest) as refusal:
        export_tasks(source, tmp_path / "T", per_message=-1, raters=["A b", "A_b", " "], raters_per_task=4)
    told = str(refusal.value)
    for words in (
        "per_message is -1",
        "a name is empty",
        "A_b stands twice",
        "raters_per_task is 4; it lies between 1",
    ):
        assert words in told
    assert not (tmp_path / "T").exists()


# --- the page -----------------------------------------------------------------------------------------------


def test_files_play_on_the_page_and_addresses_are_links(tmp_path):
    (tmp_path / "D" / "my clips").mkdir(parents=True)
    (tmp_path / "D" / "my clips" / "a#1.mp4").write_bytes(b"x")
    rows = [
        row("m1", "a", video="my clips/a#1.mp4", start=2, end=7.5), row("m1", "b"),
        row("m2", "c", video="gone.mp4"), row("m2", "d", video="javascript://x%0Aalert(1)"),
    ]  # fmt: skip
    out = export_tasks(ranked(tmp_path / "D", rows), tmp_path / "T")
    page = {one["clip_id"]: (one["source"], one["address"]) for one in held(out / "rate.html")["rows"]}
    assert page["a"] == ("../D/my%20clips/a%231.mp4#t=2,7.5", "")
    assert page["b"] == ("", "https://www.youtube.com/watch?v=b__________")
    assert page["c"] == page["d"] == ("", "")
    assert json.loads((out / "tasks.json").read_text())["without_file_or_address"] == 2


def test_the_page_is_one_file_that_fetches_nothing(source, tmp_path):
    out = export_tasks(source, tmp_path / "T")
    page = (out / "rate.html").read_text()
    outside = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    assert not re.search(r"https?:|src=\"|@import|url\(", outside)


def test_words_of_a_message_cannot_end_the_pages_script(tmp_path):
    rows = [row("m1", "a", message="stop </script><b>bold</b>")]
    out = export_tasks(ranked(tmp_path / "D", rows), tmp_path / "T", title="<i>T</i>")
    page = (out / "rate.html").read_text()
    assert not [mark for mark in ("<b>bold", "<i>T") if mark in page]
    assert held(out / "rate.html")["rows"][0]["message"] == "stop </script><b>bold</b>"


_DRIVER = """
<script>
const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
press("3");  // without a name nothing is kept
const early = kept.filter(Boolean).length;
at("who").value = 'Ann "A", 1';
press("4"); press("6"); press("0"); press("ArrowLeft"); press("ArrowLeft"); press("5"); press("o");
press("2");
at("note").value = "a, \\"quoted\\"\\nnote"; press("1");
const left = keys.filter(key => JSON.parse(localStorage.getItem(place_of(key)))).length;
let asked = "";
window.confirm = words => { asked = words; return false; };
at("who").value = "Bo"; go(0); press("1");  // a second person at the same page
const heard = {early, left, who: localStorage.getItem(place_of("who")), file: saved(rows, kept), asked};
document.title = JSON.stringify(heard);
</script>
"""


_READER = """
<script>
document.title = JSON.stringify([at("who").value, ...kept.map(one => one && one.verdict)]);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: chromium")
def test_what_is_typed_into_the_page_is_what_is_read_back(source, tmp_path):
    out = export_tasks(source, tmp_path / "T")
    page = out / "rate.html"
    said = said_by(page, _DRIVER, tmp_path)
    assert (said["early"], said["left"], said["who"]) == (0, 5, 'Ann "A", 1')
    assert said["asked"].startswith('Ann "A", 1 has decided this here. Replace that?')
    name, suffix, _, text = said["file"]
    assert (name, suffix) == ("rated", ".csv")
    (tmp_path / "rated.csv").write_text(text, encoding="utf-8", newline="")
    candidates = read_candidates(source)
    problems = Problems("ratings")
    ratings = read_ratings([tmp_path / "rated.csv"], candidates, problems)
    assert not problems.found
    order = [one["task_id"] for one in held(page)["rows"]]
    # 4, then 6 corrected to 5; the third cannot be judged; the next open ones 2 and 1
    wanted = dict(zip(order, (4, 5, None, 2, 1), strict=False))
    assert {task: given['Ann "A", 1'] for task, given in ratings.of_task.items()} == {
        task: rating for task, rating in wanted.items() if rating is not None
    }
    assert ratings.missing == 1

    # made again in another order, without some of the tasks: what was given is at its task, and no other
    again = export_tasks(source, tmp_path / "again", per_message=2, seed=5) / "rate.html"
    shown = [one["task_id"] for one in held(again)["rows"]]
    assert shown != [task for task in order if task in shown]
    verdicts = dict(zip(order, ("4", "5", "cannot judge", "2", "1"), strict=False))
    assert said_by(again, _READER, tmp_path) == ['Ann "A", 1', *(verdicts.get(task) for task in shown)]
    own = export_tasks(source, tmp_path / "own", raters=["Bo", "Cy", "Di"]) / "raters" / "Bo" / "rate.html"
    assert set(said_by(own, _READER, tmp_path)) == {"Bo", None}  # somebody's own page has nobody else's


def said_by(page, script, tmp_path):
    """What a script behind a page has put into its title, in a browser that keeps its storage."""
    page.write_text(page.read_text() + script)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    ran = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", ran.stdout, re.DOTALL)[1]))

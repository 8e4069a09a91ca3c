"""The page of results: what it shows, what it survives, and that it runs nothing it is given."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report.run_folders import full_section, png, write_run
from typer.testing import CliRunner

from secondguess._files import read_record
from secondguess.cli.app import app
from secondguess.report import words
from secondguess.report.files import write_page
from secondguess.report.page import write_answers, write_report
from secondguess.report.reading import read_runs
from secondguess.report.sections import (
    Answer,
    Figure,
    Section,
    Table,
    Walk,
    WalkGroup,
    WalkView,
)
from secondguess.report.words import ColouredWord

HOSTILE = "\"'></script></style><script>alert(1)</script><img src=x onerror=alert(2)>&{{ 7 * 7 }}"


class Elements(HTMLParser):
    """The tags, attributes and text of a page, as a browser's parser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(out: Path) -> str:
    return write_report(out).read_text(encoding="utf-8")


def test_a_page_shows_verdicts_numbers_tables_words_walks_and_figures(tmp_path: Path) -> None:
    write_run(tmp_path)
    page = page_of(tmp_path)
    found = Elements(page)
    text = " ".join(" ".join(found.text).split())
    assert "1 of 2 checks hold" in text
    for shown in ("does not hold", "0.0127", "0.02", "1 min 2 s", "Section 4.2 of the paper"):
        assert shown in text
    [picture] = found.of("img")
    assert (picture["width"], picture["height"], picture["alt"]) == ("3", "2", "some text")
    readings = [word["data-reading"] for word in found.of("button")]
    assert readings[1] == (
        "log-probability −2.000 at first sight, −0.750 after seeing this answer (+1.250)"
    )
    assert readings[3] == "log-probability −1.500"
    walks = found.of("polyline")
    assert [walk["class"] for walk in walks] == ["walk", "walk rejected", "walk"]
    assert "accepted, 0 of them over the hill" in text


def test_the_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = Elements(page_of(tmp_path))
    addresses = [
        value
        for _, attributes in found.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data") and value
    ]
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)


def test_hostile_text_stays_text_in_every_field(tmp_path: Path) -> None:
    calm, hostile = tmp_path / "calm", tmp_path / "hostile"
    write_run(calm)
    write_run(hostile, text=HOSTILE)
    (hostile / "coins" / "quick" / "seed-1").mkdir()
    (hostile / "coins" / "quick" / "seed-1" / "result.json").write_text(
        json.dumps({"claims": [{HOSTILE: HOSTILE}], "config": {HOSTILE: {HOSTILE: HOSTILE}}})
    )
    write_run(calm, seed=1, config={"a": "b"}, claims=[{"a": "b"}])
    page = page_of(hostile)
    found = Elements(page)
    assert len(found.of("script")) == 1
    assert not [
        tag for tag, attributes in found.tags if any(n.startswith("on") for n in attributes)
    ]
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in Elements(page_of(calm)).tags}
    assert "49" not in "".join(found.text).replace(HOSTILE, "")
    # Title, claim, note, table, answers, walks, figure, statement and settings: all there, as text.
    assert "".join(found.text).count("<script>alert(1)</script>") > 15


def test_hostile_names_of_folders_stay_text(tmp_path: Path) -> None:
    calm, hostile = tmp_path / "calm", tmp_path / "hostile"
    write_run(calm)
    write_run(hostile, experiment="<img src=x onerror=alert(1)>", preset='"><b>')
    found = Elements(page_of(hostile))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in Elements(page_of(calm)).tags]
    identifiers = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_links_of_the_page_lead_somewhere(tmp_path: Path) -> None:
    for experiment, seed in (("coins", 0), ("coins", 1), ("dice", 0)):
        write_run(tmp_path, experiment, seed=seed)
    found = Elements(page_of(tmp_path))
    targets = {attributes.get("id") for _, attributes in found.tags}
    links = [each["href"] for each in found.of("a")]
    assert len(links) == 1 + 3 + 3  # past the navigation, in it, and a run each
    assert {link.removeprefix("#") for link in links if link} <= targets
    for label in found.of("label"):
        assert "for" not in label or label["for"] in targets


def test_further_seeds_are_folded_below_the_first(tmp_path: Path) -> None:
    for preset, seed in (("quick", 0), ("quick", 1), ("quick", 2), ("paper", 0)):
        write_run(tmp_path, preset=preset, seed=seed)
    page = page_of(tmp_path)
    assert page.count("Everything on this seed: 1 of 2 checks hold") == 2
    found = Elements(page)
    assert len(found.of("article")) == 4
    # The claim of the paper stands once, at the first run.
    assert "".join(found.text).count("Section 4.2 of the paper.") == 1


def test_a_run_opens_with_its_finding_and_its_picture(tmp_path: Path) -> None:
    section = replace(full_section(), finding="What was found.", claim="What is claimed.")
    more = Figure(file="b.png", caption="another", alt="another")
    write_run(tmp_path, section=replace(section, figures=(*section.figures, more)))
    page = page_of(tmp_path)
    in_order = ["<h3>", "What was found.", "<img", "What is claimed.", "Verdicts:", "<table"]
    article = page[page.index("<article") :]
    places = [article.index(each) for each in [*in_order, "More figures", "another"]]
    assert places == sorted(places)
    assert article.count("<img") == 2
    assert "Verdicts: 1 of 2 hold, 1 not judged" in article


def test_runs_stand_in_the_order_of_the_paper(tmp_path: Path) -> None:
    for experiment, section in (("alpha", "5.2"), ("beta", "4.2"), ("gamma", "")):
        write_run(tmp_path, experiment, section=replace(full_section(), paper_section=section))
    write_run(tmp_path, "beta", seed=10)
    write_run(tmp_path, "beta", seed=9)
    assert [(run.experiment, run.seed) for run in read_runs(tmp_path)] == [
        ("beta", "0"),
        ("beta", "9"),
        ("beta", "10"),
        ("alpha", "0"),
        ("gamma", "0"),
    ]


RESULT = '{"kind": "secondguess result", "format": 1, '
PAGE = '{"kind": "secondguess page", "format": 1, '


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("result.json", "{", "result.json is damaged; expected the result of a run (result.json"),
        ("result.json", "[]", "result.json is something else, or damaged; expected the result"),
        ("result.json", '{"kind": "secondguess page", "format": 1}', "is something else"),
        ("result.json", '{"kind": "secondguess result", "format": 2}', "has format 2; this"),
        ("result.json", RESULT + '"claims": [{"name": 1}]}', "claims[0] lacks 'holds'"),
        ("result.json", RESULT + '"claims": 3}', "claims[0] is 3; expected an object"),
        ("page.json", None, "page.json is missing"),
        ("page.json", "nonsense", "page.json is damaged; expected what the report says"),
        ("page.json", "{}", "page.json is something else"),
        ("page.json", PAGE + '"claim": ""}', "page.json lacks 'title'"),
        ("page.json", PAGE + '"colour": 1}', "page.json has the unknown entry 'colour'"),
        ("figures/a.png", None, "figure a.png is not shown: No such file"),
        ("figures/a.png", "GIF89a", "figure a.png is not shown: it is not a PNG"),
    ],
)
def test_a_broken_file_costs_one_line(
    tmp_path: Path, file: str, content: str | None, said: str
) -> None:
    write_run(tmp_path, "whole")
    broken = write_run(tmp_path, "broken")
    if content is None:
        (broken / file).unlink()
    else:
        (broken / file).write_text(content)
    runs = {run.experiment: run for run in read_runs(tmp_path)}
    assert runs["whole"].problems == ()
    [problem] = runs["broken"].problems
    assert said in problem
    text = "".join(Elements(page_of(tmp_path)).text)
    assert said in text
    assert text.count("Not shown") == 1


WALKS = {
    "title": "",
    "alt": "",
    "side": 10**9,
    "flag": "",
    "max_gap": 0.1,
    "views": [{"title": "", "tones": [], "signs": [], "walks": []}],
}
DAMAGED = {
    "half a letter": ("result.json", '{"config": {"a": "\\ud800"}, "claims": []}'),
    "half a letter in a title": (
        "page.json",
        '{"title": "\\udfff", "paper_section": "", "claim": ""}',
    ),
    "a number beyond all": ("result.json", '{"seconds": {"a": 1' + "0" * 400 + "}}"),
    "a number of too many digits": ("result.json", '{"seconds": {"a": 1' + "0" * 5000 + "}}"),
    "no number": ("result.json", '{"seconds": {"a": NaN, "b": Infinity, "c": -1e300}}'),
    "a bound beyond all": (
        "result.json",
        '{"claims": [{"name": "", "holds": true, "value": 1, "bound": 1' + "0" * 400 + "}]}",
    ),
    "lists in lists": ("result.json", "[" * 100_000),
    "lists in settings": (
        "result.json",
        '{"config": {"a": ' + "[" * 900 + "]" * 900 + '}, "versions": [], "machine": 7}',
    ),
    "a grid of all cells": (
        "page.json",
        json.dumps({"title": "", "paper_section": "", "claim": "", "walks": [WALKS]}),
    ),
    "names that are no text": ("result.json", '{"claims": {"a": []}, "seconds": ["a"]}'),
    "bytes": ("result.json", "\x00\x01"),
    "nothing": ("page.json", ""),
    "a figure without a name": (
        "page.json",
        '{"title": "", "paper_section": "", "claim": "", "figures": '
        '[{"file": "", "caption": "", "alt": ""}, {"file": "..", "caption": "", "alt": ""}, '
        '{"file": "a\\u0000b", "caption": "", "alt": ""}]}',
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_one_damaged_run_does_not_lose_the_report(tmp_path: Path, name: str) -> None:
    file, content = DAMAGED[name]
    if content.startswith("{"):
        content = (RESULT if file == "result.json" else PAGE) + content[1:]
    write_run(tmp_path, "whole", text="all that is well")
    (write_run(tmp_path, "damaged") / file).write_text(content)
    text = "".join(Elements(page_of(tmp_path)).text)
    assert text.count("all that is well") > 15
    assert "1 of 2 checks hold" in text or "1 of 2 hold" in text


@pytest.mark.parametrize("file", ["result.json", "page.json", "figures/a.png"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to itself"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, file: str, kind: str) -> None:
    write_run(tmp_path, "whole", text="all that is well")
    path = write_run(tmp_path, "damaged") / file
    path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link to itself":
            path.symlink_to(path)
    text = "".join(Elements(page_of(tmp_path)).text)
    assert text.count("all that is well") > 15
    assert "Not shown" in text


def test_a_run_that_cannot_be_drawn_costs_its_article_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, "whole", text="all that is well")
    write_run(tmp_path, "damaged", text="bad")

    def coloured_words(answer: Answer) -> list[ColouredWord]:
        if answer.label == "bad":
            raise ZeroDivisionError("nobody thought of this")
        return words.coloured_words(answer)

    monkeypatch.setattr("secondguess.report.page.coloured_words", coloured_words)
    text = "".join(Elements(page_of(tmp_path)).text)
    assert text.count("all that is well") > 15
    assert "Not shown: this run cannot be drawn: ZeroDivisionError: nobody thought" in text


def test_figures_are_in_memory_one_run_at_a_time(tmp_path: Path) -> None:
    """Sixty runs with a figure of 1 MB each: the page has 80 MB, and its making needs a fifth."""
    size, num_runs = 1_000_000, 60
    for seed in range(num_runs):
        directory = write_run(tmp_path, seed=seed)
        (directory / "figures" / "a.png").write_bytes(png() + bytes(size))
    write_report(tmp_path)  # what is loaded once is not counted
    tracemalloc.start()
    page = write_report(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page.stat().st_size > 4 / 3 * num_runs * size
    assert peak < 20 * size


def test_a_huge_file_is_named_and_not_read(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    for file in ("page.json", "figures/a.png"):
        with (directory / file).open("r+b") as opened:
            opened.truncate(10**9)
    [run] = read_runs(tmp_path)
    section, figure = run.problems
    assert "page.json has more than 33,554,432 bytes" in section
    assert figure == "figure a.png is not shown: it has 1000 MB; expected at most 32 MB."


def test_the_page_replaces_a_page_and_nothing_else(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "out")
    page = tmp_path / "page.html"
    for _ in range(2):
        assert write_report(tmp_path / "out", page) == page
    for precious in (directory / "result.json", directory / "figures" / "a.png"):
        before = precious.read_bytes()
        outcome = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "--out", str(precious)])
        assert outcome.exit_code == 2
        assert "is not a page of this command" in " ".join(outcome.output.split())
        assert precious.read_bytes() == before
    outcome = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "--out", str(directory)])
    assert outcome.exit_code == 2
    assert sorted(path.name for path in directory.iterdir()) == [
        "figures",
        "page.json",
        "result.json",
    ]


def test_the_report_knows_no_experiment() -> None:
    """No word of any experiment is in the package, neither in code nor in templates."""
    source = Path(words.__file__).parents[1]
    experiments = {
        path.name for path in (source / "experiments").iterdir() if (path / "__init__.py").exists()
    }
    assert len(experiments) > 3
    names = {word for name in experiments for word in (name, name.replace("_", "-"))}
    names |= {"lake", "unsafe", "cifar", "sinusoid", "piecewise", "digits of pi"}
    for path in sorted((source / "report").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".html", ".css", ".js"):
            text = path.read_text(encoding="utf-8").lower()
            found = [word for word in names if re.search(rf"(?<![a-z]){word}", text)]
            assert found == [], path


def test_a_run_without_a_page_still_shows_claims_and_figures(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    (directory / "page.json").unlink()
    [run] = read_runs(tmp_path)
    assert (len(run.claims), run.num_claims, run.num_held, run.num_needing) == (3, 2, 1, 1)
    assert [picture.figure.file for picture in run.pictures] == ["a.png"]


def test_an_unfinished_run_names_its_finished_parts(tmp_path: Path) -> None:
    part = tmp_path / "coins" / "quick" / "seed-3" / "parts" / "original" / "naive"
    part.mkdir(parents=True)
    (part / "result.json").write_text("{}")
    [run] = read_runs(tmp_path)
    assert run.problems == ("This run is not finished. Finished parts: original/naive.",)
    assert "not finished" in page_of(tmp_path)


def test_a_figure_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    outside = Figure(file="../../secret.png", caption="", alt="")
    directory = write_run(tmp_path, section=replace(full_section(), figures=()))
    (directory.parent / "secret.png").write_bytes(png())
    section = replace(full_section(), figures=(outside,))
    write_page(directory, section)
    [run] = read_runs(tmp_path)
    assert run.pictures == ()
    assert "leads out of the figures folder" in run.problems[0]


def test_any_folder_of_results_will_do(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    for folder in (tmp_path, directory.parent, directory):
        [run] = read_runs(folder)
        assert run.path == ("coins", "quick", "0")


def test_the_same_results_give_the_same_page(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert page_of(tmp_path) == page_of(tmp_path)


def test_the_command_needs_results_and_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path)
    page = tmp_path / "pages" / "all.html"
    outcome = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(page)])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.strip() == str(page)
    assert page.exists()
    code = (
        "import sys; from pathlib import Path; from secondguess.report.page import write_report; "
        f"write_report(Path({str(tmp_path)!r})); "
        "print(*sorted({'torch', 'matplotlib', 'transformers'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert loaded.stdout.strip() == ""


@pytest.mark.parametrize(
    ("folder", "said"), [("empty", "holds no results"), ("nowhere", "is not a folder")]
)
def test_the_command_says_what_is_missing(tmp_path: Path, folder: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    outcome = CliRunner().invoke(app, ["report", str(tmp_path / folder)])
    assert outcome.exit_code == 2
    assert said in outcome.output
    assert "secondguess reproduce" in outcome.output


def test_answers_alone_make_a_page(tmp_path: Path) -> None:
    path = write_answers("Words & <more>", full_section().answers, tmp_path / "answers.html")
    found = Elements(path.read_text(encoding="utf-8"))
    assert "Words & <more>" in found.text
    assert len(found.of("button")) == 4


def test_records_survive_json() -> None:
    section = full_section(HOSTILE)
    assert read_record(Section, json.loads(json.dumps(asdict(section)))) == section


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"title": 3}, r"page\.title is 3; expected text"),
        ({"notes": "one"}, r"page\.notes is 'one'; expected a list"),
        ({"tables": [{"title": "t", "columns": ["a"], "rows": [["1", "2"]]}]}, "a row of 2 cells"),
        (
            {
                "answers": [
                    {"title": "", "answers": [{"label": "", "words": ["a"], "log_probs": []}]}
                ]
            },
            "0 log-probabilities; expected 1",
        ),
        ({"figures": [7]}, r"page\.figures\[0\] is 7; expected an object"),
    ],
)
def test_wrong_entries_are_named(change: dict[str, object], said: str) -> None:
    content = json.loads(json.dumps(asdict(full_section()))) | change
    with pytest.raises(ValueError, match=said):
        read_record(Section, content, "page")


def view_of(*cells: int, tones: tuple[str, ...] = ("plain",) * 4) -> WalkView:
    walk = Walk(cells=cells, confidence=1, reading="", is_flagged=False)
    return WalkView(title="", tones=tones, signs=("",) * 4, walks=(walk,))


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (view_of(0, 4), "visits cell 4; expected 0 to 3"),
        (view_of(0, -1), "visits cell -1; expected 0 to 3"),
        (view_of(tones=("plain",) * 3), "3 tones and 4 signs; expected 4 of each"),
        (view_of(tones=("plain", "plain", "plain", "pink")), "'pink'; expected one of plain, "),
        (replace(view_of(), signs=("", "", "", "no")), "the sign 'no'; expected one letter"),
    ],
)
def test_a_walk_stays_on_its_grid(view: WalkView, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WalkGroup(title="", alt="", side=2, flag="", max_gap=0.1, views=(view,))


def test_a_number_is_no_truth_and_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="row of 1 cells; expected 2"):
        Table(title="t", columns=("a", "b"), rows=(("1",),))
    for wrong in (True, float("nan")):
        content = {"cells": [], "confidence": wrong, "reading": "", "is_flagged": False}
        with pytest.raises(ValueError, match=r"it\.confidence"):
            read_record(Walk, content)

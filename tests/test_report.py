"""The report is one page that holds what a store holds: every number beside the paper's and with where it comes from.

How it looks and reacts is checked in a browser: ``make test-browser``.
"""

import os
import re
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import stores
from markup import Element, parse
from scipy.stats import binomtest
from test_cli import contents
from test_playground import PARTS

from directloss import files
from directloss.cli import main
from directloss.experiments import all_declared, decisions, distribution, sorting, sorting_stack, speed
from directloss.lab import figures
from directloss.lab.provenance import code_version, machine
from directloss.lab.report import build
from directloss.lab.store import Key, Row, Store

OTHERS = {"speed": speed.section}
SECTIONS = {
    "sorting": "directloss sort --recipe paper",
    "neighbors": "directloss knn --data mnist --k 1,3,5,9",
    "dynamics": "directloss dynamics --sizes 10,100",
    "decisions": "directloss decide --tasks path",
    "audit": "directloss audit",
    "distribution": "directloss distribution",
    "speed": "python benchmarks/sorting.py",
}
PAGE = ("sorting", "neighbors", "dynamics", "decisions", "audit", "truth", "distribution", "speed")  # in this order
MADE_ON = r"Page made on \d{4}-\d\d-\d\d"


@pytest.fixture(scope="module")
def store(tmp_path_factory, fewer_points) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.sqlite"
    stores.fill(path)
    return path


@pytest.fixture(scope="module")
def rows(store) -> dict:
    return read(store)


@pytest.fixture(scope="module")
def text(store) -> str:
    output = store.with_name("report.html")
    main(["report", "--store", str(store), "--output", str(output)])
    return output.read_text("utf-8")


@pytest.fixture(scope="module")
def page(text) -> Element:
    return parse(text)


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take most of the time."""
    monkeypatch.setattr(figures, "to_inline_svg", lambda figure: "<svg></svg>")


def read(path: Path) -> dict:
    found = defaultdict(list)
    for row in Store(path, create=False).rows():
        found[row.experiment].append(row)
    return found


def render(rows: dict) -> Element:
    return parse(build.render(build.make_sections(rows, all_declared(), OTHERS)))


def tables(element: Element) -> list[tuple[str, list[dict]]]:
    """Of each table: its caption, and its lines as {column: the cell's lines}."""
    found = []
    for figure in element.all("figure", of_class="box"):
        for table in figure.all("table"):
            columns = [heading.text for heading in table.all("thead")[0].all("th")]
            lines = [
                {
                    column: [part if isinstance(part, str) else part.text for part in cell.children]
                    for column, cell in zip(columns, line.all("th", "td"), strict=True)
                }
                for line in table.all("tbody")[0].all("tr")
            ]
            found.append((figure.all("figcaption")[0].text, lines))
    return found


def sources(section: Element) -> list[tuple[str, str, str]]:
    """What, by which command, and its seed, commit and spread."""
    listed = section.all("details", of_class="sources")
    entries = [entry for details in listed for entry in details.all("div")]
    return [tuple(entry.all(tag)[0].text for tag in ("dt", "code", "small")) for entry in entries]


# One page


def test_it_is_one_page_whose_tags_pair_up(text, page):
    assert text.startswith("<!doctype html>")
    assert text.lower().count("<html") == 1
    for tag in ("html", "head", "title", "h1", "header", "nav", "main", "footer", "style", "script"):
        assert len(page.all(tag)) == 1


def test_it_loads_nothing(text, page):
    links = page.values("src", "href", "xlink:href", "srcset", "action", "data", "poster", "background")
    assert "#try" in links
    assert [link for link in links if not link.startswith(("#", "data:,"))] == []
    assert not page.all("iframe", "object", "embed", "img", "base")
    assert not re.search(r"url\((?!#)|@import|\bfetch\(|XMLHttpRequest|\bimport\(|WebSocket", text)
    outside = set(re.findall(r"\w+://[^\s\"'<)]+", text))
    assert outside == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses


def test_it_is_small(text):
    assert len(text.encode()) < 3_000_000


def test_ids_are_unique_and_references_lead_to_one(text, page):
    ids = page.values("id")
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    anchors = [link.removeprefix("#") for link in page.values("href", "xlink:href") if link.startswith("#")]
    named = " ".join(page.values("aria-labelledby", "aria-describedby", "aria-controls", "for")).split()
    drawn = re.findall(r"url\(#([^)]+)\)", text)
    assert anchors
    assert drawn
    assert {*anchors, *named, *drawn} <= set(ids)


def test_figures_refer_to_their_own_parts(page):
    drawings = [figure for figure in page.all("figure") if figure.all("svg")]
    # Neighbours, dynamics, two of each task of the decisions, of which no loss finds its settings, audit, distribution.
    assert len(drawings) == 1 + 3 + 2 * 2 + 2 + 2
    for drawing in drawings:
        markup = " ".join(drawing.values("xlink:href", "clip-path", "style"))
        referred = set(re.findall(r"#([\w-]+-[\w.]+)", markup))
        assert referred
        assert referred <= set(drawing.values("id"))


def test_text_in_figures_is_text_in_the_colour_of_the_page(page):
    letters = [letter for svg in page.all("svg") for letter in svg.all("text")]
    assert "squared error" in {letter.text for letter in letters}
    parts = [part for letter in letters for part in letter.all("tspan") or [letter]]
    assert [part.text for part in parts if "fill: currentColor" not in part.attributes["style"]] == []


def test_the_playground_is_in_it(text):
    for part in PARTS.values():
        assert part in text


def test_the_same_store_gives_the_same_page(store, text, tmp_path):
    main(["report", "--store", str(store), "--output", str(tmp_path / "again.html")])
    pages = (text, (tmp_path / "again.html").read_text("utf-8"))
    first, second = (re.sub(MADE_ON, "", page) for page in pages)
    assert first == second


def test_the_page_says_what_made_it_and_nothing_of_where(text, page, store):
    (footer,) = page.all("footer")
    assert re.search(MADE_ON, footer.text)
    assert f"commit {code_version()}; {machine()}." in footer.text
    for private in (store.parent, Path(build.__file__).parents[3]):
        assert str(private) not in text


def test_report_has_help(capsys):
    main(["report", "--help"])
    printed = capsys.readouterr().out
    for word in ("--store", "--output", "directloss.sqlite", "report.html"):
        assert word in printed


# Sections


def test_every_section_is_there_and_the_navigation_leads_to_it(page):
    assert [section.attributes["id"] for section in page.all("main")[0].all("section")[: len(PAGE)]] == [*PAGE]
    links = [link.attributes["href"] for link in page.all("nav")[0].all("a")]
    assert links == [f"#{key}" for key in (*PAGE, "try")]


def missing(page: Element, key: str) -> list[str]:
    return [found.text for found in page.with_id(key).all("p", of_class="missing")]


@pytest.mark.parametrize("key", SECTIONS)
def test_a_missing_experiment_is_named_with_its_command(key, rows, undrawn):
    left = {name: found for name, found in rows.items() if name != key}
    page = render(left)
    assert missing(page, key) == [f"Not in this store yet. To add it: {SECTIONS[key]} --store STORE"]
    assert not page.with_id(key).all("figure", "details", "table")
    for other in left:
        assert missing(page, other) == []
        assert sources(page.with_id(other))


def test_what_is_not_there_yet_is_said_on_the_command_line_too(tmp_path, capsys):
    stores.add_sorting(Store(tmp_path / "small.sqlite"), sorting.best("dsl", 5, 0), 2, 2)
    main(["report", "--store", str(tmp_path / "small.sqlite"), "--output", str(tmp_path / "deep" / "report.html")])
    assert f"report.html; not in {tmp_path / 'small.sqlite'}: k nearest" in capsys.readouterr().out
    page = parse((tmp_path / "deep" / "report.html").read_text("utf-8"))
    assert [key for key in SECTIONS if missing(page, key)] == [key for key in SECTIONS if key != "sorting"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]


@pytest.mark.parametrize("key", [key for key in SECTIONS if key != "speed"])
def test_the_command_named_for_a_missing_experiment_is_one(key, capsys):
    main([SECTIONS[key].split()[1], "--help"])
    printed = capsys.readouterr().out
    for option in re.findall("--[a-z]+", f"{SECTIONS[key]} --store"):
        assert option in printed


# Table 1


def test_made_up_results_have_the_fields_of_real_ones():
    config = replace(sorting.paper("dsl", 3, 0), max_epochs=1)
    ((_, real),) = sorting_stack.train(config, [0])
    invented = stores.made_up(config, 0, True)
    assert {name: type(value) for name, value in invented.items()} == {name: type(real[name]) for name in real}


def table_1(page: Element, recipe: str, seed: int) -> list[dict]:
    start = f"recipe {recipe}, seed {seed}"
    (lines,) = [lines for caption, lines in tables(page.with_id("sorting")) if caption.startswith(start)]
    return lines


@pytest.mark.parametrize("cell", stores.SORTED, ids=str)
def test_table_1_shows_share_interval_and_the_papers_figure(cell, page):
    recipe, method, size, seed, repetitions, perfect = cell
    (line,) = [
        line
        for line in table_1(page, recipe, seed)
        if (line["method"], line["d"]) == ([method], [str(size)]) and not any(line.get("options", []))
    ]
    share, interval, *paper = line["perfect %"]
    assert share == f"{100 * perfect / repetitions:.1f}"
    assert line["n"] == [str(repetitions)]
    wilson = binomtest(perfect, repetitions).proportion_ci(method="wilson")
    assert interval == f"{100 * wilson.low:.1f} - {100 * wilson.high:.1f}"
    known = sorting.TABLE_1.get((method, size))
    assert paper == [f"paper {known[0]:g}" if known else "not in the paper"]
    wrong = [0.0 if number < perfect else 200 / size for number in range(repetitions)]
    assert line["misplaced %"][0].startswith(f"{sum(wrong) / repetitions:.2f} ± ")


def test_the_papers_figures_are_those_printed(page):
    found = {(line["method"][0], line["d"][0]): line["perfect %"][2] for line in table_1(page, "paper", 0)}
    assert found["direct0", "5"] == "paper 98.5"
    assert found["dsl", "100"] == "paper 76.8"
    assert found["gumbel-sinkhorn", "10"] == "paper 100"
    assert found["dsl", "7"] == "not in the paper"


def test_every_configuration_has_one_line_in_the_table_of_its_recipe_and_seed(page):
    captions = [caption for caption, _ in tables(page.with_id("sorting"))]
    assert captions == ["recipe paper, seed 0", "recipe best, seed 0", "recipe best, seed 1"]
    cells = Counter((recipe, seed) for recipe, _, _, seed, *_ in stores.SORTED)
    cells["paper", 0] += 1  # that with another epsilon
    for (recipe, seed), count in cells.items():
        assert len(table_1(page, recipe, seed)) == count


CHANGES = {
    "epsilon -3, limit 300": {"epsilon": -3.0, "limit": 300.0},
    "epochs 10": {"max_epochs": 10},
    "cost hamming": {"cost": "hamming"},
    "samples 1": {"samples": 1},
    "fresh True": {"fresh": True},
}


@pytest.mark.parametrize("options", CHANGES)
def test_other_options_than_the_recipes_have_a_line_of_their_own_that_names_them(options, tmp_path):
    store, own = Store(tmp_path / "store.sqlite"), sorting.paper("dsl", 5, 0)
    stores.add_sorting(store, own, 10, 10)
    ((_, before),) = tables(render(read(store.path)).with_id("sorting"))
    stores.add_sorting(store, replace(own, **CHANGES[options]), 1234, 0)
    page = render(read(store.path)).with_id("sorting")
    ((_, after),) = tables(page)
    assert sorted(line["options"] for line in after) == [[], [options]]
    assert [{k: v for k, v in line.items() if k != "options"} for line in after if not line["options"]] == before
    assert not page.all("p", of_class="left-out")


def test_what_this_version_does_not_know_is_left_out_and_counted(tmp_path):
    store, config = Store(tmp_path / "store.sqlite"), asdict(sorting.paper("dsl", 5, 0))
    result = stores.made_up(sorting.paper("dsl", 5, 0), 0, True)
    for changes in ({"method": "quantum"}, {"recipe": "newest"}, {"colour": 1}):
        store.add(Key("sorting", config | changes), [(0, result), (1, result)])
    store.add(Key("sorting", config), [(0, {"time": 1.0})])
    store.add(decisions.EXPERIMENT.key(decisions.published("path", "spo+")), [(0, {"metrics": []})])
    store.add(Key("a new experiment", {"size": 3}), [(0, {"time": 1.0})])
    page = render(read(store.path))
    assert missing(page, "sorting")
    notes = [note.text for note in page.with_id("sorting").all("p", of_class="left-out")]
    assert sorted(re.findall(r"Not shown: (\d) rows with (?:the unknown )?(\w+ \w+)", " ".join(notes))) == [
        ("1", "what is"),
        ("2", "field colour"),
        ("2", "method quantum"),
        ("2", "recipe newest"),
    ]
    assert "1 of a new experiment" in page.with_id("others").text
    (damaged,) = page.with_id("decisions").all("p", of_class="left-out")
    assert damaged.text.startswith("Not shown: 1 rows with what is not a result of decisions")


# Where numbers come from


def keys(rows: dict, key: str) -> set:
    return {(row.config_hash, row.repetition) for row in rows[key]}


@pytest.mark.parametrize("key", SECTIONS)
def test_the_commands_given_make_the_rows_shown(key, page, rows, tmp_path, monkeypatch):
    again = tmp_path / "again.sqlite"
    for _, command, _ in sources(page.with_id(key)):
        program, *arguments = command.split()
        if key == "speed":
            assert program == "python"
            script, *arguments = " ".join(arguments).removesuffix(" --store STORE").split()
            stores.run_benchmark(" ".join([Path(script).stem, *arguments]), again)
        elif key == "sorting":
            monkeypatch.setattr(sorting_stack, "train", stores.train_instantly)
            main([*arguments, f"--store={again}"])
        else:
            assert program == "directloss"
            stores.run(" ".join(arguments), again, tmp_path)
    assert keys(read(again), key) == keys(rows, key)


SPREADS = {
    "sorting": "95 % Wilson interval, standard deviation over repetitions",
    "speed": "mean of 60 epochs, 2 threads, one process|best of several runs of each kind, one process",
    "dynamics": "mean of 2 repetitions",
    "decisions": "standard deviation over seeds; 95 % intervals of paired differences, .*",
    "audit": "standard errors over 200 calls for each setting",
    "distribution": r"standard error of a probability at most 0\.\d{4}",
    "neighbors": "one training|standard deviation over seeds",
}


@pytest.mark.parametrize("key", SECTIONS)
def test_every_number_has_its_seed_commit_and_spread(key, page, rows):
    found = sources(page.with_id(key))
    assert found
    for _, command, facts in found:
        seed, commit, spread = facts.split(" · ")
        assert commit == f"commit {code_version()}"
        assert re.fullmatch(SPREADS[key], spread)
        assert set(re.findall(r"\d+", seed)) <= {str(row["seed"]) for row in rows[key]}
        if "--seed" in command:
            assert re.search(r"--seed[ =](\d+)", command)[1] == seed.removeprefix("seed ")


def test_repetitions_of_several_commits_name_them_where_they_count(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    for size in (5, 10, 25):
        stores.add_sorting(store, sorting.best("dsl", size, 0), 4, 4)
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE results SET code = 'aaa'")
        db.execute("UPDATE results SET code = 'bbb' WHERE repetition > 1 AND json_extract(config, '$.size') = 10")
    found = {command: facts for _, command, facts in sources(render(read(store.path)).with_id("sorting"))}
    assert {command.split("--sizes=")[1]: facts.split(" · ")[1] for command, facts in found.items()} == {
        "5,25": "commit aaa",
        "10": "commit aaa, bbb",
    }


# Speed


def test_speed_shows_times_ratios_and_the_papers(page):
    (_, training), (_, solvers) = tables(page.with_id("speed"))
    # The clock of stores.run_benchmark: 5 and 10 samples, 10 ms a number for the plain step.
    assert training == [
        {
            "d": [size],
            "DSL, ours": [ours, f"paper {theirs} (K80)"],
            "Gumbel-Sinkhorn, ours": [sinkhorn, f"paper {others} (K80)", "2.0 × our DSL"],
            "DSL, plain step with SciPy": [plain, "20.0 × our DSL"],
        }
        for size, ours, theirs, sinkhorn, others, plain in (
            ("10", "5.00", 247, "10.0", 288, "100.0"),
            ("100", "50.00", 304, "100.0", 306, "1000.0"),
        )
    ]
    # Ratios 2 and 8 in turn, and 1 and 7 if the cost is unrelated.
    assert [[cell[0] for cell in line.values()] for line in solvers] == [
        ["10", "of the same", "4.0", "2.0"],
        ["100", "of the same", "4.0", "2.0"],
        ["10", "of other numbers", "2.6", "1.0"],
    ]


def test_a_benchmark_that_was_run_again_shows_its_last_run_and_says_so(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    for commit, day, ours in (("new", 3, 2.0), ("older", 2, 9.0), ("oldest", 1, 5.0)):
        config = {"benchmark": "sorting", "size": 10, "commit": commit, "seed": 0, "spread": "mean"}
        store.add(Key("speed", config), [(0, {"ours_ms": ours, "plain_ms": 8.0, "sinkhorn_ms": 6.0})])
        with closing(sqlite3.connect(store.path)) as db, db:
            when = f"2026-01-0{day}T00:00:00+00:00"
            db.execute("UPDATE results SET finished = ? WHERE json_extract(config, '$.commit') = ?", (when, commit))
    section = render(read(store.path)).with_id("speed")
    ((_, lines),) = tables(section)
    assert [line["DSL, ours"][0] for line in lines] == ["2.00"]
    assert [facts for _, _, facts in sources(section)] == ["seed 0 · commit new · mean"]
    assert [note.text for note in section.all("p", of_class="left-out")] == ["Not shown: 2 older runs."]


def test_neighbours_have_a_line_each_and_means_over_the_seeds(rows, undrawn):
    (row,) = [row for row in rows["neighbors"] if row["method"] == "neuralsort"]
    trained = [
        Row(
            "neighbors",
            f"hash {number}",
            0,
            {**row.config, "seed": seed, "epochs": epochs},
            {**row.result, "accuracy": accuracy},
            "abc",
            "2026-01-01",
        )
        for number, (seed, epochs, accuracy) in enumerate(((0, 5, 90.0), (1, 5, 92.0), (0, 2, 10.0)))
    ]
    section = render({"neighbors": trained}).with_id("neighbors")
    (caption, means), (_, every) = tables(section)
    assert caption.startswith("Means over seeds")
    found = {line["epochs"][0]: line["accuracy %"][0] for line in means}
    assert found == {"5": "91.00 ± 1.41", "2": "10.00"}
    assert sorted(line["accuracy %"][0] for line in every) == ["10.00", "90.00", "92.00"]


def test_the_neighbours_times_are_with_the_other_times(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    config = {"benchmark": "neighbors", "size": 500, "batch": "paper", "data": "mnist", "net": "lenet", "k": 5}
    config |= {"commit": "new", "seed": 0, "spread": "median"}
    store.add(Key("speed", config), [(0, {"seconds_per_query": {"dsl": 0.001, "neuralsort": 0.002}})])
    section = render(read(store.path)).with_id("speed")
    ((_, (line,)),) = tables(section)
    assert (line["dsl"], line["neuralsort"]) == (["1.00 (1.00)"], ["2.00 (2.00)"])
    assert "direct0" not in line, "nobody measured it"
    assert [facts for _, _, facts in sources(section)] == ["seed 0 · commit new · median"]


# Figures


def captions(page: Element, key: str) -> list[str]:
    drawn = page.with_id(key).all("figure", of_class="drawing")
    return [figure.all("figcaption")[0].text for figure in drawn]


def test_curves_that_differ_in_more_than_size_and_sign_have_figures_of_their_own(page):
    assert captions(page, "dynamics") == [
        f"Loss and shares over the epochs: method {method}, seed {seed}"
        for method, seed in (("direct1", 0), ("dsl", 0), ("dsl", 1))
    ]
    labels = [
        {letter.text for letter in figure.all("text") if letter.text.startswith("d = ")}
        for figure in page.with_id("dynamics").all("figure", of_class="drawing")
    ]
    one = {"d = 3, ε = -12", "d = 3, ε = 12"}
    assert labels == [one, one | {"d = 4, ε = -12", "d = 4, ε = 12"}, one]


def test_the_losses_of_a_task_are_in_one_table(page):
    found = tables(page.with_id("decisions"))
    places = ["task path, 5x5, degree 4", "task knapsack, 16 items, degree 6"]
    assert [caption for caption, _ in found] == [
        f"{one}, train 32, epochs 1, measure regret %, sees full cost, n 2" for one in places
    ]
    for _, lines in found:
        assert {line["loss"][0] for line in lines} == {"spo+", "least-squares"}
        assert sorted(float(line["mean"][0]) for line in lines) == [float(line["mean"][0]) for line in lines]


def test_each_audit_has_its_figure_and_its_table(page):
    found = captions(page, "audit")
    assert len(found) == len(tables(page.with_id("audit"))) == 2
    assert [caption for caption in found if "structure matching" in caption and "size 3" in caption]
    assert [caption for caption in found if "structure subset" in caption and "size 4" in caption]


def changed(row: Row, **result) -> Row:
    return replace(row, result={**row.result, **result})


def test_orders_of_the_bias_are_told_if_they_could_be_fitted(rows, undrawn):
    fitted = [{"target": "scores", "rule": "both", "scale": 1.0, "slope": 1.96, "error": 0.125}]
    unknown = [{**fitted[0], "rule": "one, ε < 0", "slope": None, "error": None}, {**fitted[0], "error": None}]
    for slopes, count in ((fitted + unknown, 1), (unknown, 0)):
        text = render({"audit": [changed(rows["audit"][0], slopes=slopes)]}).with_id("audit").text
        assert text.count("scores, σ = 1, both: order 1.96 ± 0.12 in ε") == text.count("in ε (theory") == count


def test_each_instance_has_its_own_error(rows, undrawn):
    for row in rows["distribution"]:
        (only,) = sources(render({"distribution": [row]}).with_id("distribution"))
        assert only[2].endswith(f"at most {max(point['error'] for point in row['points']):.4f}")


# Text of others


EVIL = "<script>alert('1')</script>\"'&"


def test_text_from_a_store_is_shown_and_not_obeyed(rows, undrawn):
    marked = {key: [replace(row, code=EVIL) for row in found] for key, found in rows.items()}
    marked["audit"] = [replace(row, config={**row.config, "scales": EVIL}) for row in marked["audit"]]
    page = render(marked)
    assert len(page.all("script")) == 1
    for key in ("sorting", "neighbors", "dynamics", "audit", "distribution"):
        found = sources(page.with_id(key))
        assert found
        assert [facts for _, _, facts in found if EVIL not in facts] == []
    assert "alert" in sources(page.with_id("audit"))[0][1]


def test_text_in_figures_is_not_obeyed_either(rows):
    figure = distribution.draw([{**row.config, **row.result, "structure": EVIL} for row in rows["distribution"]])
    drawn = parse(build.inline(figure, "key"))
    assert not drawn.all("script")
    assert any(EVIL in letter.text for letter in drawn.all("text"))


# Bad input

BAD = {
    "report": "no results at directloss.sqlite; run an experiment with --store directloss.sqlite first",
    "report --store missing/store.sqlite": "no results at missing/store.sqlite",
    "report --store other.sqlite": "other.sqlite is a database of another program; give another --store path",
    "report --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "report --store nothing": "no results at nothing",
    "report --store folder": "cannot use folder as a results store",
    "report --store fifo": "cannot use fifo as a results store",
    "report --store empty.sqlite": "empty.sqlite holds no results yet; run an experiment with --store empty.sqlite",
    "report --store store.sqlite --output folder": "folder is a folder; give --output a file, e.g. folder/report.html",
    "report --store store.sqlite --output .": ". is a folder; give --output a file, e.g. report.html",
    "report --store store.sqlite --output store.sqlite": "--output store.sqlite is the store itself; give another file",
    "report --store store.sqlite --output link.sqlite": "--output link.sqlite is the store itself; give another file",
    "report --store link.sqlite --output ./folder/../store.sqlite": "is the store itself; give another file",
    "report --store store.sqlite --output notes.txt/page.html": "cannot write notes.txt/page.html: ",
    f"report --store store.sqlite --output {300 * 'x'}": "File name too long; give another path",
    "report --output": "--output requires an argument",
    "report --colour red": "Unknown option: --colour",
    "report store.sqlite": "store.sqlite",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a store and with much that is none."""
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store.sqlite")
    stores.add_sorting(store, sorting.best("dsl", 5, 0), 2, 2)
    store.close()
    Store(tmp_path / "empty.sqlite").close()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link.sqlite").symlink_to("store.sqlite")
    (tmp_path / "notes.txt").write_text("nothing like a database, and longer than the header of one would be\n" * 20)
    (tmp_path / "nothing").touch()
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as db, db:
        db.execute("CREATE TABLE mine (number INTEGER)")
    return tmp_path


@pytest.mark.parametrize("command", BAD, ids=lambda command: command[:70])
def test_bad_input_is_one_line_and_exit_code_2_and_writes_nothing(command, folder, capfd):
    before = contents(folder)
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    printed = capfd.readouterr()
    assert stopped.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("directloss: ")
    assert printed.err.count("\n") == 1
    assert BAD[command] in printed.err
    assert contents(folder) == before


def test_without_options_the_page_is_report_html_of_the_default_store(folder, capsys):
    (folder / "store.sqlite").rename(folder / "directloss.sqlite")
    before = contents(folder)
    main(["report"])
    assert capsys.readouterr().out.startswith("Wrote report.html; ")
    assert {path.name for path in set(contents(folder)) - set(before)} == {"report.html"}
    assert {name: data for name, data in contents(folder).items() if name in before} == before


@pytest.mark.parametrize("before", [None, "an older page"])
def test_a_page_that_cannot_be_written_whole_leaves_what_was_there(before, folder, capfd, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    if before is not None:
        (folder / "report.html").write_text(before)
    there = contents(folder)
    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(SystemExit) as stopped:
        main(["report", "--store", "store.sqlite"])
    assert stopped.value.code == 2
    printed = capfd.readouterr()
    assert printed.err == "directloss: cannot write report.html: No space left on device; give another path\n"
    assert contents(folder) == there


def test_the_page_appears_at_once_and_whole(folder, monkeypatch):
    """Nobody who looks while it is written sees half a page."""
    (folder / "report.html").write_text("an older page")
    replace_file, seen = files.os.replace, []

    def watched(source, target):
        seen.append(((folder / "report.html").read_text(), Path(source).read_text("utf-8")[-8:]))
        replace_file(source, target)

    monkeypatch.setattr(files.os, "replace", watched)
    main(["report", "--store", "store.sqlite"])
    assert seen == [("an older page", "</html>\n")]
    assert (folder / "report.html").stat().st_mode & 0o777 == 0o644


def test_groups_of_rows_may_have_names_of_their_own():
    known = [(None, ["path 1", "knapsack 1"]), (None, ["path 2"])]
    assert build._grouped(known, lambda row: row.split()[0]) == [
        ("path", ["path 1", "path 2"]),
        ("knapsack", ["knapsack 1"]),
    ]

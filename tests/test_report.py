"""The report is one page that holds what a store holds: every number beside the paper's and with where it comes from.

How it looks and reacts is checked in a browser: ``make test-browser``.
"""

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
from directloss.experiments import distribution, figures, sorting, summary
from directloss.report import build
from directloss.runs import Store, code_version, config_hash

SECTIONS = {
    "sorting": "directloss sort --recipe paper",
    "speed": "python benchmarks/sorting.py",
    "dynamics": "directloss dynamics --sizes 10,100",
    "neighbors": "directloss knn --data mnist --k 1,3,5,9",
    "audit": "directloss audit",
    "distribution": "directloss distribution",
}
MADE_ON = r"Page made on \d{4}-\d\d-\d\d"


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
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
        found[row["experiment"]].append(row)
    return found


def render(rows: dict) -> Element:
    return parse(build.render([make(defaultdict(list, rows)) for make in build.SECTIONS]))


def tables(element: Element) -> dict:
    """Of each table by its caption: {row: {column: the cell's lines}}."""
    found = {}
    for figure in element.all("figure", of_class="box"):
        for table in figure.all("table"):
            columns = [heading.text for heading in table.all("thead")[0].all("th")]
            found[figure.all("figcaption")[0].text] = {
                line.all("th")[0].text: {
                    column: [part if isinstance(part, str) else part.text for part in cell.children]
                    for column, cell in zip(columns, line.all("td"), strict=True)
                }
                for line in table.all("tbody")[0].all("tr")
            }
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
    assert len(drawings) == 3 + 1 + 2 + 1  # dynamics, neighbours, audit, distribution
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
    build.build(store, tmp_path / "again.html")
    pages = (text, (tmp_path / "again.html").read_text("utf-8"))
    first, second = (re.sub(MADE_ON, "", page) for page in pages)
    assert first == second


def test_the_page_says_what_made_it_and_nothing_of_where(text, page, store):
    (footer,) = page.all("footer")
    assert re.search(MADE_ON, footer.text)
    assert f"commit {code_version()}; {summary.machine()}." in footer.text
    for private in (store.parent, Path(build.__file__).parents[2]):
        assert str(private) not in text


def test_report_has_help(capsys):
    main(["report", "--help"])
    printed = capsys.readouterr().out
    for word in ("--store", "--output", "directloss.sqlite", "report.html"):
        assert word in printed


# Sections


def test_every_section_is_there_and_the_navigation_leads_to_it(page):
    assert [section.attributes["id"] for section in page.all("main")[0].all("section")[: len(SECTIONS)]] == [*SECTIONS]
    links = [link.attributes["href"] for link in page.all("nav")[0].all("a")]
    assert links == [f"#{key}" for key in (*SECTIONS, "try")]


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
    build.build(tmp_path / "small.sqlite", tmp_path / "deep" / "report.html")
    printed = capsys.readouterr().out
    assert printed.startswith(f"Wrote {tmp_path / 'deep' / 'report.html'}; not in {tmp_path / 'small.sqlite'}: Table 2")
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
    ((_, real),) = sorting.train(config, [0])
    invented = stores.made_up(config, 0, True)
    assert {name: type(value) for name, value in invented.items()} == {name: type(real[name]) for name in real}


@pytest.mark.parametrize("cell", stores.SORTED, ids=str)
def test_table_1_shows_share_interval_and_the_papers_figure(cell, page, rows):
    recipe, method, size, seed, repetitions, perfect = cell
    table = tables(page.with_id("sorting"))[f"Recipe {recipe}, seed {seed}: % sorted perfectly"]
    share, paper, interval, misplaced = table[f"d = {size}"][summary.NAMES[method]]
    assert share == f"{100 * perfect / repetitions:.1f}"
    wilson = binomtest(perfect, repetitions).proportion_ci(method="wilson")
    assert interval == f"{100 * wilson.low:.1f}–{100 * wilson.high:.1f}, n = {repetitions}"
    known = summary.TABLE_1[method].get(size)
    assert paper == (f"paper {known[0]:g}" if known else "not in the paper")
    mine = [row for row in rows["sorting"] if (row["recipe"], row["seed"]) == (recipe, seed) and row["epsilon"] != -3]
    line = {(line["method"], line["size"]): line for line in summary.summarize_sorting(mine)}[method, size]
    assert line["repetitions"] == repetitions
    assert share == f"{line['perfect']:.1f}"
    assert misplaced == f"misplaced {line['wrong_mean']:.2f} %"


def test_the_papers_figures_are_those_printed(page):
    table = tables(page.with_id("sorting"))["Recipe paper, seed 0: % sorted perfectly"]
    assert table["d = 5"]["direct, σ = 0"][1] == "paper 98.5"
    assert table["d = 100"]["DSL"][1] == "paper 76.8"
    assert table["d = 10"]["Gumbel-Sinkhorn"][1] == "paper 100"


def test_a_cell_that_was_not_run_shows_the_papers_figure_only(page):
    table = tables(page.with_id("sorting"))["Recipe paper, seed 0: % sorted perfectly"]
    assert table["d = 100"]["direct, σ = 0"] == ["–", "paper 74.9"]
    assert table["d = 7"]["Gumbel-Sinkhorn"] == ["–", "not in the paper"]


def test_each_recipe_and_seed_has_a_table_with_its_own_cells(page):
    found = tables(page.with_id("sorting"))
    cells = defaultdict(set)
    for recipe, method, size, seed, *_ in stores.SORTED:
        cells[f"Recipe {recipe}, seed {seed}: % sorted perfectly"].add((f"d = {size}", summary.NAMES[method]))
    assert list(found) == list(cells)  # the paper's recipe first, then seed by seed
    for caption, table in found.items():
        shown = {(row, column) for row, line in table.items() for column, cell in line.items() if cell[0] != "–"}
        assert shown == cells[caption]


OTHERS = {
    "epsilon": {"epsilon": -3.0, "limit": 300.0},
    "epochs": {"max_epochs": 10},
    "cost": {"cost": "hamming"},
    "samples": {"samples": 1},
    "fresh": {"fresh": True},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS.keys())
def test_other_options_than_the_recipes_are_counted_and_not_mixed_in(changes, tmp_path):
    store, own = Store(tmp_path / "store.sqlite"), sorting.paper("dsl", 5, 0)
    stores.add_sorting(store, own, 10, 10)
    before = render(read(store.path)).with_id("sorting")
    stores.add_sorting(store, replace(own, **changes), 1234, 0)
    after = render(read(store.path)).with_id("sorting")
    assert tables(after) == tables(before)
    assert sources(after) == sources(before)
    assert not before.all("p", of_class="note")
    (note,) = after.all("p", of_class="note")
    assert note.text == "Not shown: 1,234 repetitions with other options than the recipes'."


def test_a_store_with_other_options_only_names_the_command(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    stores.add_sorting(store, replace(sorting.best("dsl", 5, 0), samples=3), 2, 2)
    page = render(read(store.path))
    assert missing(page, "sorting")
    assert len(page.with_id("sorting").all("p", of_class="note")) == 1


def test_recipes_and_methods_of_a_newer_version_are_left_out(tmp_path):
    store, config = Store(tmp_path / "store.sqlite"), asdict(sorting.paper("dsl", 5, 0))
    for changes in ({"method": "quantum"}, {"recipe": "newest"}):
        store.add("sorting", config | changes, [(0, stores.made_up(sorting.paper("dsl", 5, 0), 0, True))])
    store.add("a new experiment", {"size": 3}, [(0, {"time": 1.0})])
    assert missing(render(read(store.path)), "sorting")


# Where numbers come from


def keys(rows: dict, key: str) -> set:
    return {(row["config_hash"], row["repetition"]) for row in rows[key]}


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
            monkeypatch.setattr(sorting, "train_group", stores.train_instantly)
            main([*arguments, f"--store={again}"])
        else:
            assert program == "directloss"
            stores.run(" ".join(arguments), again, tmp_path)
    recipes = {row["config_hash"] for row in rows[key] if key != "sorting" or row["epsilon"] != -3}
    assert keys(read(again), key) == {(name, number) for name, number in keys(rows, key) if name in recipes}


SPREADS = {
    "sorting": "95 % Wilson interval over repetitions",
    "speed": "mean of 60 epochs, 2 threads, one process|best of several runs of each kind, one process",
    "dynamics": "mean of 2 repetitions",
    "audit": "standard errors over 200 calls for each setting",
    "distribution": r"standard error of a probability at most 0\.\d{4}",
    "neighbors": "one training; the validation images chose epoch 1 of 1",
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
    found = {what: facts for what, _, facts in sources(render(read(store.path)).with_id("sorting"))}
    assert {what: facts.split(" · ")[1] for what, facts in found.items()} == {
        "best, DSL, d = 5, 25": "commit aaa",
        "best, DSL, d = 10": "commit aaa, bbb",
    }


# Speed


def test_speed_shows_times_ratios_and_the_papers(page):
    training, solvers = tables(page.with_id("speed")).values()
    # The clock of stores.run_benchmark: 5 and 10 samples, 10 ms a number for the plain step.
    assert training == {
        "d = 10": {
            "DSL, ours": ["5.00", "paper 247 (K80)"],
            "Gumbel-Sinkhorn, ours": ["10.0", "2.0 × our DSL", "paper 288 (K80)"],
            "DSL, plain step with SciPy": ["100.0", "20.0 × our DSL"],
        },
        "d = 100": {
            "DSL, ours": ["50.00", "paper 304 (K80)"],
            "Gumbel-Sinkhorn, ours": ["100.0", "2.0 × our DSL", "paper 306 (K80)"],
            "DSL, plain step with SciPy": ["1000.0", "20.0 × our DSL"],
        },
    }
    # Ratios 2 and 8 in turn, and 1 and 7 where the cost is unrelated.
    assert solvers == {
        "d = 10": {"cost of the same numbers": ["4.0", "least 2.0"], "cost of other numbers": ["2.6", "least 1.0"]},
        "d = 100": {"cost of the same numbers": ["4.0", "least 2.0"], "cost of other numbers": ["–"]},
    }


def test_a_benchmark_that_was_run_again_shows_its_last_run(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    for commit, day, ours in (("new", 3, 2.0), ("older", 2, 9.0), ("oldest", 1, 5.0)):
        config = {"benchmark": "sorting", "size": 10, "commit": commit, "seed": 0, "spread": "mean"}
        store.add("speed", config, [(0, {"ours_ms": ours, "plain_ms": 8.0, "sinkhorn_ms": 6.0})])
        with closing(sqlite3.connect(store.path)) as db, db:
            when = f"2026-01-0{day}T00:00:00+00:00"
            db.execute("UPDATE results SET finished = ? WHERE json_extract(config, '$.commit') = ?", (when, commit))
    section = render(read(store.path)).with_id("speed")
    (table,) = tables(section).values()
    assert [line["DSL, ours"][0] for line in table.values()] == ["2.00"]
    assert [facts for _, _, facts in sources(section)] == ["seed 0 · commit new · mean"]


def test_neighbours_are_means_over_the_seeds_of_the_longest_training(rows, undrawn):
    (row,) = [row for row in rows["neighbors"] if row["method"] == "neuralsort"]
    trained = [
        row | {"seed": seed, "epochs": epochs, "accuracy": accuracy, "finished": f"2026-01-0{day}"}
        for seed, epochs, accuracy, day in ((0, 5, 90.0, 1), (1, 5, 92.0, 2), (0, 2, 10.0, 3), (2, 2, 20.0, 4))
    ]
    section = render({"neighbors": trained}).with_id("neighbors")
    (table,) = tables(section).values()
    assert table["NeuralSort"]["k = 3"][:2] == ["91.00", "± 1.41, 2 seeds"]
    assert table["NeuralSort"]["k = 3"][3].startswith("resnet9-4, 5 epochs")
    assert [facts.split(" · ")[0] for _, _, facts in sources(section)] == ["seed 0", "seed 1"]


def test_the_neighbours_times_stand_beside_their_accuracies(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    config = {"benchmark": "neighbors", "size": 500, "batch": "paper", "data": "mnist", "net": "lenet", "k": 5}
    config |= {"commit": "new", "seed": 0, "spread": "median"}
    store.add("speed", config, [(0, {"seconds_per_query": {"dsl": 0.001, "neuralsort": 0.002}})])
    page = render(read(store.path))
    (table,) = tables(page.with_id("neighbors")).values()
    assert table == {
        "mnist, k = 5, 500 candidates, 100 queries": {
            "DSL": ["1.00", "1.00 × DSL"],
            "NeuralSort": ["2.00", "2.00 × DSL"],
        }
    }
    assert [facts for _, _, facts in sources(page.with_id("neighbors"))] == ["seed 0 · commit new · median"]
    assert not tables(page.with_id("speed"))


# Figures


def captions(page: Element, key: str) -> list[str]:
    drawn = page.with_id(key).all("figure", of_class="drawing")
    return [figure.all("figcaption")[0].text for figure in drawn]


def test_curves_that_differ_in_more_than_size_and_sign_have_figures_of_their_own(page):
    assert captions(page, "dynamics") == [
        "Recipe paper, direct, σ = 1, seed 0: mean of 2 repetitions",
        "Recipe paper, DSL, seed 0: mean of 2 repetitions",
        "Recipe paper, DSL, seed 1: mean of 2 repetitions",
    ]
    labels = [
        {letter.text for letter in figure.all("text") if letter.text.startswith("d = ")}
        for figure in page.with_id("dynamics").all("figure")
    ]
    one = {"d = 3, ε = -12", "d = 3, ε = 12"}
    assert labels == [one, one | {"d = 4, ε = -12", "d = 4, ε = 12"}, one]


def test_each_audit_has_its_figure(page):
    assert {caption.split(": ")[1] for caption in captions(page, "audit")} == {
        "matching of size 3",
        "subset of size 4, k = 2",
    }


def test_orders_of_the_bias_are_shown_where_they_could_be_fitted(rows, undrawn):
    fitted = [{"target": "scores", "rule": "both", "scale": 1.0, "slope": 1.96, "error": 0.125}]
    unknown = [{**fitted[0], "rule": "one, ε < 0", "slope": None, "error": None}, {**fitted[0], "error": None}]
    for slopes, body in ((fitted + unknown, {"scores, σ = 1, both": {"order": ["1.96", "± 0.12"]}}), (unknown, None)):
        found = tables(render({"audit": [{**rows["audit"][0], "slopes": slopes}]}).with_id("audit"))
        assert list(found.values()) == ([body] if body else [])


def test_figure_1_is_drawn_of_the_commands_own_instances(rows, undrawn, monkeypatch):
    other = distribution.Instance("matching", 3, seed=8)
    row = {**rows["distribution"][0], **asdict(other), "config_hash": config_hash("distribution", asdict(other))}
    drawn = []
    monkeypatch.setattr(distribution, "draw", drawn.append)
    render({"distribution": [row, *rows["distribution"]]})
    assert [[row["structure"] for row in rows] for rows in drawn] == [["matching", "subset"]]
    assert missing(render({"distribution": [row]}), "distribution")


def test_each_instance_has_its_own_error(rows, undrawn):
    for row in rows["distribution"]:
        (only,) = sources(render({"distribution": [row]}).with_id("distribution"))
        both = sources(render({"distribution": rows["distribution"]}).with_id("distribution"))
        assert only in both
        assert only[2].endswith(f"at most {max(point['error'] for point in row['points']):.4f}")


# Text of others


def test_text_from_a_store_is_shown_and_not_obeyed(rows, undrawn):
    evil = "<script>alert('1')</script>\"'&"
    fields = ("code", "commit", "spread", "scales", "structure")
    marked = {
        key: [{name: evil if name in fields else value for name, value in row.items()} for row in rows[key]]
        for key in SECTIONS
    }
    page = render(marked)
    assert len(page.all("script")) == 1
    for key in SECTIONS:
        found = sources(page.with_id(key))
        assert found
        assert [facts for _, _, facts in found if evil not in facts] == []
    assert evil in sources(page.with_id("audit"))[0][1]


def test_text_in_figures_is_not_obeyed_either(rows):
    evil = "<script>alert('1')</script>\"'&"
    page = render({"distribution": [{**row, "structure": evil} for row in rows["distribution"]]})
    assert len(page.all("script")) == 1
    assert any(evil in letter.text for letter in page.with_id("distribution").all("text"))


# Bad input

BAD = {
    "report": "no results at directloss.sqlite; run an experiment with --store directloss.sqlite first",
    "report --store missing/store.sqlite": "no results at missing/store.sqlite",
    "report --store other.sqlite": "other.sqlite is a database of another program; give another --store path",
    "report --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "report --store nothing": "no results at nothing",
    "report --store folder": "cannot use folder as a results store",
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

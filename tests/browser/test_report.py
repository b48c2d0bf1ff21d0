"""The report in headless Chromium: quiet, legible in both themes and on a phone, reachable by keyboard, and alive."""

from itertools import pairwise
from pathlib import Path

import pytest
import stores
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from directloss.cli import main

from .test_playground import (
    CONTRAST,
    Playground,
    assert_bars_are_as_long_as_their_numbers_say,
    assert_computes_as_the_library,
    assert_shows_its_results,
)

SECTIONS = ("sorting", "neighbors", "dynamics", "decisions", "audit", "truth", "distribution", "speed", "try")
both_schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


class Report(Playground):
    """The page in the browser, whose playground is one of its sections."""

    def all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        (found,) = self.all(selector)
        return found

    def open_details(self) -> None:
        self.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        self.wait()

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def is_dark(self) -> bool:
        red, green, blue = self.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        return red + green + blue < 3 * 128


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    stores.fill(folder / "store.sqlite")
    main(["report", "--store", str(folder / "store.sqlite"), "--output", str(folder / "report.html")])
    return folder / "report.html"


@pytest.fixture
def report(driver, visit, file) -> Report:
    """A fresh page; ``visit`` sees to it that it neither complains nor asks for anything."""
    visit(file)
    opened = Report(driver)
    opened.emulate()
    return opened


# What is where


def test_it_opens_with_everything_in_place(report):
    assert report.driver.title == "directloss: results"
    assert [section.get_attribute("id") for section in report.all("main > section")] == list(SECTIONS)
    assert all(section.is_displayed() for section in report.all("main > section"))
    assert all(drawing.rect["height"] > 100 for drawing in report.all(".drawing svg"))


def test_landmarks_have_their_roles(report):
    roles = {"header": "banner", "nav": "navigation", "main": "main", "footer": "contentinfo"}
    for tag, role in roles.items():
        assert report.one(f"body {tag}").aria_role == role
    assert report.one("nav").accessible_name == "Sections"
    for section in report.all("main > section"):
        assert section.accessible_name == section.find_element(By.TAG_NAME, "h2").text


def test_headings_leave_out_no_level(report):
    levels = [int(heading.tag_name[1]) for heading in report.all("h1, h2, h3, h4, h5, h6")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert levels.count(2) == len(SECTIONS)
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("width", [1280, 360])
def test_the_navigation_leads_to_every_section(report, width):
    report.emulate(width=width)
    links = report.all("nav a")
    assert [link.get_attribute("href").split("#")[1] for link in links] == list(SECTIONS)
    for link, key in zip(links, SECTIONS, strict=True):
        report.run("scrollTo(0, 0)")
        link.click()
        report.wait()
        assert report.run("return location.hash") == f"#{key}"
        box = "document.getElementById(arguments[0]).getBoundingClientRect()"
        top, view = report.run(f"return [{box}.top, innerHeight]", key)
        assert -1 <= top < view


def test_tables_say_what_their_headings_head(report):
    report.open_details()
    tables = report.all("main .scroll table")
    # Sorting, neighbours, dynamics, decisions, audits, distributions, speed.
    assert len(tables) == 3 + 1 + 3 + 2 + 2 + 2 + 2
    assert report.all("main .scroll th:not([scope=col]):not([scope=row])") == []
    for table in tables:
        columns = table.find_elements(By.CSS_SELECTOR, "thead th")
        assert all(heading.get_attribute("scope") == "col" and heading.text for heading in columns)
        for row in table.find_elements(By.CSS_SELECTOR, "tbody tr"):
            cells = row.find_elements(By.CSS_SELECTOR, "th, td")
            assert cells[0].get_attribute("scope") == "row"
            assert len(cells) == len(columns)


def test_what_scrolls_has_the_name_of_its_caption(report):
    report.open_details()
    for figure in report.all("figure.box"):
        caption = figure.find_element(By.TAG_NAME, "figcaption").text
        scrolled = figure.find_element(By.CSS_SELECTOR, ".scroll")
        assert caption
        assert scrolled.accessible_name == caption
        drawn = scrolled.find_elements(By.TAG_NAME, "svg")
        assert scrolled.aria_role == ("image" if drawn else "group")


def test_the_sources_unfold(report):
    details = report.one("#sorting details")
    commands = details.find_elements(By.TAG_NAME, "code")
    assert not any(command.is_displayed() for command in commands)
    details.find_element(By.TAG_NAME, "summary").click()
    assert all(command.is_displayed() for command in commands)
    expected = "directloss sort --methods=direct0 --recipe=paper --repetitions=200 --sizes=5,10"
    assert commands[0].text == expected


# Light and dark


@both_schemes
def test_the_button_goes_from_the_systems_theme_to_the_other_and_back(report, scheme):
    report.emulate(scheme)
    button = report.one("nav button")
    assert button.accessible_name == "Switch between light and dark"
    seen = [report.is_dark()]
    for _ in range(3):
        button.click()
        report.wait()
        seen.append(report.is_dark())
    system = scheme == "dark"
    assert seen == [system, not system, system, not system]


FILLS = """
return [...document.querySelectorAll(".drawing :is(text, tspan)")].filter((letter) => letter.textContent.trim())
  .map((letter) => getComputedStyle(letter).fill);
"""


def test_the_text_of_figures_has_the_colour_of_the_page(report):
    colours = []
    for _ in range(2):
        letters = report.run(FILLS)
        assert len(letters) > 200
        assert set(letters) == {report.run("return getComputedStyle(document.body).color")}
        colours.append(letters[0])
        report.one("nav button").click()
        report.wait()
    assert colours[0] != colours[1]


TEXT = "body :is(h1, h2, h3, p, a, button, th, td, small, figcaption, dt, dd, summary, code, text, tspan, span, label)"


@both_schemes
@pytest.mark.parametrize("pressed", [False, True], ids=["as the system", "by the button"])
def test_text_stands_out(report, scheme, pressed):
    """The contrast that WCAG 2 asks of small text."""
    report.emulate(scheme)
    if pressed:
        report.one("nav button").click()
    report.open_details()
    contrasts = report.run(CONTRAST, TEXT)
    assert len(contrasts) > 500
    assert min(contrasts) >= 4.5


CURVES = (
    CONTRAST.replace('"fill"', '"stroke"')
    .replace("element.textContent.trim()", 'getComputedStyle(element).stroke !== "none"')
    .replace("element.checkVisibility()", 'getComputedStyle(element).strokeOpacity === "1"')
)


@both_schemes
def test_curves_and_axes_stand_out(report, scheme):
    """The contrast that WCAG 2 asks of graphics."""
    report.emulate(scheme)
    contrasts = report.run(CURVES, ".drawing path")
    assert len(contrasts) > 50
    assert min(contrasts) >= 3


# A phone

OUTSIDE = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *:not(.scroll *, pre *)")]
  .filter((element) => element.getBoundingClientRect().right > width + 0.5)
  .map((element) => element.outerHTML.slice(0, 200));
"""


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_does_not_scroll_sideways(report, width):
    report.emulate(width=width)
    report.open_details()
    assert report.run("return innerWidth") == width
    root = "document.documentElement"
    assert report.run(f"return {root}.scrollWidth === {root}.clientWidth")
    assert report.run(OUTSIDE) == []


def test_wide_tables_and_figures_scroll_in_their_boxes_on_a_phone_only(report):
    boxes = "[...document.querySelectorAll('.scroll')]"
    wide = f"return {boxes}.map((box) => box.clientWidth && box.scrollWidth > box.clientWidth)"
    drawn = f"return {boxes}.map((box) => !!box.querySelector('svg:not(.narrow)'))"
    drawings = report.run(drawn)
    assert not any(scrolls for scrolls, is_drawn in zip(report.run(wide), drawings, strict=True) if is_drawn)
    report.emulate(width=360)
    report.wait()
    cues = report.run("return [...document.querySelectorAll('figure.wide')].length")
    scrolling = report.run(wide)
    assert all(scrolls for scrolls, drawn in zip(scrolling, drawings, strict=True) if drawn)
    assert any(scrolls for scrolls, drawn in zip(scrolling, drawings, strict=True) if not drawn)
    folded = report.run(f"return {boxes}.map((box) => !!box.closest('details:not([open])'))")
    narrow = report.run(f"return {boxes}.map((box) => !!box.querySelector('svg.narrow'))")
    assert any(narrow)
    assert not any(scrolls for scrolls, fits in zip(scrolling, narrow, strict=True) if fits)
    # Each that can be seen says that there is more.
    assert cues == sum(scrolls and not hidden for scrolls, hidden in zip(scrolling, folded, strict=True))


def test_the_names_of_rows_stay_in_sight_while_a_table_scrolls(report):
    report.emulate(width=360)
    box = report.one("#sorting figure:first-child .scroll")
    name = box.find_element(By.CSS_SELECTOR, "th[scope=row]")
    cell = box.find_element(By.CSS_SELECTOR, "tbody td")
    left = "return [...arguments].map((element) => element.getBoundingClientRect().left)"
    before = report.run(left, name, cell)
    report.run("arguments[0].scrollLeft = 150", box)
    assert report.run(left, name, cell) == pytest.approx([before[0], before[1] - 150], abs=1)
    assert report.run("return getComputedStyle(arguments[0]).backgroundColor", name) != "rgba(0, 0, 0, 0)"


def test_text_is_large_enough_on_a_phone(report):
    report.emulate(width=360)
    report.open_details()
    sizes = """return [...document.querySelectorAll("main :is(p, td, th, small, figcaption, dt, dd, code)")]
        .filter((element) => element.innerText).map((element) => parseFloat(getComputedStyle(element).fontSize))"""
    assert min(report.run(sizes)) >= 12
    shown = """return [...document.querySelectorAll(".drawing text")].filter((letter) => letter.textContent.trim())
        .map((letter) => [letter.getScreenCTM(), parseFloat(getComputedStyle(letter).fontSize)])
        .map(([{c, d}, size]) => Math.hypot(c, d) * size)"""  # also of turned text
    assert min(report.run(shown)) >= 7


# The keyboard

FOCUSED = """
const [active, style] = [document.activeElement, getComputedStyle(document.activeElement)];
const shown = active.matches("fieldset input") ? getComputedStyle(active.nextElementSibling) : style;
active.dataset.reached = true;
return [active.tagName, shown.outlineStyle !== "none" && parseFloat(shown.outlineWidth) > 0];
"""


def test_tab_reaches_everything_in_order_and_shows_where_it_is(report):
    reached = []
    for _ in range(120):
        report.press(Keys.TAB)
        tag, visible = report.run(FOCUSED)
        if tag == "BODY":
            break
        assert visible
        reached.append(tag)
    assert reached[: len(SECTIONS) + 1] == ["A"] * len(SECTIONS) + ["BUTTON"]
    # Of a group of radio buttons, Tab stops at the one that is chosen.
    wanted = "a, button, summary, .scroll, pre, input:not([type=radio]), input:checked"
    folded = "details:not([open]) :is(pre, .scroll)"
    left = f"[...document.querySelectorAll('{wanted}')].filter((e) => !e.dataset.reached && !e.matches('{folded}'))"
    assert report.run(f"return {left}.map((element) => element.outerHTML.slice(0, 100))") == []


def test_arrows_scroll_a_table_that_has_the_focus(report):
    report.emulate(width=360)
    box = report.one("#sorting figure:first-child .scroll")
    report.run("arguments[0].focus()", box)
    report.press(*[Keys.ARROW_RIGHT] * 3)
    report.driver.execute_async_script("setTimeout(arguments[0], 400)")
    assert report.run("return arguments[0].scrollLeft", box) > 0


def test_enter_follows_a_link_switches_the_theme_and_unfolds(report):
    report.press(Keys.TAB, Keys.ENTER)
    assert report.run("return location.hash") == "#sorting"
    before = report.is_dark()
    report.one("nav button").send_keys(Keys.ENTER)
    report.wait()
    assert report.is_dark() != before
    report.one("#audit .sources summary").send_keys(Keys.ENTER)
    assert report.one("#audit details.sources").get_property("open")


# The playground inside


def test_a_slider_moves_the_chart_and_the_numbers_stay_the_librarys(report):
    chart = "return [...document.querySelectorAll('.bar i')].map((bar) => bar.getBoundingClientRect().width)"
    report.one("[data-preset=tied]").click()
    report.wait()
    before = report.run(chart)
    assert_bars_are_as_long_as_their_numbers_say(report)
    report.control("sigma").send_keys(Keys.ARROW_RIGHT * 9)
    report.wait()
    assert report.state()["sigma"] == pytest.approx(1.45)
    assert report.run(chart) != before
    assert_bars_are_as_long_as_their_numbers_say(report)
    assert_computes_as_the_library(report)
    assert_shows_its_results(report)


def test_the_other_controls_work_inside_the_report_too(report):
    before = report.results()["estimated"]
    report.control("sides", "both").click()
    report.control("samples", "1000").click()
    report.control("epsilon").send_keys(Keys.ARROW_RIGHT * 5)
    report.wait()
    assert report.state()["sides"] == "both"
    assert report.results()["estimated"] != before
    assert_computes_as_the_library(report)
    assert_shows_its_results(report)

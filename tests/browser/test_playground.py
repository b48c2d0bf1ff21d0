"""The playground in headless Chromium: its numbers are the library's, and its controls reach them."""

import io
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest
import torch
from oracles import Estimate, ScoreFunction, assert_agrees
from playground_page import page
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tables import Row
from torch import Tensor

import directloss as dl
from directloss.noise.kernel import draw

ROW = Row("matching", dl.Matching(), (3, 3))
WRONG = [0.2, 3.1, 0.7, 0.4, 0.5, 2.6, 2.8, 0.1, 0.3]
TIED = [0.2, 0.3, 0.0, 0.1, 0.0, 0.3, 0.4, 0.1, 0.2]
HAMMING = [0.0, 1, 1, 1, 0, 1, 1, 1, 0]
RANKS = [0.0, 1, 2, 1, 0, 1, 2, 1, 0.5]
DEFAULT = {"scores": WRONG, "cost": HAMMING, "sigma": 1.0, "epsilon": -2.0, "sides": "one", "samples": 100, "seed": 5}
SETTINGS = {
    "default": {},
    "other sign": {"epsilon": 2.0, "seed": 0},
    "both sides": {"sides": "both", "sigma": 0.6, "samples": 10},
    "both sides, other sign": {"sides": "both", "epsilon": 0.7, "scores": TIED, "samples": 1000},
    "one sample": {"scores": TIED, "samples": 1, "seed": 4294967295},
    "two samples": {"scores": TIED, "samples": 2, "sigma": 3.0, "epsilon": 10.0, "cost": RANKS, "seed": 12345},
    "small step": {"scores": TIED, "epsilon": -0.05, "samples": 1000, "cost": RANKS, "sigma": 0.35},
    "no noise": {"sigma": 0.0, "epsilon": -2.8, "samples": 5},
    "no noise, no difference": {"sigma": 0.0, "epsilon": -0.3, "samples": 5},
}
every_setting = pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS.keys())


class Playground:
    """The page in the browser."""

    def __init__(self, driver: webdriver.Chrome):
        self.driver = driver

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def set(self, **changes: Any) -> dict[str, Any]:
        self.run("directlossPlayground.set(arguments[0])", changes)
        self.wait()
        return self.results()

    def wait(self) -> None:
        """Until the frame that shows the last change is drawn."""
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def results(self) -> dict[str, Any]:
        return self.run("return directlossPlayground.results()")

    def state(self) -> dict[str, Any]:
        return self.run("return directlossPlayground.state")

    def noise(self, seed: int, samples: int) -> Tensor:
        script = "const page = directlossPlayground; return [...page.gumbel(page.torchKey(arguments[0]), arguments[1])]"
        return tensor(self.run(script, seed, 9 * samples)).reshape(samples, 3, 3)

    def part(self, name: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, f'[data-part="{name}"]')

    def numbers(self, name: str) -> list[float]:
        """What a part shows, cell by cell."""
        cells = self.part(name).find_elements(By.CSS_SELECTOR, "td") or [self.part(name)]
        return [float(cell.text.replace("\u2212", "-").removesuffix(" %")) for cell in cells if cell.text]

    def control(self, name: str, value: str | None = None) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, f'[name="{name}"]' + (f'[value="{value}"]' if value else ""))

    def look(self) -> dict[str, str]:
        """The text and the marks of each panel."""
        self.wait()
        return {
            panel.find_element(By.CSS_SELECTOR, "h3").get_attribute("id"): panel.get_attribute("innerHTML")
            for panel in self.driver.find_elements(By.CSS_SELECTOR, "section.panel")
        }

    def emulate(self, scheme: str = "light", width: int = 1280) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.wait()


@pytest.fixture
def playground(driver, visit, tmp_path) -> Playground:
    """A fresh page."""
    file = tmp_path / "playground.html"
    file.write_text(page(), "utf-8")
    visit(file)
    opened = Playground(driver)
    opened.emulate()
    return opened


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def square(values: Any) -> Tensor:
    return tensor(values).reshape(3, 3)


# The numbers


@pytest.mark.parametrize("samples", [1, 2, 5, 1000])
@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1])
def test_a_seed_gives_the_draws_that_it_gives_the_library(playground, seed, samples):
    expected = dl.Gumbel().sample((samples, 3, 3), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(playground.noise(seed, samples), expected.double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("key", [0, 1, 2**32, 2**64 - 1, 0x0123456789ABCDEF])
def test_a_key_gives_the_kernels_draws(playground, key):
    expected = np.empty((1, 4000), np.float32)
    draw(expected, np.uint64(key), False, np.float32(1), 0, 1000, np.empty(0, np.float32), np.float32(1))
    drawn = playground.run("return [...directlossPlayground.gumbel(arguments[0], 4000)]", str(key))
    np.testing.assert_allclose(drawn, expected[0], rtol=0, atol=1e-5)


def assert_computes_as_the_library(playground: Playground) -> None:
    """The maximisers and the estimate, for the state the page is in."""
    setting, shown = playground.state(), playground.results()
    noise = playground.noise(setting["seed"], setting["samples"])
    scores, cost = square(setting["scores"]).requires_grad_(), square(setting["cost"])
    sigma = tensor(setting["sigma"]).requires_grad_()
    rule = {"epsilon": setting["epsilon"], "sides": setting["sides"]}
    dl.direct_loss(scores, cost, dl.Matching(), scale=sigma, noise=noise, **rule).backward()
    torch.testing.assert_close(square(shown["estimated"]["scores"]), scores.grad)
    torch.testing.assert_close(tensor(shown["estimated"]["sigma"]), sigma.grad)

    steps = [found["step"] for found in shown["maximisers"]]
    assert steps == ([0, rule["epsilon"]] if rule["sides"] == "one" else [0, rule["epsilon"], -rule["epsilon"]])
    solved = dl.Matching().solve_along((scores + sigma * noise).detach(), cost, steps)  # (T, S, 3, 3)
    for found, y in zip(shown["maximisers"], solved[:, 0], strict=True):
        assert shown["permutations"][found["permutation"]]["columns"] == y.argmax(-1).tolist()
        assert found["loss"] == pytest.approx((cost * y).sum().item())
    same = (solved[1] == solved[0 if rule["sides"] == "one" else 2]).flatten(1).all(1)
    assert shown["estimated"]["zeroShare"] == pytest.approx(same.double().mean().item())


@every_setting
def test_maximisers_and_estimate_are_the_librarys(playground, changes):
    playground.set(**DEFAULT | changes)
    assert_computes_as_the_library(playground)


@every_setting
def test_the_python_shown_prints_the_estimate_shown(playground, changes):
    shown = playground.set(**DEFAULT | changes)["estimated"]
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()):
        exec(playground.part("python").get_attribute("textContent"), names)
    torch.testing.assert_close(names["scores"].grad, square(shown["scores"]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(names["sigma"].grad, tensor(shown["sigma"]), rtol=1e-5, atol=1e-4)


def assert_shows_its_results(playground: Playground) -> None:
    setting, shown = playground.state(), playground.results()
    for name in ("estimated", "exact"):
        assert playground.numbers(name) == pytest.approx(shown[name]["scores"], abs=0.0051)
        assert playground.numbers(f"{name}-sigma") == pytest.approx([shown[name]["sigma"]], abs=0.0051)
    assert playground.numbers("zero-share") == pytest.approx([100 * shown["estimated"]["zeroShare"]], abs=0.051)
    cosine = playground.part("cosine").text
    assert cosine == "\u2013" if shown["cosine"] is None else float(cosine) == pytest.approx(shown["cosine"], abs=6e-4)
    rows = [row[name] for row in shown["permutations"] for name in ("loss", "probability", "gibbs")]
    assert playground.numbers("distribution") == pytest.approx(rows, abs=6e-4)
    assert playground.numbers("total-variation") == pytest.approx([shown["totalVariation"]], abs=6e-4)
    assert playground.numbers("expected-loss") == pytest.approx([shown["expectedLoss"]], abs=6e-4)
    for name, found in zip(("plain", "ahead", "behind"), shown["maximisers"], strict=False):
        assert playground.numbers(name) == pytest.approx(found["theta"], abs=0.0051)
        cells = playground.part(name).find_elements(By.CSS_SELECTOR, "td")
        ones = [entry % 3 for entry, cell in enumerate(cells) if "one" in cell.get_attribute("class").split()]
        assert ones == shown["permutations"][found["permutation"]]["columns"]
    assert playground.part("behind").is_displayed() == (setting["sides"] == "both")


@every_setting
def test_the_page_shows_its_results(playground, changes):
    playground.set(**DEFAULT | changes)
    assert_shows_its_results(playground)


def cosine(a: Tensor, b: Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), 0).item()


NOISY = {"wrong": (WRONG, HAMMING, 1.0), "tied": (TIED, HAMMING, 0.5), "other cost": (TIED, RANKS, 2.0)}


@pytest.mark.parametrize(("scores", "cost", "sigma"), NOISY.values(), ids=NOISY.keys())
def test_distribution_and_exact_gradients_agree_with_an_oracle(playground, scores, cost, sigma):
    """The oracle reweights 400,000 draws of its own, and integrates nothing out."""
    shown = playground.set(scores=scores, cost=cost, sigma=sigma)
    oracle = ScoreFunction.draw(ROW, square(scores), sigma, square(cost), 400_000, seed=1)

    def estimate(name: str) -> Estimate:
        parts = [shown["exact"], shown["exact"]["errors"]]
        return Estimate(*(tensor(np.ravel(part[name]).tolist()) for part in parts))

    gradient = oracle.gradient()
    assert_agrees(estimate("scores"), Estimate(gradient.mean[:9], gradient.error[:9]))
    assert_agrees(estimate("sigma"), Estimate(gradient.mean[9:], gradient.error[9:]))
    every = ROW.every.flatten(1)
    assert_agrees(estimate("probabilities"), Estimate.of((oracle.y @ every.mT == 3).double()))

    columns = ROW.every.argmax(-1).tolist()
    assert [row["columns"] for row in shown["permutations"]] == columns
    gibbs = torch.softmax(every @ tensor(scores) / sigma, 0)
    losses, probabilities = every @ tensor(cost), tensor(shown["exact"]["probabilities"])
    torch.testing.assert_close(tensor([row["gibbs"] for row in shown["permutations"]]), gibbs)
    torch.testing.assert_close(tensor([row["loss"] for row in shown["permutations"]]), losses)
    assert probabilities.sum().item() == pytest.approx(1)
    assert shown["totalVariation"] == pytest.approx((gibbs - probabilities).abs().sum().item() / 2)
    assert shown["expectedLoss"] == pytest.approx((losses @ probabilities).item())
    expected = cosine(square(shown["estimated"]["scores"]), square(shown["exact"]["scores"]))
    assert shown["cosine"] == pytest.approx(expected)


def test_without_noise_the_distribution_is_a_point_and_its_gradient_zero(playground):
    shown = playground.set(sigma=0)
    assert shown["exact"]["probabilities"] == [0, 0, 0, 1, 0, 0]
    assert [row["gibbs"] for row in shown["permutations"]] == [0, 0, 0, 1, 0, 0]
    assert shown["totalVariation"] == 0
    assert shown["exact"]["scores"] == [0] * 9
    assert shown["exact"]["sigma"] == 0
    assert shown["cosine"] is None


# The controls


def test_the_noise_slider_moves_everything(playground):
    before, sigma = playground.look(), playground.control("sigma")
    sigma.send_keys(Keys.ARROW_RIGHT)
    after = playground.look()
    assert playground.state()["sigma"] == pytest.approx(1.05)
    assert playground.numbers("sigma-value") == [1.05]
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"playground-{name}" for name in ("distribution", "maximisers", "gradient")}
    sigma.send_keys(Keys.END)
    assert playground.state()["sigma"] == 3
    sigma.send_keys(Keys.HOME)
    assert playground.state()["sigma"] == 0


def assert_bars_are_as_long_as_their_numbers_say(playground: Playground) -> None:
    shown = playground.results()
    bars = playground.driver.find_elements(By.CSS_SELECTOR, ".bar")
    for bar, row in zip(bars, shown["permutations"], strict=True):
        for tag, share in (("i", row["probability"]), ("b", row["gibbs"])):
            assert bar.find_element(By.TAG_NAME, tag).rect["width"] == pytest.approx(share * bar.rect["width"], abs=1)


def test_the_bars_are_as_long_as_their_numbers_say(playground):
    playground.set(scores=TIED)
    assert_bars_are_as_long_as_their_numbers_say(playground)


def test_the_noise_slider_follows_the_pointer(playground):
    slider = playground.control("sigma")
    ActionChains(playground.driver).click_and_hold(slider).move_by_offset(60, 0).release().perform()
    assert 1.5 < playground.state()["sigma"] < 3


def test_the_step_slider_moves_maximisers_and_estimate_only(playground):
    before = playground.look()
    playground.control("epsilon").send_keys(Keys.ARROW_RIGHT * 5)
    after = playground.look()
    assert playground.state()["epsilon"] == -2.7
    assert playground.numbers("epsilon-value") == [-2.7]
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"playground-maximisers", "playground-gradient"}
    for key, largest in ((Keys.HOME, 0.05), (Keys.END, 10)):
        playground.control("epsilon").send_keys(key)
        assert playground.state()["epsilon"] == -largest


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("sign", "1", {"epsilon": 2}), ("sides", "both", {"sides": "both"}), ("samples", "10", {"samples": 10})],
)
def test_a_choice_reaches_the_state(playground, name, value, expected):
    before = playground.results()
    playground.control(name, value).click()
    assert playground.state() == DEFAULT | expected
    assert playground.results()["estimated"] != before["estimated"]


def test_arrow_keys_move_between_choices(playground):
    playground.control("samples", "100").send_keys(Keys.ARROW_LEFT)
    assert playground.state()["samples"] == 10


def test_draw_again_takes_the_next_seed(playground):
    before = playground.results()
    playground.control("draw").click()
    playground.wait()
    assert playground.state()["seed"] == 6
    assert playground.control("seed").get_attribute("value") == "6"
    after = playground.results()
    assert after["maximisers"] != before["maximisers"]
    assert after["exact"] == before["exact"]


@pytest.mark.parametrize("name", ["scores", "cost"])
def test_a_number_typed_counts_and_nonsense_does_not(playground, name):
    entry = playground.part(name).find_elements(By.TAG_NAME, "input")[4]
    entry.send_keys(Keys.CONTROL + "a")
    entry.send_keys("-1.25")
    typed = [*DEFAULT[name][:4], -1.25, *DEFAULT[name][5:]]
    assert playground.state() == DEFAULT | {name: typed}
    entry.send_keys("e5")
    playground.wait()
    assert entry.get_attribute("aria-invalid") == "true"
    assert entry.get_attribute("value") == "-1.25e5"
    assert playground.state()[name] == typed
    entry.send_keys(Keys.TAB)
    playground.wait()
    assert entry.get_attribute("aria-invalid") is None
    assert entry.get_attribute("value") == "-1.25"


def test_presets_and_reset(playground):
    playground.set(cost=RANKS)
    losses = {}
    for preset in ("wrong", "tied", "right"):
        button = playground.driver.find_element(By.CSS_SELECTOR, f"[data-preset={preset}]")
        button.click()
        playground.wait()
        assert button.get_attribute("aria-pressed") == "true"
        losses[preset] = playground.part("prediction-loss").text
    playground.control("hamming").click()
    assert playground.state()["cost"] == HAMMING
    assert losses["right"] != losses["wrong"]
    assert playground.set()["expectedLoss"] < 0.5


@pytest.mark.parametrize(
    "changes", [{"sigma": -1}, {"epsilon": 0}, {"samples": 3}, {"seed": 0.5}, {"size": 4}], ids=str
)
def test_a_state_outside_the_controls_is_refused(playground, changes):
    script = "try { directlossPlayground.set(arguments[0]); } catch (error) { return error.message; }"
    assert "cannot be" in playground.run(script, changes)
    assert playground.state() == DEFAULT


def test_tab_reaches_every_control_and_each_has_a_name(playground):
    reached = set()
    for _ in range(40):
        ActionChains(playground.driver).send_keys(Keys.TAB).perform()
        active = playground.driver.switch_to.active_element
        reached.add(active.get_attribute("name") or active.get_attribute("data-preset") or active.tag_name)
        if active.tag_name in ("button", "input", "summary"):
            assert active.accessible_name
    controls = {"scores", "cost", "sigma", "epsilon", "sign", "sides", "samples", "seed", "draw", "hamming"}
    assert controls | {"wrong", "tied", "right", "summary"} <= reached


# The look


@pytest.mark.parametrize(
    "changes", [{}, {"sides": "both", "epsilon": 10, "scores": [-88.75] * 9, "samples": 1000}], ids=str
)
def test_a_phone_needs_no_sideways_scrolling(playground, changes):
    playground.emulate(width=360)
    playground.set(**changes)
    playground.driver.find_element(By.TAG_NAME, "summary").click()
    assert playground.run("return document.documentElement.scrollWidth") == 360
    outside = """return [...document.querySelectorAll(".playground *:not(pre *)")]
        .filter((element) => element.getBoundingClientRect().right > 360).map((element) => element.outerHTML)"""
    assert playground.run(outside) == []


CONTRAST = """
const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const luminance = (colour) => {
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((x) => x / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return colour === "rgba(0, 0, 0, 0)" && element.parentElement ? ground(element.parentElement) : colour;
};
const ink = (element) => getComputedStyle(element)[element instanceof SVGElement ? "fill" : "color"];
const seen = (element) => element.textContent.trim() && element.checkVisibility();
return [...document.querySelectorAll(arguments[0])].filter(seen).map((element) => {
  const [dark, bright] = [ink(element), ground(element)].map(luminance).sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
});
"""


def brightness(playground: Playground) -> float:
    colour = playground.run("return getComputedStyle(document.querySelector('.panel')).backgroundColor")
    return float(np.mean([int(x) for x in colour.removeprefix("rgb(").removesuffix(")").split(",")]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_attribute_overrides_it(playground, scheme):
    playground.emulate(scheme)
    assert (brightness(playground) < 128) == (scheme == "dark")
    for theme in ("light", "dark"):
        playground.run("document.documentElement.dataset.theme = arguments[0]", theme)
        assert (brightness(playground) < 128) == (theme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(playground, scheme):
    """The contrast that WCAG 2 asks of small text, also on the strongest colours of the maps."""
    playground.emulate(scheme)
    for sign in (1, -1):  # the strongest is negative, then positive
        playground.set(scores=TIED, cost=[sign * cost for cost in HAMMING], samples=1000)
        contrasts = playground.run(
            CONTRAST, ".playground :is(td, th, p, dt, dd, button, figcaption, small, legend, output)"
        )
        assert len(contrasts) > 60
        assert min(contrasts) > 4.5


def test_the_page_can_bring_its_own_colours(playground):
    playground.run(
        "document.head.insertAdjacentHTML('afterbegin', '<style>:root { --surface: rgb(1, 2, 3); }</style>')"
    )
    assert brightness(playground) == 2

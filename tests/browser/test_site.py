"""The documentation site in headless Chromium: it loads nothing from elsewhere, fits a phone, and can be searched."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pages import build_site
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[str]:
    """The address of the site."""
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def page(driver, site) -> Iterator[str]:
    """Until the test ends the browser must neither complain nor ask anybody else."""
    driver.get("about:blank")
    for log in ("browser", "performance"):
        driver.get_log(log)
    yield site
    assert driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []


@pytest.mark.parametrize("path", ["index", "concepts", "choosing", "custom", "commands", "paper", "api/losses"])
def test_pages_are_quiet_and_no_wider_than_a_phone(driver, page, path):
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    driver.get(f"{page}{path}.html")
    assert driver.execute_script("return document.documentElement.scrollWidth") == 390
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_link_to_code_leads_to_its_line(driver, page):
    driver.get(f"{page}paper.html")
    link = driver.find_element(By.XPATH, "//a[code='return torch.addcmul(scores, scale, noise)']")
    driver.get(link.get_attribute("href"))
    (line,) = driver.find_elements(By.CSS_SELECTOR, ":target")
    assert line.text.strip() == "return torch.addcmul(scores, scale, noise)"


def test_the_search_finds_a_name(driver, page):
    driver.get(f"{page}index.html")
    box = driver.find_element(By.CSS_SELECTOR, "input[name=query]")
    driver.execute_script("arguments[0].focus()", box)
    box.send_keys("suggest_epsilon")

    def found(driver):
        links = driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
        return any("api/judging" in link.get_attribute("href") for link in links)

    WebDriverWait(driver, 20).until(found)

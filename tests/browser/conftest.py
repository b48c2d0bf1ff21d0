"""One headless Chromium for all pages."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def driver(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    browser, service = shutil.which("chromium"), shutil.which("chromedriver")
    assert browser, "no chromium on the PATH; install Debian's chromium and chromium-driver"
    assert service, "no chromedriver on the PATH; install Debian's chromium and chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(service))
    started.get("about:blank")
    started.get_log("performance")  # what the browser's own first tab asked for
    yield started
    started.quit()


@pytest.fixture
def visit(driver) -> Iterator[Callable[[Path], None]]:
    """Open a file. Until the test ends it must neither complain nor ask for anything."""
    files: list[str] = []

    def open_file(file: Path) -> None:
        files.append(file.as_uri())
        driver.get(file.as_uri())

    yield open_file
    assert driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert set(files) <= set(asked)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []

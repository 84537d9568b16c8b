"""Headless Chromium of the distribution, for tests of pages."""

import json
import shutil

import pytest


def chromium(screen=None):
    """Starts a browser, which emulates a screen of so many pixels if they are given.

    The test is skipped where no browser is installed.
    """
    places = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in places:
        pytest.skip("needs the packages chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = places[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument("--window-size=1200,1600")  # a whole viewer of a report is on the screen
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(places[1]))
    if screen:
        resize(driver, *screen)
    return driver


def resize(driver, width, height):
    """Makes a browser emulate a screen of so many pixels."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )


def requested_urls(driver):
    """Returns the addresses that a browser has requested since the last call."""
    return [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in driver.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]

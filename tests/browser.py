"""Headless Chromium of the distribution, for tests of pages."""

import shutil

import pytest


def chromium(size=(1200, 1600)):
    """Starts a browser with a window of `size` pixels; skips the test where none is installed."""
    places = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in places:
        pytest.skip("needs the packages chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = places[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(places[1]))
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500},
    )
    return driver

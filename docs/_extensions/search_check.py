"""Searches a built site for words of the field: `python docs/_extensions/search_check.py SITE`.

Chromium opens the page of results for each query, and the first result has to be the expected page.
"""

import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

FIRST = {
    "semantic segmentation": "segmentation",
    "depth estimation": "segmentation",
    "PCA": "look_inside",
    "heatmap": "explain",
    "GPU": "devices",
    "feature extraction": "evaluation",
    "zero-shot": "families",
    "regression": "finetuning",
    "multi-label": "finetuning",
    "Core ML": "phones",
    "fine-tuning": "finetuning",
    "Colab": "gallery/index",
}
"""The page that each query should find first."""
DONE = "return !!document.querySelector('#search-results .search-summary')?.innerText"
RESULTS = "return [...document.querySelectorAll('#search-results li a')].map(each => each.href)"


def wrong_results(site: Path, driver: Any, expected: dict[str, str] = FIRST) -> list[str]:
    """Returns a line for each query whose first result is another page than the expected one."""
    from selenium.webdriver.support.ui import WebDriverWait

    wrong = []
    for query, page in expected.items():
        driver.get(f"{(site / 'search.html').resolve().as_uri()}?q={quote(query)}")
        WebDriverWait(driver, 30).until(lambda driver: driver.execute_script(DONE))
        root = site.resolve().as_uri()
        links = [link.removeprefix(f"{root}/") for link in driver.execute_script(RESULTS)]
        found = links[0].partition(".html")[0] if links else "no page"
        if found != page:
            wrong.append(f"{query}: expected {page} first, found {', '.join(links[:3])}.")
    return wrong


def browser() -> Any:
    """Starts the Chromium of the distribution, without a window; None if it is not installed."""
    places = [shutil.which(name) for name in ("chromium", "chromedriver")]
    try:
        from selenium import webdriver
    except ImportError:
        return None
    if None in places:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = places[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    return webdriver.Chrome(options, webdriver.ChromeService(places[1]))


if __name__ == "__main__":
    driver = browser()
    if driver is None:
        raise SystemExit(print("search not checked: needs selenium, chromium and chromedriver"))
    found = wrong_results(Path(sys.argv[1]), driver)
    driver.quit()
    print("\n".join(found) or f"{len(FIRST)} searches find their page")
    raise SystemExit(bool(found))

"""The versions in pyproject.toml are those that `make test-floors` runs."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_backend

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS = dict(
    line.split("==")
    for line in (ROOT / "constraints-floors.txt").read_text().splitlines()
    if "==" in line
)
TESTED = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)


def numbers(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in re.findall(r"\d+", version)]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def test_every_promised_floor_is_the_one_that_is_run():
    extras = PROJECT["optional-dependencies"]
    demands = [*PROJECT["dependencies"], *extras["jax"], *extras["tensorflow"], *extras["torch"]]
    for demand in demands:
        name, floor = re.match(r"([\w-]+)>=([\d.]+)", demand).groups()
        assert numbers(FLOORS[name]) == numbers(floor), demand


def test_the_ceiling_of_keras_is_above_the_tested_release():
    demand = next(d for d in PROJECT["dependencies"] if d.startswith("keras>="))
    ceiling = numbers(demand.split("<")[1])
    assert numbers(TESTED["keras"]) < ceiling
    assert numbers(TESTED["keras"])[:2] == (ceiling[0], ceiling[1] - 1)

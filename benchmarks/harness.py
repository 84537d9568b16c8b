"""Turns: every competitor resident in its own process, one computing at a time.

A round gives each peer one turn, in an order that changes from round to round. What
else ran on the machine during a turn is measured; a disturbed turn is repeated. The
result is, per peer, the median over rounds of its ratio to the anchor of the same round.
"""

import contextlib
import dataclasses
import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers import PEERS, UNITS

_TURN_SECONDS = {"forward": 3.0, "train": 6.0}
"""Long enough that the constant cost of a call of `predict` or `fit` is a small part."""
_MOST_OTHER_LOAD = 0.15
"""The load of other processes, as a share of one core, above which a turn is repeated."""
_REPEATS = 3
ROOT = Path(__file__).parents[1]
BESIDE = ", beside"
"""The end of the name of a peer whose code is another checkout's."""


def _environment(backend: str) -> dict[str, str]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    frugal = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**os.environ, **quiet, **frugal, **({"KERAS_BACKEND": backend} if backend else {})}


class PeerError(Exception):
    """A peer that failed, with the reason in one line."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """Seconds per step, the number of cores busy with other processes, and the peer's memory."""

    seconds: float
    other_load: float
    peak_mb: float = 0.0


class Resident:
    """A peer in a separate process, which waits for its turns."""

    def __init__(self, name: str, request: dict[str, Any], root: Path) -> None:
        """Starts the process in `root`, the checkout whose code it runs. See `wait_until_ready`."""
        missing = PEERS[name].missing()
        if missing:
            raise PeerError(f"{', '.join(missing)} not installed")
        command = [sys.executable, "-m", "benchmarks.worker", json.dumps(request | {"peer": name})]
        self._process = subprocess.Popen(
            command,
            env=_environment(PEERS[name].backend) | {"PYTHONPATH": str(root)},
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin and self._process.stdout  # noqa: S101  both are pipes
        self._input, self._output = self._process.stdin, self._process.stdout

    def wait_until_ready(self, seconds: float | None = None) -> None:
        """Waits until the peer is built and warm.

        Raises:
            PeerError: that failed, or took longer than `seconds`.
        """
        if not select.select([self._output], [], [], seconds)[0]:
            raise PeerError("it was not ready in time")
        self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._output.readline()
        if not line:
            raise PeerError(f"its process ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def run(self, steps: int) -> Turn:
        """Runs a turn and measures the load of other processes meanwhile."""
        before, start = _busy_seconds(), time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # `_answer` reports the end of the process
            self._input.write(f"{steps}\n")
            self._input.flush()
        answer = self._answer()
        wall = time.perf_counter() - start
        other = max(0.0, _busy_seconds() - before - answer["cpu"]) / wall
        return Turn(answer["seconds"] / steps, other, answer["peak_mb"])

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + getattr(times, "steal", 0.0))


@dataclasses.dataclass
class Result:
    """The turns and failures of a run, by peer, and the peer that the others are compared with."""

    turns: dict[str, list[Turn]]
    failed: dict[str, str]
    anchor: str = UNITS[0]

    def ratios(self, name: str) -> list[float]:
        """Seconds of the anchor over seconds of the peer, round by round: higher is faster.

        In the middle of a round one of both may have a turn more.
        """
        pairs = zip(self.turns.get(self.anchor, []), self.turns[name], strict=False)
        return [a.seconds / p.seconds for a, p in pairs]


def run(
    names: Sequence[str],
    request: dict[str, Any],
    rounds: int,
    say: Callable[[str], None],
    seconds: float | None = None,
    beside: Path | None = None,
    start_seconds: float | None = None,
    keep: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Starts the peers, then gives each its turn in every round.

    Args:
        names: the peers; the first is the anchor of the result.
        request: the task, model, image size, batch and dtype.
        rounds: turns of each.
        say: told what is being done.
        seconds: about how long a turn takes.
        beside: another checkout, in which every peer of keras_vit has a second process.
        start_seconds: who is not ready by then leaves the run; None waits.
        keep: gets what is known after every turn.
    """
    places = dict.fromkeys(names, ROOT)
    if beside:
        places |= {name + BESIDE: beside for name in names if name.startswith("keras_vit")}
    residents: dict[str, Resident] = {}
    result = Result({}, {}, names[0])
    end = None if start_seconds is None else time.monotonic() + start_seconds
    try:
        for name, root in places.items():
            say(f"starting {name}")
            with _noting(result, name, residents):
                residents[name] = Resident(name.removesuffix(BESIDE), request, root)
        for name in list(residents):
            say(f"waiting for {name}")
            with _noting(result, name, residents):
                left = None if end is None else max(0.0, end - time.monotonic())
                residents[name].wait_until_ready(left)
        steps, seconds = {}, seconds or _TURN_SECONDS[request["task"]]
        for name in list(residents):
            for turn in _guarded(residents, result, name, 1):
                steps[name] = max(1, round(seconds / max(turn.seconds, 1e-4)))
        order = random.Random(0)
        for number in range(rounds):
            turn_order = list(residents)
            order.shuffle(turn_order)
            for name in turn_order:
                say(f"round {number + 1} of {rounds}: {name}")
                for turn in _guarded(residents, result, name, steps[name]):
                    result.turns.setdefault(name, []).append(turn)
                keep(result)
    finally:
        for resident in residents.values():
            resident.close()
    return result


@contextlib.contextmanager
def _noting(result: Result, name: str, residents: dict[str, Resident]) -> Iterator[None]:
    """Notes why a peer fails, which then leaves the run."""
    try:
        yield
    except PeerError as failure:
        result.failed[name] = str(failure)
        result.turns.pop(name, None)
        if name in residents:
            residents.pop(name).close()


def _guarded(
    residents: dict[str, Resident], result: Result, name: str, steps: int
) -> Iterator[Turn]:
    """Yields the least disturbed of a few attempts; a peer that fails leaves the run."""
    with _noting(result, name, residents):
        best = residents[name].run(steps)
        for _ in range(_REPEATS):
            if best.other_load <= _MOST_OTHER_LOAD:
                break
            best = min(best, residents[name].run(steps), key=lambda turn: turn.other_load)
        yield best


Answers = dict[str, list[dict[str, float]]]
"""The answers of each measurement of `run_fresh`, one per round."""


def run_fresh(
    requests: dict[str, tuple[str, dict[str, Any]]],
    rounds: int,
    say: Callable[[str], None],
    keep: Callable[[Answers, dict[str, str]], None] = lambda answers, failed: None,
) -> tuple[Answers, dict[str, str]]:
    """Runs measurements of `benchmarks.fresh`, each in a new process, round by round.

    Args:
        requests: by name, the backend ("" for none) and what to ask for.
        rounds: how often each is measured.
        say: told what is being done.
        keep: gets what is known after every measurement.

    Returns:
        What each answered in every round, and why some did not.
    """
    answers: Answers = {}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for name, (backend, request) in requests.items():
            if name in failed:
                continue
            say(f"round {number + 1} of {rounds}: {name}")
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.fresh", json.dumps(request)],
                env=_environment(backend),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines() or [f"code {done.returncode}"]
                failed[name] = lines[-1][:300]
                answers.pop(name, None)
            else:
                answers.setdefault(name, []).append(json.loads(done.stdout))
            keep(answers, failed)
    return answers, failed

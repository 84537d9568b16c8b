"""One campaign: good inputs are changed, a process of its own reads them, outcomes are counted."""

import collections
import dataclasses
import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from weights.fuzz import answers
from weights.fuzz.mutations import BYTES, Mutation, chosen
from weights.fuzz.seeds import make

SECONDS = 20
"""After which reading counts as hung."""
OUTCOMES = ("tried", "clean", "right", "undetectable", "wrong", "crashed", "hung")
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "KERAS_BACKEND": "numpy"}
_WITH_CHECKSUM = (".npz",)
"""Of these formats, no change of a byte may alter a number unseen."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """An input that was read wrong, and what was done to make it.

    Args:
        outcome: `"wrong"`, `"crashed"` or `"hung"`.
        reason: what the reader said.
        changes: file and mutation, in their order.
        seed: of the campaign.
        number: of the input in it.
    """

    outcome: str
    reason: str
    changes: tuple[str, ...]
    seed: int
    number: int


def run(
    reader: str, count: int, seed: int = 0, keep: Path | None = None, first: int = 0
) -> tuple[collections.Counter[str], list[Fault]]:
    """Tries changed inputs and counts how reading them went.

    Args:
        reader: of `weights.fuzz.seeds.READERS`.
        count: of inputs.
        seed: for another campaign. An input depends on nothing but reader, seed and its number.
        keep: where a minimal input for each fault is written.
        first: number of the first input.

    Returns:
        How often each of `OUTCOMES` came, and the faults. `clean` is an error of keras_vit that
        names the file; `right` is the good input's answer; `undetectable` is another answer
        that the changed bytes allow; `wrong` is one that they do not.
    """
    counts: collections.Counter[str] = collections.Counter()
    faults = []
    with tempfile.TemporaryDirectory() as work:
        good = Path(work, "good")
        good.mkdir()
        make(reader, good)
        child = _Child(reader, good)
        try:
            for number in range(first, first + count):
                changed = Path(work, f"input{number}")
                changes = _change(good, changed, random.Random(f"{reader} {seed} {number}"))
                outcome, reason = _judge(child, changed, changes)
                counts[outcome] += 1
                counts["tried"] += 1
                if outcome in ("wrong", "crashed", "hung"):
                    changes = _fewest(child, good, changed, changes, outcome)
                    steps = tuple(change.name for change in changes)
                    faults.append(Fault(outcome, reason, steps, seed, number))
                    if keep is not None:
                        _keep(keep, reader, changed, faults[-1])
                shutil.rmtree(changed)
        finally:
            child.close()
    return counts, faults


@dataclasses.dataclass
class _Change:
    """One mutation of one file, which can be repeated; `verdict` says why it must be refused."""

    file: str
    mutation: Mutation
    seed: int
    verdict: str | None = None

    @property
    def name(self) -> str:
        return f"{self.file}: {self.mutation.__name__}({self.seed})"

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        if path.is_file() and not path.is_symlink():
            try:
                self.verdict = self.mutation(path, random.Random(self.seed))
            except Exception:  # the file was changed before, and its format cannot be changed more
                self.verdict = None


def _change(good: Path, changed: Path, rng: random.Random) -> list[_Change]:
    shutil.copytree(good, changed)
    files = sorted(p.name for p in good.iterdir() if p.suffix != ".md")
    changes = []
    for _ in range(1 if answers.FILE in files else rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(files)
        mutation = answers.chosen(rng) if name == answers.FILE else chosen(good / name, rng)
        changes.append(_Change(name, mutation, rng.randrange(2**32)))
        changes[-1].apply(changed)
    return changes


def _judge(child: "_Child", changed: Path, changes: list[_Change]) -> tuple[str, str]:
    outcome, reason = child.read(changed)
    if outcome == "refused":
        return "clean", reason
    if outcome != "different":
        must = next((c.verdict for c in changes if c.verdict), None)
        unharmed = len(changes) > 1 or must is None
        return (outcome, reason) if outcome != "right" or unharmed else ("wrong", must or "")
    if len(changes) == 1 and (reason_ := _why_wrong(changes[0], reason)):
        return "wrong", reason_
    return "undetectable", reason


def _why_wrong(change: _Change, reason: str) -> str | None:
    """Why an answer must not differ after one change; None if it may."""
    if change.verdict:
        return f"{change.verdict}, but: {reason}"
    if change.mutation is answers.of_files:
        return f"the server stated checksums, but: {reason}"
    has_checksum = change.mutation in BYTES and change.file.endswith(_WITH_CHECKSUM)
    if has_checksum and reason.startswith("numbers"):
        return f"a byte changed numbers unseen: {reason}"
    return None


def _fewest(
    child: "_Child", good: Path, changed: Path, changes: list[_Change], outcome: str
) -> list[_Change]:
    """The first single change that has the same outcome, applied; else all of them."""
    for fewer in [*([change] for change in changes), changes]:
        shutil.rmtree(changed)
        shutil.copytree(good, changed)
        for change in fewer:
            change.apply(changed)
        if fewer is changes or _judge(child, changed, fewer)[0] == outcome:
            break
    return fewer


def _keep(folder: Path, reader: str, changed: Path, fault: Fault) -> None:
    name = re.sub(r"\W+", "_", reader)
    place = folder / f"{name}-{fault.seed}-{fault.number}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(changed, place / "input", symlinks=True)
    (place / "fault.json").write_text(json.dumps(dataclasses.asdict(fault), indent=2) + "\n")


class _Child:
    """The process that reads; a new one after each that died or hung."""

    def __init__(self, reader: str, good: Path) -> None:
        self._command = [sys.executable, "-m", "weights.fuzz.child", reader, str(good)]
        self._process: subprocess.Popen[str] | None = None

    def read(self, folder: Path) -> tuple[str, str]:
        """How reading a folder went, and why."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], SECONDS)[0]:
            self.close()
            return "hung", f"no answer after {SECONDS} s"
        line = process.stdout.readline()
        if not line:
            status = process.wait()
            self.close()
            return "crashed", f"the process ended with status {status}"
        outcome, reason = json.loads(line)
        return outcome, reason

    def _start(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | _ENVIRONMENT,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{' '.join(self._command)} cannot read the good input.")
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None

"""Commands called in this process as a shell calls them."""

import contextlib
import io
import socket

import numpy as np
import pytest
from PIL import Image

from keras_vit import cli
from tests.refusals import World


class RefusedError(Exception):
    """What a command says if its status is 2."""


class InterruptedCommandError(Exception):
    """What a command says if its status is 130."""


class Shell(World):
    """A folder `here` with the image `cat/digit.png`, in which commands are typed."""

    def __init__(self, path, patch) -> None:
        super().__init__(path)
        self.patch, self.here = patch, path / "here"
        (self.here / "cat").mkdir(parents=True)
        self.image = self.here / "cat" / "digit.png"
        Image.fromarray(np.zeros((8, 8), "uint8")).save(self.image)
        patch.chdir(self.here)
        patch.setenv("KERAS_BACKEND", "torch")  # which a command names, and does not import

    def type(self, line):
        """Runs a command, which opens no connection, and writes no file if it is refused."""
        before = sorted(self.path.rglob("*"))
        words = [w.format(image=self.image, here=self.here, path=self.path) for w in line.split()]
        with contextlib.redirect_stderr(io.StringIO()) as stream, pytest.MonkeyPatch.context() as p:
            p.setattr(socket.socket, "connect", pytest.fail)
            status = cli.main([word.strip("'") for word in words])
        said = stream.getvalue()
        assert (said.count("\n"), sorted(self.path.rglob("*"))) == (1, before)
        raise {2: RefusedError, 130: InterruptedCommandError}[status](said.strip())


@pytest.fixture
def world(tmp_path, monkeypatch):
    return Shell(tmp_path, monkeypatch)


@pytest.fixture
def run(capsys):
    """Runs a command; returns its output on stdout and stderr."""

    def run(*words, status=0):
        assert cli.main([str(word) for word in words]) == status
        return capsys.readouterr()

    return run

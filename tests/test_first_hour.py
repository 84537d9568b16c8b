"""The programs and commands of README and start page are run in their order, and compared."""

import subprocess
import sys

import pytest

from weights import first_hour

PAGE = """
```console
$ pip install "keras-vit-zoo[jax]"
$ pip install \\
    "keras-vit-zoo[jax,figures]"   # for maps
```
```console
$ pip install "keras-vit-zoo[tensorflow]"
```

    export KERAS_BACKEND=jax
    keras-vit doctor         # lists the packages

```python
print("8", 0.91)
print(9)
```

```text
8  0...
9
```

```python
keras_vit.upload_preset("hf://me/mine", "mine")
```

```console
$ keras-vit doctor
$ keras-vit list --variant vit_b16  # such as vit_b16.augreg_i21k_224
$ cd elsewhere
```
```text
name  classes
```
"""


class Fresh:
    """Stands for an environment; programs print what they would."""

    def __init__(self, **answers):
        self.answers, self.done = {"doctor": "kind\n", "list": "name\tclasses\n", **answers}, []

    def install(self, *packages):
        self.done.append(packages)

    def run(self, program, *arguments, **variables):
        assert variables["KERAS_VIT_BUCKET"].startswith("http://127.0.0.1:")
        if program == "sh":
            self.done.append(arguments[1].partition(" #")[0].strip())
            return self.answers[arguments[1].split()[1]]
        if "OFFICIAL" in arguments[1]:
            self.done.append(arguments[3:])
            return ""
        return subprocess.check_output([sys.executable, "-c", arguments[1]], text=True)


def test_steps_run_as_printed_for_the_backend_that_is_tried(tmp_path):
    """A tab for another backend and steps that need the Hub are skipped; outputs are compared."""
    fresh = Fresh()
    count = first_hour.follow(fresh.run, fresh.install, "torch", tmp_path, PAGE)
    assert fresh.done == [
        ("keras-vit-zoo[torch]",),
        ("vit_b16.augreg_i21k_224",),
        ("keras-vit-zoo[torch,figures]",),
        "keras-vit doctor",
        "keras-vit doctor",
        "keras-vit list --variant vit_b16",
    ]
    assert count == 5


def test_another_output_than_the_page_shows_is_an_error(tmp_path):
    fresh = Fresh(list="name\tpixels\n")
    with pytest.raises(
        AssertionError, match=r"(?s)list --variant vit_b16[^\n]*\n.*name  classes.*pixels"
    ):
        first_hour.follow(fresh.run, fresh.install, "jax", tmp_path, PAGE)
    fresh = Fresh(list="name\tpixels\n")
    first_hour.follow(fresh.run, fresh.install, "openvino", tmp_path, PAGE, whole=False)
    assert fresh.done[-1] == "keras-vit doctor"


def test_the_pages_install_classify_and_train():
    """README and start page have steps of each kind."""
    for page in first_hour.PAGES:
        found = [*first_hour.steps(page.read_text())]
        commands = [command for step in found for command in step.commands]
        assert commands[0].startswith('pip install "keras-vit-zoo[jax,')
        assert any(command.startswith("keras-vit finetune") for command in commands)
        assert any("from_preset" in step.program for step in found if step.program)


def test_the_files_are_served_as_a_package_index(tmp_path):
    """pip finds a wheel by its name on the page that lists its folder."""
    (tmp_path / "dist").mkdir()
    wheel = tmp_path / "dist" / "keras_vit_zoo-9.9-py3-none-any.whl"
    wheel.touch()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "keras-vit-zoo").symlink_to(tmp_path / "dist")
    with first_hour.served(tmp_path / "index") as address:
        words = f"index versions keras-vit-zoo --isolated --index-url {address}"
        command = [sys.executable, "-m", "pip", *words.split()]
        found = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
    assert "keras-vit-zoo (9.9)" in found

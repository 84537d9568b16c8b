"""The program for torch in docs/devices.md runs."""

import re

import pytest

from tests.distribution.programs import ROOT, TORCHRUN, run

pytestmark = pytest.mark.every_backend


# ddp is for torch.
@pytest.mark.on_backend("torch")
def test_the_program_of_the_page_runs_in_two_processes(tmp_path):
    """As it stands on the page, under torchrun."""
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    section = page.split("## torch\n")[1]
    (tmp_path / "train.py").write_text(re.findall(r"```py\n(.*?)```", section, re.DOTALL)[0])
    run(*TORCHRUN, "train.py", cwd=tmp_path)
    assert (tmp_path / "preset" / "config.json").exists()

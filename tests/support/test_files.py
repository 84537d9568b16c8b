"""Files and folders are written whole or not at all, and no temporary file stays."""

import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keras_vit.errors import PresetError
from keras_vit.support.files import replace_file, replace_folder, room_checked, write_json
from tests.processes import python
from tests.runs import times

pytestmark = pytest.mark.without_backend

DIES = """
import os, signal, sys
from pathlib import Path
from keras_vit.errors import PresetError
from keras_vit.support.files import replace_folder, replace_file

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def die(code: str, *arguments: object) -> None:
    """Runs code in a process that must kill itself."""
    process = python(DIES + code, *arguments)
    assert process.returncode == -signal.SIGKILL, process.stderr


def write(place, text):
    """Writes a folder with one file."""
    with replace_folder(place, ["a"], PresetError) as new:
        (new / "a").write_text(text)


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_whole_or_absent(tmp_path):
    """Also after an exception; the file has the default permissions."""
    path = tmp_path / "new" / "x.json"
    write_json(path, [1])
    assert path.read_text() == "[\n  1\n]\n"
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    with pytest.raises(RuntimeError), replace_file(path) as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    assert path.read_text() == "[\n  1\n]\n"
    assert names(path.parent) == ["x.json"]


@pytest.mark.skipif(os.name == "nt", reason="needs locks on folders")
def test_the_next_write_removes_the_temporary_files_of_a_killed_writer(tmp_path):
    """Temporary files of other targets, and files with similar names, stay."""
    path = tmp_path / "x.json"
    mine = tmp_path / ".x.json.backup1.d"
    mine.mkdir()
    (tmp_path / ".x.json.abcdefgh.unfinished").write_text("a file of another program")
    for name in ("x.json", "x.json.part"):
        code = "with replace_file(sys.argv[1]) as new: new.write_text('half'); die()"
        die(code, tmp_path / name)
    assert not path.exists() and len(names(tmp_path)) == 4
    write_json(path, {})
    stay = [".x.json.abcdefgh.unfinished", ".x.json.backup1.d", "x.json"]
    assert [name for name in names(tmp_path) if "part" not in name] == stay
    assert len(names(tmp_path)) == 4
    write_json(tmp_path / "x.json.part", {})
    assert names(tmp_path) == [*stay, "x.json.part"]


def test_of_two_concurrent_writers_the_last_to_finish_wins(tmp_path):
    """Neither removes the temporary file of the other."""
    path = tmp_path / "x"
    with replace_file(path) as first:
        first.write_text("first")
        with replace_file(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert names(tmp_path) == ["x"]


def test_concurrent_writers_of_one_folder_all_succeed(tmp_path):
    """The folder of one of the four threads stays, whole."""
    place = tmp_path / "preset"

    with ThreadPoolExecutor(4) as threads:  # `list` raises what a thread has raised
        list(threads.map(lambda k: write(place, str(k)), [0, 1, 2, 3] * times(10, 40)))
    assert (place / "a").read_text() in "0123"
    assert names(tmp_path) == ["preset"]


@pytest.mark.skipif(os.name == "nt", reason="needs locks on folders")
def test_the_old_folder_is_restored_after_a_kill_between_two_renames(tmp_path):
    """The next write restores it, even if that write fails."""
    place = tmp_path / "preset"
    write(place, "old")
    die(
        "with replace_folder(sys.argv[1], ['a'], PresetError) as new:\n"
        "    (new / 'a').write_text('new')\n"
        "    rename = Path.rename\n"
        "    Path.rename = lambda *paths: die() if paths[0] == new else rename(*paths)",
        place,
    )
    assert not place.exists()
    with pytest.raises(RuntimeError), replace_folder(place, ["a"], PresetError):
        raise RuntimeError
    assert (place / "a").read_text() == "old"
    assert names(tmp_path) == ["preset"]


def test_the_old_folder_stays_if_the_new_one_cannot_be_renamed(tmp_path, monkeypatch):
    """The error of the system is raised, and the old folder is whole and in place."""
    place = tmp_path / "preset"
    write(place, "old")
    rename = Path.rename

    def broken(path, target):
        if path.name == "new":
            raise OSError("broken")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(OSError, match="broken"):
        write(place, "new")
    assert (place / "a").read_text() == "old"
    assert names(tmp_path) == ["preset"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot be asked")
def test_a_library_that_fails_on_a_full_disk_raises_the_error_of_the_disk(tmp_path):
    """Where there is room, its own error is raised."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most, error in ((1000, OSError), (limits[0], RuntimeError)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            with pytest.raises(error), room_checked(tmp_path, 5000):
                raise RuntimeError("unexpected pos 64 vs 0")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == []

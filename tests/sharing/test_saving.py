"""Presets that are replaced while they are read or written; `tests.fuzz.kills` kills saves."""

import threading

import pytest

from keras_vit import checkpoints
from keras_vit.checkpoints.opening import open_source
from keras_vit.files import OpenFolder
from keras_vit.sources.source import Source
from tests.helpers import tiny


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors"])
def test_a_preset_that_is_replaced_while_it_is_opened_gives_the_new_preset(
    tmp_path, monkeypatch, lost
):
    """The writer has removed a file of the old folder already."""
    place = tmp_path / "preset"
    for word in ("old", "new"):
        tiny(provenance={"word": word}).save_to_preset(tmp_path / word)
    (tmp_path / "old").rename(place)
    sizes = OpenFolder.sizes

    def replaced_meanwhile(folder):
        if (tmp_path / "new").exists():
            place.rename(tmp_path / "old")
            (tmp_path / "new").rename(place)
            (tmp_path / "old" / lost).unlink()
        return sizes(folder)

    monkeypatch.setattr(OpenFolder, "sizes", replaced_meanwhile)
    with open_source(Source.of(place)) as opened:
        assert opened.preset.provenance["word"] == "new"


def test_two_savers_at_one_folder_all_succeed(tmp_path):
    """The folder is the preset of one of the two threads, and nothing stands beside it."""
    models = [tiny(num_classes=2), tiny(num_classes=3)]
    failures = []

    def save(model):
        try:
            for _ in range(10):
                model.save_to_preset(tmp_path / "preset")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=[model]) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with open_source(checkpoints.Source.of(tmp_path / "preset")) as opened:
        assert opened.preset.config in [model.config for model in models]
        assert opened.reader.read("head/bias").shape == (opened.preset.config.num_classes,)
    assert [path.name for path in tmp_path.iterdir()] == ["preset"]

"""`upload_preset` uploads whole, checked presets in one commit, with a model card."""

import shutil

import pytest
from huggingface_hub import ModelCard

from keras_vit import VisionTransformer, upload_preset
from keras_vit.errors import PresetError
from keras_vit.presets.model_card import model_card
from keras_vit.presets.preset_config import PresetConfig
from tests.helpers import random_tiny, tiny
from tests.plain import raises
from tests.presets.hub_server import TOKEN

ADDRESS = "hf://us/flowers"
NAMES = {"config.json", "model.safetensors", "README.md"}
RESULT = {"dataset_type": "us/flowers", "dataset_name": "Flowers", "dataset_split": "test"}
CARD = {
    "description": "Reads flowers: *well*, mostly.",
    "license": "cc-by-4.0",
    "datasets": ["us/flowers"],
    "tags": ["flowers"],
    "metrics": [{**RESULT, "metric_type": "accuracy", "metric_value": 0.93}],
}


@pytest.fixture(autouse=True)
def token(hub, monkeypatch):
    """The environment has a token for the Hub."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The preset folder of a model with labels, which `folder` copies."""
    folder = tmp_path_factory.mktemp("kept") / "flowers"
    model = random_tiny(class_names=[*"abcde"], provenance={"source": "nowhere"})
    model.save_to_preset(folder, card=CARD)
    return folder


@pytest.fixture
def folder(kept, tmp_path):
    """A copy of the preset folder, which a test may change."""
    return shutil.copytree(kept, tmp_path / "flowers")


def test_a_new_repository_has_the_preset_in_one_commit(hub, folder):
    """The uploaded model card names the repository. Uploading again makes no commit."""
    url = upload_preset(ADDRESS, folder, commit_message="Flowers")
    repo = hub.repos["us/flowers"]
    assert url == f"{hub.endpoint}/us/flowers/commit/{repo.branches['main']}"
    assert (repo.messages, repo.private) == (["", "Flowers"], False)
    uploaded = dict(repo.files())
    assert set(uploaded) == NAMES | {".gitattributes"}
    for name in NAMES - {"README.md"}:
        assert uploaded[name] == (folder / name).read_bytes()
    assert b'VisionTransformer.from_preset("hf://us/flowers")' in uploaded["README.md"]
    hub.requests.clear()
    assert upload_preset(ADDRESS, folder) == url
    assert hub.requests == ["GET /api/models/us/flowers"]


def test_a_private_repository_is_created(hub, folder, monkeypatch):
    """By `token=`, before that of the environment; `private=True` refuses a public repository."""
    monkeypatch.setenv("HF_TOKEN", "hf_" + "b" * 34)
    with raises(PresetError, "access refused (401", " Log in with `hf auth login`"):
        upload_preset(ADDRESS, folder)
    upload_preset(ADDRESS, folder, private=True, token=TOKEN)
    repo = hub.repos["us/flowers"]
    assert repo.private
    repo.private = False
    with raises(PresetError, "private=True, but the repository exists and is public"):
        upload_preset(ADDRESS, folder, private=True)


def test_overwriting_other_files_needs_overwrite_true(hub, folder, tmp_path):
    """An edited README counts too."""
    upload_preset(ADDRESS, folder)
    repo = hub.repos["us/flowers"]
    before = dict(repo.files())
    random_tiny(num_classes=2).save_to_preset(tmp_path / "other")
    with raises(PresetError, "has another config.json, ", "Give overwrite=True"):
        upload_preset(ADDRESS, tmp_path / "other")
    assert repo.files() == before
    upload_preset(ADDRESS, tmp_path / "other", overwrite=True)
    assert VisionTransformer.from_preset(ADDRESS).config.num_classes == 2
    repo.commit({"README.md": b"# Edited by hand"})
    with raises(PresetError, "has another README.md"):
        upload_preset(ADDRESS, tmp_path / "other")


LICENSE = b'{"errors": [{"message": "license: expected a text"}], "warnings": []}'


def test_the_next_call_completes_a_failed_upload(hub, folder):
    """The preset is in one commit."""
    for where, fault, message in (
        ("yaml", {"status": 400, "body": LICENSE}, "README.md: "),
        ("commit", {"status": 503}, "the Hub is busy or down (503"),
    ):
        hub.fail(where, **fault)
        with raises(PresetError, message):
            upload_preset(ADDRESS, folder)
        hub.faults.clear()
    assert not NAMES & set(hub.repos["us/flowers"].files())
    upload_preset(ADDRESS, folder)
    assert len(hub.repos["us/flowers"].messages) == 2


# The model card


def test_the_card_has_the_metadata_of_the_user_and_of_the_model(hub, folder, tmp_path):
    """huggingface_hub reads and validates them; a derived model names the base model."""
    upload_preset(ADDRESS, folder)
    (folder / "uploaded.md").write_bytes(hub.repos["us/flowers"].files()["README.md"])
    card = ModelCard.load(folder / "uploaded.md")
    card.validate()
    stated = {
        **{key: CARD[key] for key in ("license", "datasets")},
        "library_name": "keras-vit-zoo",
        "pipeline_tag": "image-classification",
        "metrics": ["accuracy"],
        "tags": ["flowers", "keras", "vision-transformer"],
    }
    assert stated.items() <= card.data.to_dict().items()
    (result,) = card.data.eval_results
    assert (result.dataset_split, result.metric_value) == ("test", 0.93)
    assert CARD["description"] in card.text and "- source: nowhere" in card.text
    VisionTransformer.from_preset(ADDRESS, num_classes=2).save_to_preset(tmp_path / "mine")
    assert ModelCard.load(tmp_path / "mine" / "README.md").data.base_model == "us/flowers"
    VisionTransformer.from_preset("vit_digits").save_to_preset(tmp_path / "digits")
    assert ModelCard.load(tmp_path / "digits" / "README.md").data.license == "apache-2.0"


def test_bad_fields_of_a_card_write_no_file(tmp_path):
    with raises(PresetError, "unknown field 'licence'"):
        random_tiny().save_to_preset(tmp_path / "mine", card={"licence": "mit"})
    assert not list(tmp_path.iterdir())


def test_the_card_tells_features_values_and_classes_apart():
    """A reader calls `classify` only where it does not refuse."""
    config = tiny(num_classes=5).config
    features = model_card("x", PresetConfig(config.replace(num_classes=0)))
    assert "pipeline_tag: image-feature-extraction" in features
    assert "A Vision Transformer encoder without a classification head" in features
    values = model_card("x", PresetConfig(config, task="regression"))
    assert "regression with 5 outputs" in values and "model.predict(" in values
    assert "classify" not in features + values


def test_the_card_obeys_no_provenance(tmp_path):
    """Markup of strangers is text, also in a preset that is saved again."""
    told = {"note": "<script>x</script> [safe](http://evil)", "a\n# b": "`c` \x1b[2J"}
    tiny(provenance=told).save_to_preset(tmp_path / "x")
    VisionTransformer.from_preset(tmp_path / "x").save_to_preset(tmp_path / "y")
    text = (tmp_path / "y" / "README.md").read_text()
    assert r"- note: \<script\>x\</script\> \[safe\](http://evil)" in text
    assert "- a\\\\n\\# b: \\`c\\` \\\\x1b\\[2J" in text
    assert "\x1b" not in text

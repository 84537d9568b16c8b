"""`upload_preset` uploads whole, checked presets in one commit."""

import shutil

import pytest
from huggingface_hub import ModelCard

from keras_vit import VisionTransformer, upload_preset
from keras_vit.errors import CheckpointError, PresetError
from keras_vit.presets.model_card import model_card
from tests.helpers import random_tiny
from tests.plain import edit_json, raises
from tests.presets.hub_server import TOKEN

NAMES = {"config.json", "model.safetensors", "README.md"}

CARD = {
    "description": "Reads flowers: *well*, mostly.",
    "license": "cc-by-4.0",
    "datasets": ["us/flowers"],
    "tags": ["flowers"],
    "metrics": [
        {
            "dataset_type": "us/flowers",
            "dataset_name": "Flowers",
            "dataset_split": "test",
            "metric_type": "accuracy",
            "metric_value": 0.93,
        }
    ],
}


@pytest.fixture(autouse=True)
def token(hub, monkeypatch):
    """The environment has a token for the Hub."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.fixture(scope="module")
def model():
    """A small model with labels."""
    return random_tiny(class_names=["a", "b", "c", "d", "e"], provenance={"source": "nowhere"})


@pytest.fixture(scope="module")
def kept(model, tmp_path_factory):
    """The preset folder of the model, which `folder` copies."""
    folder = tmp_path_factory.mktemp("kept") / "flowers"
    model.save_to_preset(folder, card=CARD)
    return folder


@pytest.fixture
def folder(kept, tmp_path):
    """A copy of the preset folder, which a test may change."""
    return shutil.copytree(kept, tmp_path / "flowers")


def files_at(hub, repo="us/flowers", branch="main") -> dict[str, bytes]:
    """The files of a branch."""
    actual = hub.repos[repo]
    return actual.commits[actual.branches[branch]]


def test_a_new_repository_has_the_preset_in_one_commit(hub, folder):
    """The uploaded model card names the repository."""
    url = upload_preset("hf://us/flowers", folder, commit_message="Flowers")
    repo = hub.repos["us/flowers"]
    assert url == f"{hub.endpoint}/us/flowers/commit/{repo.branches['main']}"
    assert (repo.messages, repo.private) == (["", "Flowers"], False)
    uploaded = files_at(hub)
    assert set(uploaded) == NAMES | {".gitattributes"}
    for name in NAMES - {"README.md"}:
        assert uploaded[name] == (folder / name).read_bytes()
    assert b'VisionTransformer.from_preset("hf://us/flowers")' in uploaded["README.md"]


def test_a_private_repository_and_a_branch_are_created(hub, folder):
    """`private=True` for an existing public repository is refused."""
    upload_preset("hf://us/flowers@trial", folder, private=True)
    assert hub.repos["us/flowers"].private
    assert not NAMES & set(files_at(hub))
    assert set(files_at(hub, branch="trial")) >= NAMES
    upload_preset("hf://us/flowers@second", folder)
    assert set(files_at(hub, branch="second")) >= NAMES
    hub.repos["us/flowers"].private = False
    with pytest.raises(PresetError, match="private=True, but the repository is there and public"):
        upload_preset("hf://us/flowers", folder, private=True)


def test_uploading_the_same_files_again_makes_no_commit(hub, folder):
    """The listing of the repository is the only request."""
    first = upload_preset("hf://us/flowers", folder)
    hub.requests.clear()
    assert upload_preset("hf://us/flowers", folder) == first
    assert hub.requests == ["GET /api/models/us/flowers"]


def test_overwriting_other_files_needs_overwrite_true(hub, folder, tmp_path):
    """An edited README counts too."""
    upload_preset("hf://us/flowers", folder)
    before = dict(files_at(hub))
    random_tiny(num_classes=2).save_to_preset(tmp_path / "other")
    with pytest.raises(PresetError, match="holds another config.json, .*Give overwrite=True"):
        upload_preset("hf://us/flowers", tmp_path / "other")
    assert files_at(hub) == before
    upload_preset("hf://us/flowers", tmp_path / "other", overwrite=True)
    assert VisionTransformer.from_preset("hf://us/flowers").config.num_classes == 2
    hub.repos["us/flowers"].commit({"README.md": b"# Edited by hand"})
    with pytest.raises(PresetError, match=r"holds another README.md"):
        upload_preset("hf://us/flowers", tmp_path / "other")


REQUESTS = ["GET /api/models", "^PUT"]
REQUESTS += [f"POST .*{place}" for place in ("/api/repos", "preupload", "batch", "commit")]


@pytest.mark.parametrize(
    ("where", "status", "message"),
    [
        *((where, 503, "the Hub is busy or down .503") for where in REQUESTS),
        ("^PUT", 403, "access refused .403"),
    ],
)
def test_the_next_call_completes_a_failed_upload(where, status, message, hub, folder):
    """At any request; the preset is in one commit."""
    hub.fail(where, status=status)
    with pytest.raises(PresetError, match=message):
        upload_preset("hf://us/flowers", folder)
    assert "us/flowers" not in hub.repos or not NAMES & set(files_at(hub))
    hub.faults.clear()
    hub.requests.clear()
    upload_preset("hf://us/flowers", folder)
    assert set(files_at(hub)) >= NAMES
    assert len(hub.repos["us/flowers"].messages) == 2
    assert "commit" not in where or not hub.seen("^PUT")  # the weights have arrived before


def test_a_commit_of_another_user_during_the_upload_is_not_lost(hub, folder, monkeypatch):
    """The upload is refused with status 412."""
    upload_preset("hf://us/flowers", folder)
    repo = hub.repos["us/flowers"]
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    first = repo.branches["main"]
    from huggingface_hub import HfApi

    looked = HfApi.model_info

    def look_then_another_commits(*args, **kwargs):
        info = looked(*args, **kwargs)
        if info.sha == first:
            repo.commit({"other.txt": b"other"})
        return info

    monkeypatch.setattr(HfApi, "model_info", look_then_another_commits)
    with pytest.raises(PresetError, match="412"):
        upload_preset("hf://us/flowers", folder, overwrite=True)
    assert "other.txt" in files_at(hub)


def test_a_bad_token_is_refused_with_the_way_to_log_in(hub, folder, monkeypatch):
    """`token=` takes precedence over the environment."""
    monkeypatch.setenv("HF_TOKEN", "hf_" + "b" * 34)
    with pytest.raises(PresetError, match="access refused .401.* Log in with `hf auth login`"):
        upload_preset("hf://us/flowers", folder)
    assert upload_preset("hf://us/flowers", folder, token=TOKEN)


def test_metadata_that_the_hub_refuses_name_the_readme(hub, folder):
    """Before any file is uploaded."""
    (folder / "README.md").write_text("---\nlicense: [3]\n---\n# Flowers\n")
    with pytest.raises(PresetError, match='README.md: .*\n.*"license" must be of type str'):
        upload_preset("hf://us/flowers", folder)
    assert set(files_at(hub)) == {".gitattributes"}


def damaged(folder, name):
    """Damages a preset folder in the way `name`."""
    if name == "missing":
        (folder / "README.md").unlink()
    elif name == "foreign":
        (folder / "thesis.tex").touch()
    elif name == "link":
        (folder / "README.md").unlink()
        (folder / "README.md").symlink_to("/etc/hostname")
    elif name == "latin":
        (folder / "README.md").write_bytes(b"\xff")
    elif name == "weights":
        edit_json(folder / "config.json", "config", mlp_dim=33)
    elif name == "version":
        edit_json(folder / "config.json", format_version=99)
    elif name == "truncated":
        content = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(content[:-8])


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        ("missing", PresetError, "README.md missing. Write it by `save_to_preset`"),
        ("foreign", PresetError, "holds thesis.tex, which is no part of a preset"),
        ("link", PresetError, "README.md: expected a plain file, found a link"),
        ("latin", PresetError, "README.md: expected UTF-8"),
        ("weights", CheckpointError, "expected (33,)"),
        ("version", PresetError, "format_version is 99"),
        ("truncated", CheckpointError, "model.safetensors: its sha256 is"),
    ],
)
def test_a_damaged_preset_folder_is_refused_before_any_request(damage, error, message, hub, folder):
    """The message names the file and the fault."""
    damaged(folder, damage)
    with raises(error, message):
        upload_preset("hf://us/flowers", folder)
    assert not hub.requests


def test_bad_targets_and_missing_folders_are_refused(hub, folder):
    """A target with a subfolder, a path, an incomplete address."""
    for target in ("hf://us/flowers/sub", "us/flowers", "hf://flowers"):
        with pytest.raises(PresetError, match="expected hf://owner/repo"):
            upload_preset(target, folder)
    with pytest.raises(PresetError, match="expected a folder, as `save_to_preset` writes it"):
        upload_preset("hf://us/flowers", folder / "none")


# The model card


def test_the_card_has_the_metadata_of_the_user_and_of_the_model(hub, folder):
    """huggingface_hub reads and validates them."""
    upload_preset("hf://us/flowers", folder)
    (folder / "uploaded.md").write_bytes(files_at(hub)["README.md"])
    card = ModelCard.load(folder / "uploaded.md")
    card.validate()
    data = card.data
    assert (data.library_name, data.pipeline_tag) == ("keras-vit", "image-classification")
    assert (data.license, data.datasets) == ("cc-by-4.0", ["us/flowers"])
    assert data.metrics == ["accuracy"]
    assert data.tags == ["flowers", "keras", "vision-transformer"]
    (result,) = data.eval_results
    assert (result.dataset_split, result.metric_value) == ("test", 0.93)
    assert CARD["description"] in card.text
    assert "- source: nowhere" in card.text


def test_the_card_names_the_base_model_and_its_license(hub, folder, tmp_path):
    """From the provenance of the model."""
    upload_preset("hf://us/flowers", folder)
    model = VisionTransformer.from_preset("hf://us/flowers", num_classes=2)
    model.save_to_preset(tmp_path / "mine")
    assert ModelCard.load(tmp_path / "mine" / "README.md").data.base_model == "us/flowers"
    VisionTransformer.from_preset("vit_digits").save_to_preset(tmp_path / "digits")
    assert ModelCard.load(tmp_path / "digits" / "README.md").data.license == "apache-2.0"


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ({"licence": "mit"}, "unknown field 'licence'. Did you mean 'license'?"),
        ({"metrics": [{"metric_type": "accuracy"}]}, "expected a list of objects with dataset_ty"),
        ({"metrics": {"accuracy": 0.9}}, "expected a list of objects"),
    ],
)
def test_bad_fields_of_a_card_are_refused_by_name(card, message, tmp_path):
    """No file is written."""
    with raises(PresetError, message):
        random_tiny().save_to_preset(tmp_path / "mine", card=card)
    assert not list(tmp_path.iterdir())


def test_the_card_of_a_model_without_a_head_is_for_feature_extraction(model):
    """It does not mention classification."""
    from keras_vit.presets.preset_config import PresetConfig

    text = model_card("features", PresetConfig(model.config.replace(num_classes=0)))
    assert "pipeline_tag: image-feature-extraction" in text
    assert "classify" not in text


def test_the_card_of_a_model_for_regression_predicts_values(model):
    """`classify` would refuse it."""
    from keras_vit.presets.preset_config import PresetConfig

    text = model_card("age", PresetConfig(model.config, task="regression"))
    assert f"{model.config.num_classes} values" in text
    assert "model.predict(" in text
    assert "classify" not in text

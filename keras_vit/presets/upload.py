"""Uploads a preset folder to the Hub, after a check, in one commit."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from keras_vit.config import ViTConfig
from keras_vit.config.weights import lexicon
from keras_vit.errors import CheckpointError, PresetError
from keras_vit.presets.hub import (
    api,
    matches,
    parse_address,
    request,
    shown_address,
    stated_hash,
)
from keras_vit.presets.preset_config import (
    CONFIG_FILE,
    MODEL_CARD_FILE,
    PRESET_FILES,
    WEIGHTS_FILE,
)
from keras_vit.presets.source import Source

if TYPE_CHECKING:
    from huggingface_hub import HfApi, HfUri, ModelInfo

_CALL = re.compile(r'(VisionTransformer\.from_preset\()"[^"\n]*"')


def upload_preset(
    target: str,
    path: str | os.PathLike[str],
    *,
    private: bool = False,
    overwrite: bool = False,
    token: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Uploads a preset folder, which `save_to_preset` has written, to the Hugging Face Hub.

    It makes one commit, and creates a missing repository or branch. Files that the Hub already has
    are not sent again, so a repeated call resumes an interrupted upload. The example in the model
    card gets the repository's address.

    Args:
        target: address of the repository, `"hf://owner/repo[@branch]"`.
        path: a preset folder.
        private: whether a new repository is private.
        overwrite: whether a different preset in the repository is replaced.
        token: token with write access; None for the token of `hf auth login` or HF_TOKEN.
        commit_message: message of the commit.

    Returns:
        The address of the commit on the Hub, or of the current one if it has the same files.

    Raises:
        PresetError: the folder is not a complete preset, the repository has different files with
            these names, or the upload fails.
        CheckpointError: weights and `config.json` disagree.
    """
    from huggingface_hub import CommitOperationAdd

    address = parse_address(target)
    if address.path_in_repo:
        raise PresetError(f"{target}: expected hf://owner/repo[@branch], without a subfolder.")
    files = _check_folder(Path(path))
    try:
        readme = files[MODEL_CARD_FILE].read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PresetError(f"{files[MODEL_CARD_FILE]}: expected UTF-8 ({error}).") from error
    content: dict[str, Path | bytes] = {**files}
    content[MODEL_CARD_FILE] = _CALL.sub(rf'\1"{shown_address(address)}"', readme, count=1).encode()
    client = api(token)

    def upload() -> str:  # one attempt, which skips the parts that an earlier one completed
        info = _prepare_branch(client, address, private)
        there = {sibling.rfilename: stated_hash(sibling) or "" for sibling in info.siblings or ()}
        changed = [n for n in PRESET_FILES if n not in there or not matches(content[n], there[n])]
        if not changed:
            return f"{client.endpoint}/{address.id}/commit/{info.sha}"
        if not overwrite and (clash := [name for name in changed if name in there]):
            raise PresetError(
                f"{shown_address(address)}: has another {', '.join(clash)}. Give overwrite=True to "
                "replace it, or another branch: hf://owner/repo@branch."
            )
        try:
            return client.create_commit(
                address.id,
                [CommitOperationAdd(name, content[name]) for name in PRESET_FILES],
                commit_message=commit_message or "Upload a preset of keras_vit",
                revision=address.revision,
                parent_commit=info.sha,  # refuses to overwrite a commit made in between
            ).commit_url
        except ValueError as error:
            if "metadata in README.md" not in str(error):
                raise
            raise PresetError(f"{shown_address(address)}: {MODEL_CARD_FILE}: {error}") from error

    return request(upload, address)


def _check_folder(folder: Path) -> dict[str, Path]:
    """Returns the files of a preset folder, after a check that it is complete and consistent."""
    if not os.path.isdir(folder):  # noqa: PTH112  a long name does not raise
        raise PresetError(f"{folder}: expected a folder, as `save_to_preset` writes it.")
    inside = {path.name: path for path in folder.iterdir()}
    if missing := [name for name in PRESET_FILES if name not in inside]:
        raise PresetError(f"{folder}: {', '.join(missing)} missing. Write it by `save_to_preset`.")
    if foreign := sorted(name for name in inside if name not in PRESET_FILES):
        raise PresetError(
            f"{folder}: {', '.join(foreign[:5])} does not belong to a preset. Move it elsewhere."
        )
    for path in inside.values():
        if path.is_symlink() or not path.is_file():
            raise PresetError(f"{path}: expected a plain file, found a link or a folder.")
    with Source.parse(folder).open() as opened:  # compares the sha256
        if opened.preset is None:
            raise PresetError(f"{folder / CONFIG_FILE}: this is not a preset of keras_vit.")
        _compare_shapes(inside[WEIGHTS_FILE], opened.preset.config)
    return inside


def _compare_shapes(path: Path, config: ViTConfig) -> None:
    """Refuses weights of other names or shapes than those of the model in `config.json`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error}).") from error
    expected = {weight.path: weight.shape for weight in lexicon.weights(config)}
    odd = [name for name in {*expected, *found} if expected.get(name) != found.get(name)]
    if odd:
        name = min(odd)
        raise CheckpointError(
            f"{path}: {name} has shape {found.get(name)}, expected {expected.get(name)} by "
            f"{CONFIG_FILE}, and {len(odd) - 1} further arrays differ. One of the files belongs to "
            "another model: write the folder again by `save_to_preset`."
        )


def _prepare_branch(client: "HfApi", address: "HfUri", private: bool) -> "ModelInfo":
    """Returns the contents of the branch, after creating a missing repository or branch."""
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    def info() -> "ModelInfo":
        return client.model_info(address.id, revision=address.revision, files_metadata=True)

    try:
        branch = info()
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        if isinstance(error, RepositoryNotFoundError):
            client.create_repo(address.id, private=private, exist_ok=True)
        if address.revision:
            client.create_branch(address.id, branch=address.revision, exist_ok=True)
        branch = info()
    if private and not branch.private:
        raise PresetError(
            f"{shown_address(address)}: private=True, but the repository exists and is public. "
            f"Change it at https://huggingface.co/{address.id}/settings."
        )
    return branch

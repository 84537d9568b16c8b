"""Every module of keras_vit imports only modules of its own floor or lower floors."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_backend

PACKAGE = Path(__file__).parents[1] / "keras_vit"

FLOORS = (
    {
        "arguments",
        "errors",
        "habits",
        "interpolate",
        "text",
        "environment.limits",
        "environment.registration",
    },
    {"environment", "files", "fixes", "distribution.processes"},
    {"config"},
    {"labels", "images.protocols"},
    {
        f"images.{name}"
        for name in ("decoding", "geometry", "image_files", "inputs", "resampling", "resizing")
    },
    {"layers.base", "kernels", "layers.precision", "layers.quantisation"},
    {"layers.initializers"},
    {"layers"},
    {"losses"},
    {"image_checks", "graph", "inference"},
    {"tokens"},
    {"weights"},
    {"sources"},
    {"checkpoints.inference"},
    {"checkpoints.dialects.json_fields"},
    {"checkpoints.dialects.base"},
    {"checkpoints.dialects"},
    {"checkpoints.containers"},
    {"checkpoints.plain_names"},
    {"checkpoints.adapters"},
    {"checkpoints.opening"},
    {"checkpoints.translate"},
    {"checkpoints.foreign"},
    {"checkpoints.recognition"},
    {"checkpoints.surroundings"},
    {"checkpoints.export"},
    {"checkpoints.inspection", "checkpoints.libraries"},
    {"checkpoints.adapt"},
    {"checkpoints.transfer"},
    {"images", "sharing", "heads"},
    {"model"},
    {"checkpoints", "variants", "data", "costs"},
    {"distribution"},
    {"exporting", "finetune", "evaluation"},
    {"explanation", "ray"},
    {"serving"},
    {"demo", "cli"},
)
"""The floors from the lowest up. A module belongs to the longest name that it starts with."""

MODEL_ROOMS = (
    "checkpoints.containers.pickled",
    "checkpoints.loading",
    "checkpoints.transfer",
    "checkpoints.verification",
    "checkpoints.libraries",
)
"""Modules of checkpoints that handle models or tensors, and import a backend only inside calls."""

NUMPY_ONLY = (
    "errors",
    "text",
    "interpolate",
    "config",
    "files",
    "labels",
    "images",
    "variants",
    "weights",
    "sources",
    "checkpoints",
)
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py")


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix(".__init__").removesuffix("__init__")


def floor_of(module: str) -> int:
    matches = [
        (len(name), floor)
        for floor, names in enumerate(FLOORS)
        for name in names
        if module == name or module.startswith(name + ".")
    ]
    assert matches, f"{module} stands on no floor"
    return max(matches)[1]


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """Every imported module of a file, and whether it is imported at the top."""
    tree = ast.parse(path.read_text())
    top = set(tree.body)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inside = PACKAGE.parent / str(node.module).replace(".", "/") / alias.name
                is_module = inside.is_dir() or inside.with_suffix(".py").is_file()
                name = f"{node.module}.{alias.name}" if is_module else str(node.module)
                found.append((name, node in top))
    return found


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p)], ids=module_of)
def test_imports_go_downward(path):
    """A module imports from its own floor or from below, never from above."""
    module = module_of(path)
    for name, _ in imports_of(path):
        if not name.startswith("keras_vit."):
            continue
        target = name.removeprefix("keras_vit.")
        assert floor_of(target) <= floor_of(module), f"{module} imports {target} from above"


@pytest.mark.parametrize(
    "path", [p for p in FILES if module_of(p).split(".")[0] in NUMPY_ONLY], ids=module_of
)
def test_data_rooms_start_no_backend(path):
    """Config, variants and checkpoints import no Keras at the top; `MODEL_ROOMS` do in calls."""
    for name, at_top in imports_of(path):
        if name.split(".")[0] in ("keras", "jax", "torch", "tensorflow"):
            assert not at_top
            assert module_of(path) in MODEL_ROOMS
        if name in ("keras_vit.model", "keras_vit.layers", "keras_vit.VisionTransformer"):
            assert not at_top


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_backend_is_imported_only_with_a_reason(path):
    """A file that imports tensorflow, jax or torch names the backend in its first line."""
    names = {name.split(".")[0] for name, _ in imports_of(path)}
    if names & {"tensorflow", "jax", "torch"}:
        first = path.read_text().splitlines()[0].lower()
        assert any(backend in first for backend in ("tensorflow", "jax", "torch"))


def test_every_public_name_resolves():
    """`keras_vit.__all__` has each name of the stub once, and each is an attribute."""
    import keras_vit

    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(names) == keras_vit.__all__
    assert all(hasattr(keras_vit, name) for name in names)
    assert set(names) <= set(dir(keras_vit))

"""Commands about presets, checkpoints and the installation."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from keras_vit.cli.console import show, start_backend, stderr, tell
from keras_vit.cli.options import Fields, Positive, Reading
from keras_vit.models.building import Family
from keras_vit.support.files import check_place

if TYPE_CHECKING:
    from keras_vit.checkpoints import CheckpointInfo
    from keras_vit.config import ViTConfig
    from keras_vit.presets.preset_config import PresetConfig

_STORED = Fields()
_READ = Reading()


def list_(
    *,
    variant: str | None = None,
    family: str | None = None,
    data: str | None = None,
    resolution: Positive | None = None,
    hybrid: Annotated[bool | None, Parameter(negative="--no-hybrid")] = None,
    json: bool = False,
) -> None:
    """List the presets, pretrained models that can be loaded by name.

    Example: keras-vit list --family dinov2

    Args:
        variant: only presets of this architecture, such as vit_b16.
        family: only presets of this family: vit, dinov2, dinov3, clip, deit, mae, ...
        data: only presets trained on this data: i21k, i1k, i21k_ft_i1k, i1k_ft_i1k.
        resolution: only presets of this image size in pixels, such as 384.
        hybrid: only models with a ResNet before the Transformer; --no-hybrid: only models without.
        json: print the result as JSON.
    """
    from keras_vit.config.weights.lexicon import num_parameters
    from keras_vit.presets.catalog import list_presets, preset_named
    from keras_vit.presets.source import Source  # `checkpoints` would import every family

    rows: list[tuple[object, ...]] = []
    names = list_presets(
        variant=variant, data=data, resolution=resolution, hybrid=hybrid, family=family
    )
    for row in map(preset_named, names):
        preset = Source.parse(row.name).preset()
        parameters = preset and num_parameters(preset.config)
        score = row.top1 and f"{row.top1:.2f}"
        facts = (row.name, row.data, parameters, row.image_size, row.num_classes, score)
        rows.append((*facts, row.license))
    columns = "preset data parameters pixels classes top-1 license"
    return show(json, columns.split(), rows)


def doctor(*, json: bool = False) -> None:
    """Show the installed and the missing packages, the backend and the processor.

    If the backend is torch, a row names each private function of torch that keras_vit would use and
    that is gone, and its replacement. Further rows name the files that killed downloads have left
    in the caches of the Hub and of the bucket, and the line that removes each.

    Example: keras-vit doctor

    Args:
        json: print the answer as JSON.
    """
    from keras_vit.presets.hub import unfinished_downloads
    from keras_vit.support.backend import chosen_backend, refusal
    from keras_vit.support.components import components
    from keras_vit.support.fixes.private_names import PLAIN_FORMS

    rows = [(c.kind, c.name, c.version or "not installed", c.note) for c in components()]
    if chosen_backend()[0] == "torch" and refusal() is None:
        start_backend()
        import keras_vit.layers.torch_block  # noqa: F401  looks the names up

    rows += [("private name", name, "gone", words) for name, words in PLAIN_FORMS.items()]
    for path in unfinished_downloads():
        line = f"unless a download runs: rm {shlex.quote(str(path))}"
        rows.append(("unfinished download", path.name, f"{path.stat().st_size:,} bytes", line))
    show(json, ("kind", "name", "version", "note"), rows)


def info(source: str, /, *, fields: Reading = _READ, json: bool = False) -> None:
    """Describe the checkpoint or preset SOURCE: its library, architecture, size and cost.

    With --json the result also has the shape of every array.

    Example: keras-vit info vit_digits

    Args:
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        json: print the result as JSON.
    """
    from keras_vit.checkpoints import reading
    from keras_vit.presets.catalog import CATALOG
    from keras_vit.presets.evidence import LEVELS, evidence_level, shipped

    description = reading.info(source, **fields.to_dict())
    facts: dict[str, Any] = {"source": source}
    arrays = {}
    if description.shapes:
        size_known = "image_size" not in description.undetermined
        facts |= {"family": description.family, "prefix": description.prefix or "none"}
        facts |= _model_facts(description, size_known)
        facts |= {"parameters": description.num_parameters, "arrays": len(description.shapes)}
        facts |= {"types": sorted({dtype.name for dtype in description.dtypes.values()})}
        if description.ignored:
            facts["ignored"] = description.ignored
        arrays = {name: list(shape) for name, shape in description.shapes.items()}
    else:
        facts |= {"family": "keras_vit preset", **_model_facts(description, True)}
        facts |= {"protocol": description.protocol}
        facts |= {f"provenance: {name}": value for name, value in description.provenance.items()}
    if source in CATALOG:
        facts["evidence"] = LEVELS[evidence_level(source)]
        if (record := shipped().get(source, {})).get("read"):
            facts["evidence"] += f"; read on {record['date']}: JSON {record['read']}"
    show(json, ("fact", "value"), list(facts.items()), {**facts, "array_shapes": arrays})


_FIELDS = "hidden_size mlp_dim num_heads num_layers channels"


def _model_facts(description: "PresetConfig | CheckpointInfo", size_known: bool) -> dict[str, Any]:
    from keras_vit.config.variants import find_variant

    config = description.config
    if not size_known:
        resolution = "unknown; pass image_size when loading"
    elif config.image_size is None:
        resolution = "any"
    else:
        resolution = "{}x{}".format(*config.image_size)
        if config.position_grid is not None:
            resolution += ", with positions of {}x{} patches".format(*config.position_grid)
    return {
        "variant": find_variant(config) or "custom",
        "resolution": resolution,
        "classes": description.prediction.num_answers or "no head",
        "task": description.task,
        "representation layer": config.representation_size or "none",
        "pooling": config.pool.kind,
        **{name: getattr(config, name) for name in _FIELDS.split()},
        "patch_size": "{}x{}".format(*config.patch_size),
        "stem": str(list(config.stem.units)) if config.stem.is_resnet else config.stem.kind,
        **(_costs(config) if size_known and config.image_size is not None else {}),
    }


def _costs(config: "ViTConfig") -> dict[str, Any]:
    from keras_vit.config.weights.lexicon import num_parameters
    from keras_vit.models.costs import flops

    operations = flops(config)
    return {
        "parameters": num_parameters(config),
        "tokens": config.num_tokens,
        "GFLOPs per image": f"{operations.forward / 1e9:.3g} forward, "
        f"{operations.training / 1e9:.3g} in a training step",
    }


def convert(
    source: str,
    path: Path,
    /,
    *,
    family: Family,
    fields: Fields = _STORED,
    lossy: bool = False,
) -> None:
    """Convert the checkpoint SOURCE to the format of another library.

    Example: keras-vit convert vit_digits digits.npz --family google

    Args:
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        path: file or folder to write.
        family: library that will read the result: timm, transformers, google and others.
        lossy: convert a model even if its outputs will differ, because the other library computes
            something differently.
    """
    from keras_vit.checkpoints.families import formats_named
    from keras_vit.checkpoints.transfer import convert as convert_checkpoint

    formats_named(family)  # refuses an unknown name before a download
    check_place(path.parent)
    convert_checkpoint(source, path, family, lossy=lossy, progress=True, **fields.to_dict())
    tell(f"{path} written in the format of {family}.")


def verify(
    source: str,
    other: str | None = None,
    /,
    *,
    fields: Reading = _READ,
    json: bool = False,
) -> int:
    """Check that SOURCE gives the same outputs as in its original library, or as OTHER.

    The exit status is 1 if they differ.

    Example: keras-vit verify vit_digits digits.npz

    Args:
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        other: a second checkpoint to compare with instead of the original library.
        json: print the result as JSON.
    """
    from keras_vit.checkpoints import Source
    from keras_vit.checkpoints.verification import verify as verify_checkpoint

    checkpoint, against = Source.parse(source), None if other is None else Source.parse(other)
    start_backend()
    with stderr.status("Running"):
        verification = verify_checkpoint(checkpoint, against, **fields.to_dict())
    rows = [
        (
            check.name,
            check.expected,
            f"{check.difference:.2e}",
            f"{check.tolerance:.0e}",
            "equal" if check.passed else "differs",
        )
        for check in verification.checks
    ]
    show(json, ("compared", "with", "difference", "tolerance", "result"), rows)
    return int(not verification.passed)

"""Commands about checkpoints and presets: list, info, convert, verify, upload."""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.progress import track
from rich.table import Table

from keras_vit import checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.cli.console import console
from keras_vit.config import ViTConfig
from keras_vit.presets import describe, list_presets, upload_preset
from keras_vit.presets.catalog import preset_named
from keras_vit.variants import list_variants, variant, variant_of


def add(commands: Any) -> None:
    """Adds list, info, convert, verify and upload."""
    command = commands.add_parser("list", help="show variants and presets")
    command.add_argument("--variant", help="presets of this variant alone")
    command.add_argument("--data", help="trained on: i21k, i1k, i21k_ft_i1k, i1k_ft_i1k")
    command.add_argument("--resolution", type=int, metavar="PIXELS")
    command.add_argument(
        "--hybrid",
        action=argparse.BooleanOptionalAction,
        help="with a ResNet before the Transformer, or without",
    )
    command.set_defaults(run=_list)

    command = commands.add_parser("info", help="tell what a checkpoint or preset holds")
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    command.add_argument("--json", action="store_true", help="print JSON, with every array")
    command.set_defaults(run=_info)

    command = commands.add_parser("convert", help="write a checkpoint in another dialect")
    command.add_argument("source", type=Path)
    command.add_argument("destination", type=Path)
    command.add_argument("--to", required=True, choices=list(DIALECTS), help="dialect to write")
    command.add_argument(
        "--image-size", type=int, nargs="+", metavar="PIXELS", help="resize the positions for it"
    )
    command.add_argument("--num-heads", type=int, help="where the files do not tell")
    command.add_argument(
        "--lossy", action="store_true", help="write also what the other library cannot express"
    )
    command.set_defaults(run=_convert)

    command = commands.add_parser("verify", help="run checkpoints and compare what comes out")
    command.add_argument("source", type=Path)
    command.add_argument("other", type=Path, nargs="?", help="another checkpoint")
    command.add_argument("--image-size", type=int, nargs="+", metavar="PIXELS")
    command.add_argument("--num-heads", type=int, help="where the files do not tell")
    command.add_argument(
        "--tolerance", type=float, default=1e-4, help="of max |value|; above it the status is 1"
    )
    command.set_defaults(run=_verify)

    command = commands.add_parser("upload", help="put a preset folder on the Hub")
    command.add_argument("folder", type=Path)
    command.add_argument("target", help="hf://owner/repo[@branch]")
    command.add_argument("--private", action="store_true", help="of a new repository")
    command.add_argument("--overwrite", action="store_true", help="replace another preset")
    command.add_argument("--message", help="of the commit")
    command.set_defaults(run=_upload)


def _list(arguments: argparse.Namespace) -> None:
    asked = {key: getattr(arguments, key) for key in ("variant", "data", "resolution", "hybrid")}
    if all(value is None for value in asked.values()):
        table = Table("variant", "hidden_size", "layers", "heads", "mlp_dim", "patch", "stem")
        for name in list_variants():
            config = variant(name).config()
            stem = "-" if config.resnet is None else str(list(config.resnet.num_layers))
            sizes = (config.hidden_size, config.num_layers, config.num_heads, config.mlp_dim)
            table.add_row(name, *map(str, sizes), str(config.patch_size[0]), stem)
        console.print(table)
    # The variant is the first word of the name; without lines it all fits into 80 columns.
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    table.add_column("preset", no_wrap=True)
    table.add_column("data", no_wrap=True)
    for heading in ("pixels", "classes", "top-1", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in list_presets(**asked):
        row = preset_named(name)
        facts = (row.num_classes, row.top1, row.mebibytes)
        cells = [f"{n:.{places}f}" if n else "" for n, places in zip(facts, (0, 2, 1), strict=True)]
        table.add_row(name, row.data, str(row.image_size), *cells)
    console.print(table)


def _info(arguments: argparse.Namespace) -> None:
    found = describe(arguments.source)
    facts: dict[str, Any] = {"source": str(arguments.source)}
    arrays = {}
    if isinstance(found, checkpoints.CheckpointInfo):
        size_known = "image_size" not in found.undetermined
        facts |= {"dialect": found.dialect, "prefix": found.prefix or "none"}
        facts |= _model_facts(found.config, size_known)
        facts |= {"parameters": found.num_parameters, "arrays": len(found.shapes)}
        facts |= {"types": sorted({dtype.name for dtype in found.dtypes.values()})}
        if found.ignored:
            facts["ignored"] = found.ignored
        arrays = {name: list(shape) for name, shape in found.shapes.items()}
    else:
        facts |= {"dialect": "keras_vit preset", **_model_facts(found.config, True)}
        facts |= {"protocol": found.protocol, **found.provenance}
    if arguments.json:
        print(json.dumps({**facts, "array_shapes": arrays}, indent=2))
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, f"{value:,}" if name == "parameters" else str(value))
    console.print(table)


def _model_facts(config: ViTConfig, size_known: bool) -> dict[str, Any]:
    if not size_known:
        resolution = "undetermined; give image_size on loading"
    elif config.image_size is None:
        resolution = "any"
    else:
        resolution = "{}x{}".format(*config.image_size)
    return {
        "variant": variant_of(config) or "none of the named ones",
        "resolution": resolution,
        "classes": config.num_classes or "no head",
        "representation layer": config.representation_size or "none",
        "classifier": config.classifier,
        "hidden_size": config.hidden_size,
        "mlp_dim": config.mlp_dim,
        "num_heads": config.num_heads,
        "num_layers": config.num_layers,
        "patch_size": "{}x{}".format(*config.patch_size),
        "channels": config.channels,
        "stem": "none" if config.resnet is None else str(list(config.resnet.num_layers)),
        **(_costs(config) if size_known and config.image_size is not None else {}),
    }


def _costs(config: ViTConfig) -> dict[str, Any]:
    from keras_vit.costs import flops, memory, parameters

    counted, predicted = flops(config), memory(config)
    return {
        "parameters": parameters(config),
        "tokens": config.num_tokens,
        "GFLOPs per image": f"{counted.forward / 1e9:.3g} forward, "
        f"{counted.training / 1e9:.3g} in a training step",
        "memory in float32": f"{predicted.weights / 2**20:,.0f} MiB of weights, "
        f"{predicted.training / 2**20:,.0f} MiB predicted for a training step of SGD on one image",
    }


def _fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the user says of a checkpoint beside its path."""
    fields: dict[str, Any] = {}
    if arguments.image_size:
        sides = arguments.image_size
        fields["image_size"] = sides[0] if len(sides) == 1 else tuple(sides)
    if arguments.num_heads:
        fields["num_heads"] = arguments.num_heads
    return fields


def _verify(arguments: argparse.Namespace) -> int:
    with console.status("Running"):
        found = checkpoints.verify(arguments.source, arguments.other, **_fields(arguments))
    table = Table("output", "against", "max |difference|", "of max |value|")
    for difference in found.differences:
        numbers = f"{difference.absolute:.2e}", f"{difference.relative:.2e}"
        table.add_row(difference.output, difference.against, *numbers)
    if found.differences:
        console.print(table)
    for reason in found.not_run:
        console.print(f"Not run: {reason}.")
    worst = max((difference.relative for difference in found.differences), default=0.0)
    return int(worst > arguments.tolerance)


def _convert(arguments: argparse.Namespace) -> None:
    checkpoints.convert(
        arguments.source,
        arguments.destination,
        arguments.to,
        lossy=arguments.lossy,
        track=lambda moves: track(list(moves), description="Converting", console=console),
        **_fields(arguments),
    )
    console.print(f"{arguments.destination} written in the {arguments.to} dialect.")


def _upload(arguments: argparse.Namespace) -> None:
    url = upload_preset(
        arguments.target,
        arguments.folder,
        private=arguments.private,
        overwrite=arguments.overwrite,
        commit_message=arguments.message,
    )
    console.print(url, soft_wrap=True)

"""Commands that explain, export and serve a model."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from keras_vit.cli.console import command_line, image_files, load_model, note_backend, stderr, tell
from keras_vit.cli.options import Loading, Positive, Reading
from keras_vit.config.pool import StagePooling
from keras_vit.serving import Settings
from keras_vit.support.arguments import Format, Method, Outputs, Precision, check_results
from keras_vit.support.extras import import_extra, is_installed

_LIMITS = Settings()
_STORED = Loading()
_READ = Reading()


def explain(
    images: list[str],
    /,
    *,
    source: str,
    loading: Loading = _STORED,
    path: Path = Path("report"),
    method: Method = "relevance",
    target: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    curves: bool = False,
) -> None:
    """Explain predictions by heatmaps of the image regions that matter (needs matplotlib).

    The command writes a web page that opens from disk. It shows the attention of every block and
    head, and heatmaps of several methods for two classes. An image takes about as long as 20
    predictions, or 250 with --curves.

    Example: keras-vit explain cat.jpg --source vit_b16.augreg_i21k_ft_i1k_224

    Args:
        images: image files, or folders of images.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        path: folder to write.
        method: method that the page shows first.
        target: labels or indices of the classes to explain; by default the two most probable
            classes of each image.
        curves: also compute integrated gradients, and compare all methods by deletion and insertion
            curves.
    """
    check_results(path)
    paths = image_files(images)
    if not is_installed("matplotlib"):
        import_extra("matplotlib", "figures", "A report")
    model = load_model(source, "explain", **loading.to_dict())
    from keras_vit.explanation.report import write_report

    written = write_report(
        model,
        path,
        paths,
        method=method,
        targets=target or [],
        curves=curves,
        command=command_line(),
        progress=True,
    )
    tell(f"{written} written.")


def export(
    source: str,
    /,
    *,
    path: Path,
    format: Format = "onnx",
    outputs: Outputs | None = None,
    preprocessing: Annotated[bool, Parameter(negative="--no-preprocessing")] = True,
    fields: Reading = _READ,
    batch: Positive | None = None,
    precision: Precision = "float32",
    calibration: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    verify: Annotated[bool, Parameter(negative="--no-verify")] = True,
) -> None:
    """Export a model to ONNX, OpenVINO, PyTorch, TensorFlow or LiteRT.

    The exported model runs without keras_vit.

    Example: keras-vit export run/best --path model --format onnx

    Args:
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        path: folder to write.
        format: format of the exported model.
        outputs: outputs of the exported model; by default probabilities, and logits for regression
            and depth.
        preprocessing: the exported model takes uint8 images of any size and prepares them;
            --no-preprocessing: it takes prepared float images.
        batch: number of images in a call; by default any number.
        precision: precision of the weights.
        calibration: image files or folders on which int8 calibrates the ranges of activations.
        verify: run the exported model and compare it with the original; --no-verify skips this.
    """
    check_results(path)
    images = [str(path) for path in image_files(calibration)] if calibration else None
    model = load_model(source, **fields.to_dict())
    from keras_vit.exporting.writing import export as export_model

    with stderr.status("Exporting"):
        written = export_model(
            model,
            path,
            format,
            preprocessing=preprocessing,
            outputs=outputs,
            batch=batch or "dynamic",
            precision=precision,
            calibration=images,
            verify=verify,
        )
    compared = "not compared with the model"
    if (comparison := written.verification) is not None:
        compared = f"outputs within {comparison.difference:.1e} of the model's"
    tell(f"{written.path} written, {written.num_bytes / 1e6:,.1f} MB, {compared}.")
    for note in written.notes:
        tell(note)


def serve(
    source: str,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Annotated[Settings, Parameter(name="*", consume_multiple=True)] = _LIMITS,
    loading: Loading = _STORED,
    stage: str | None = None,
    pooling: StagePooling | None = None,
    access_log: bool = False,
) -> None:
    """Start an HTTP server that classifies and embeds images.

    The server has POST /classify, /embed and /v1/embeddings (for OpenAI's client), GET /healthz and
    /metadata, a page at / on which images can be dropped, and its documentation at /docs. SIGTERM
    and Ctrl-C stop it after the accepted requests are answered.

    Example: keras-vit serve run/best --port 8000

    Args:
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        host: address at which the server listens.
        port: port at which the server listens; 0 for any free port.
        stage: stage of the model whose output /embed returns, such as block_3; by default
            pre_logits, the input of the head.
        pooling: how the tokens of the stage, by default of the last block, become one vector.
        access_log: print a line for each request.
    """
    from keras_vit.serving import serve as serve_model

    note_backend()
    serve_model(
        source,
        host=host,
        port=port,
        settings=settings,
        **loading.to_dict(),
        stage=stage,
        pooling=pooling,
        access_log=access_log,
        progress=True,
    )

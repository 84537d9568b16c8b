"""The HTTP interface: routes, their answers and their refusals."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Annotated, Any

import keras
import numpy as np
from fastapi import HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi_offline import FastAPIOffline

from keras_vit import __version__
from keras_vit.errors import ConfigError, shown
from keras_vit.explanation.report import hash_elements
from keras_vit.images.class_names import top_labels
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.serving.batching import Batcher
from keras_vit.serving.bodies import CONTENT, read_images
from keras_vit.serving.engine import Engine
from keras_vit.serving.hosts import refuse_other_hosts
from keras_vit.serving.settings import Settings
from keras_vit.support.text import visible

_BODY = {"requestBody": {"required": True, "content": CONTENT}}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is malformed."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body is too large, or an image has too many pixels."},
    415: {"description": "The type of the body is not accepted, or an image is not readable."},
    422: {"description": "The image does not fit the model, or `top` is no positive number."},
    429: {"description": "Too many images wait; `Retry-After` says when to try again."},
    500: {"description": "The answer is not finite, or the server failed."},
    503: {"description": "The answer took too long; `Retry-After` says when to try again."},
}


class Service:
    """Answers requests: reads their images, and has them computed.

    Args:
        engine: the model with its functions.
        settings: the limits.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.waiting = 0  # images that are accepted and not answered
        self.batcher: Batcher | None = None
        self.readers: ThreadPoolExecutor | None = None

    @contextlib.asynccontextmanager
    async def run(self, app: Any) -> AsyncIterator[None]:
        """Computes between startup and shutdown of the application."""
        self.engine.warm_up()
        batcher = Batcher(self.engine.functions, self.settings.max_batch, self.settings.batch_wait)
        with ThreadPoolExecutor(os.cpu_count() or 1, "keras_vit-decoding") as self.readers:
            self.batcher = batcher
            yield
            self.batcher = None
            batcher.close()

    async def answer(self, request: Request, function: str) -> list[tuple[np.ndarray, Any]]:
        """Returns each prepared image of a request and its row of a function.

        Raises:
            HTTPException: as `bodies.read_images` and `Engine.prepare`; too many images wait (429),
                the answer takes too long (503) or is not finite (500).
        """
        with self._admit(1):
            encoded = await read_images(request, self.settings)
            with self._admit(len(encoded) - 1):
                try:
                    # A group: after one image is refused, the others must not be computed.
                    async with asyncio.timeout(self.settings.timeout), asyncio.TaskGroup() as group:
                        works = [self._one(function, *each) for each in enumerate(encoded, 1)]
                        tasks = [group.create_task(work) for work in works]
                    return [task.result() for task in tasks]
                except ExceptionGroup as failures:
                    raise failures.exceptions[0] from None
                except TimeoutError as error:
                    raise HTTPException(
                        503,
                        f"No answer within {self.settings.timeout:g} seconds. Try again later, or "
                        "start the server with a longer --timeout.",
                        {"Retry-After": "5"},
                    ) from error

    async def _one(self, function: str, number: int, encoded: bytes) -> tuple[np.ndarray, Any]:
        loop, name = asyncio.get_running_loop(), f"Image {number}"
        image = await loop.run_in_executor(self.readers, self.engine.prepare, encoded, name)
        if self.batcher is None:
            raise HTTPException(503, "The application has not been started, or is shutting down.")
        try:
            row = await self.batcher.compute(function, image)
        except ConfigError as error:  # an image of a size that a model of any size cannot take
            raise HTTPException(422, str(error)) from error
        if not np.isfinite(row).all():  # JSON has no word for it
            raise HTTPException(
                500,
                "The model's answer is NaN or infinity: a weight is not finite, or too large for "
                "the dtype policy of the model, such as float16.",
            )
        return image, row

    @contextlib.contextmanager
    def _admit(self, images: int) -> Iterator[None]:
        if self.waiting + images > self.settings.max_queue:
            raise HTTPException(
                429,
                f"{self.waiting} images wait, and at most {self.settings.max_queue} may. Try again "
                "in a second, or start the server with a larger --max-queue.",
                {"Retry-After": "1"},
            )
        self.waiting += images
        try:
            yield
        finally:
            self.waiting -= images


def build_application(
    model: VisionTransformer, settings: Settings, stage: str | None, pooling: str | None
) -> Any:
    """Returns the ASGI application that serves a model; see `keras_vit.serving.application`."""
    engine = Engine(model, settings, stage, pooling)
    service = Service(engine, settings)
    app = FastAPIOffline(
        redoc_url=None,
        title=f"keras_vit: {visible(model.title)}",
        version=__version__,
        description="Classifies images. Limits and labels: `GET /metadata`.",
        lifespan=service.run,
    )
    app.add_middleware(refuse_other_hosts, allowed_hosts=settings.allowed_hosts)

    @app.exception_handler(RequestValidationError)
    async def correct(request: Request, error: RequestValidationError) -> Response:
        sentences = [f"{e['loc'][-1]}={shown(e['input'])}: {e['msg']}." for e in error.errors()]
        return JSONResponse({"detail": " ".join(sentences)}, 422)

    @app.exception_handler(Exception)
    async def fail(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "The server failed; its log has the reason."}, 500)

    @app.post("/classify", openapi_extra=_BODY, responses=_REFUSALS)
    async def classify(
        request: Request,
        top: Annotated[int | None, Query(ge=1, description="labels per image")] = None,
    ) -> Response:
        """The most probable labels of each image: `{"predictions": [[{label, probability}]]}`.

        Without `top`, 5 labels; of a multi-label model, all that reach their threshold.
        """
        if not engine.classifies:
            raise HTTPException(404, "This model predicts no class per image; use /embed.")
        rows = [row for _, row in await service.answer(request, "classify")]
        named = [
            [{"label": label, "probability": share} for label, share in best]
            for best in top_labels(np.stack(rows), model.class_names, top, model.thresholds)
        ]
        return JSONResponse({"predictions": named})

    @app.post("/embed", openapi_extra=_BODY, responses=_REFUSALS)
    async def embed(request: Request) -> Response:
        """The features of each image: `{"embeddings": [[number]]}`."""
        rows = [row.tolist() for _, row in await service.answer(request, "embed")]
        return JSONResponse({"embeddings": rows})

    @app.post("/explain", openapi_extra=_BODY, responses=_REFUSALS)
    async def explain(request: Request) -> Response:
        """A PNG of the first image, dark where little speaks for the predicted class (relevance).

        Of a model without classes, or without gradients, the patches in the colours of their main
        components: like features have like colours.
        """
        if model.config.stem.is_packed:
            raise HTTPException(404, "Images of unequal shape have no map here.")
        image, row = (await service.answer(request, "explain"))[0]
        return Response(engine.picture(image, row), media_type="image/png")

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", responses={503: {"description": "The model computes no more images."}})
    async def healthz() -> Response:
        """Whether the model can answer, and how many images wait."""
        alive = service.batcher is not None and service.batcher.is_alive
        health = {"status": "ok" if alive else "failed", "images_waiting": service.waiting}
        return JSONResponse(health, 200 if alive else 503)

    @app.get("/metadata")
    async def metadata() -> Response:
        """The model, its labels, how it prepares images, and the limits of the server."""
        return JSONResponse(describe(engine, settings))

    page = _page()

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return page

    return app


def describe(engine: Engine, settings: Settings) -> dict[str, Any]:
    """Returns the answer to `GET /metadata`."""
    model = engine.model
    return {
        "name": model.title,
        "class_names": None if model.class_names is None else list(model.class_names),
        "image_size": model.config.image_size,
        "channels": model.config.channels,
        "num_classes": model.prediction.num_answers,
        "thresholds": model.thresholds,
        "classifies": engine.classifies,
        "embeds": engine.stage,
        "explains": engine.explains,
        "protocol": model.preprocessor.protocol,
        "provenance": dict(model.provenance),
        "dtype": model.dtype_policy.name,
        "backend": keras.backend.backend(),
        "keras_vit_version": __version__,
        "limits": {
            "bytes": settings.max_bytes,
            "pixels": engine.most_pixels,
            "images_per_request": settings.images_per_request,
            "images_waiting": settings.max_queue,
            "seconds": settings.timeout,
        },
    }


def _page() -> HTMLResponse:
    """Returns the page on which one drops an image; it runs its own script and no other."""
    page = (resources.files("keras_vit.serving") / "page.html").read_text(encoding="utf-8")
    own = "; ".join(f"{tag}-src '{digest}'" for tag, digest in hash_elements(page).items())
    policy = f"default-src 'none'; {own}; img-src blob:; connect-src 'self'"
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(page, headers=headers)

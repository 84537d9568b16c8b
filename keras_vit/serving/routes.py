"""The HTTP interface: routes, their answers and their refusals."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from string import Template
from typing import Any

import keras
import numpy as np
from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi_offline import FastAPIOffline
from pydantic import PositiveInt

from keras_vit.errors import ConfigError, shown
from keras_vit.explanation.report import hash_elements
from keras_vit.images.class_names import top_labels
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.serving.batching import Batcher
from keras_vit.serving.bodies import EMBEDDINGS, IMAGES, Form, read_images
from keras_vit.serving.engine import Engine
from keras_vit.serving.hosts import refuse_other_hosts
from keras_vit.serving.refusals import refusal
from keras_vit.serving.settings import Settings
from keras_vit.support import __version__
from keras_vit.support.text import visible


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

    async def answer(self, request: Request, function: str, form: Form = IMAGES) -> list[Any]:
        """Returns a pair for each image of a request: the prepared image, its row of a function.

        Raises:
            HTTPException: as `bodies.read_images` and `Engine.prepare`; too many images wait (429),
                the answer takes too long (503) or is not finite (500).
        """
        with self._admit(1):
            encoded = await read_images(request, self.settings, form)
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
    service, name = Service(engine, settings), visible(model.title)
    app = FastAPIOffline(
        redoc_url=None, title=f"keras_vit: {name}", version=__version__, lifespan=service.run
    )
    app.add_middleware(refuse_other_hosts, allowed_hosts=settings.allowed_hosts)
    app.openapi = lambda: _interface(engine, settings, name)

    @app.exception_handler(RequestValidationError)
    async def correct(request: Request, error: RequestValidationError) -> Response:
        sentences = [f"{e['loc'][-1]}={shown(e['input'])}: {e['msg']}." for e in error.errors()]
        return refusal(request.url.path, " ".join(sentences), 422)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return refusal(request.url.path, error.detail, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def fail(request: Request, error: Exception) -> Response:
        return refusal(request.url.path, "The server failed; its log has the reason.", 500)

    @app.post("/classify")
    async def classify(request: Request, top: PositiveInt | None = None) -> Response:
        if not engine.classifies:
            raise HTTPException(404, "This model predicts no class per image; use /embed.")
        rows = [row for _, row in await service.answer(request, "classify")]
        named = [
            [{"label": label, "probability": share} for label, share in best]
            for best in top_labels(np.stack(rows), model.class_names, top, model.thresholds)
        ]
        return JSONResponse({"predictions": named})

    @app.post("/embed")
    async def embed(request: Request) -> Response:
        rows = [row.tolist() for _, row in await service.answer(request, "embed")]
        return JSONResponse({"embeddings": rows})

    @app.post("/v1/embeddings")
    async def embeddings(request: Request) -> Response:
        rows = [row for _, row in await service.answer(request, "embed", EMBEDDINGS)]
        asked, shape = request.state.asked, rows[0].shape
        if asked.model != name or shape != (asked.dimensions or len(rows[0]),):
            raise HTTPException(
                400,
                f"model={shown(asked.model)}, dimensions={asked.dimensions}: this server has only "
                f"{name!r}, whose embeddings have the shape {shape}. dimensions may be omitted.",
            )
        vectors = [row.tolist() for row in rows]
        if asked.encoding_format == "base64":
            vectors = [base64.b64encode(row.astype("<f4")).decode() for row in rows]
        data = [{"object": "embedding", "index": k, "embedding": v} for k, v in enumerate(vectors)]
        usage = {"prompt_tokens": len(rows), "total_tokens": len(rows)}
        return JSONResponse({"object": "list", "data": data, "model": name, "usage": usage})

    @app.post("/explain")
    async def explain(request: Request) -> Response:
        if model.config.stem.is_packed:
            raise HTTPException(404, "A model of packed patches (NaFlex) has no heatmap here.")
        image, row = (await service.answer(request, "explain"))[0]
        return Response(engine.picture(image, row), media_type="image/png")

    @app.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz() -> Response:
        alive = service.batcher is not None and service.batcher.is_alive
        health = {"status": "ok" if alive else "failed", "images_waiting": service.waiting}
        return JSONResponse(health, 200 if alive else 503)

    @app.get("/metadata")
    async def metadata() -> Response:
        return JSONResponse(describe(engine, settings))

    page = _page()

    @app.get("/")
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


def _interface(engine: Engine, settings: Settings, name: str) -> Any:
    """Returns the OpenAPI document, which `/docs` shows, with the model and the limits in it."""
    facts = describe(engine, settings)
    facts |= facts["limits"] | {"model": json.dumps(name)[1:-1]}
    return json.loads(Template(_read("interface.json")).safe_substitute(facts))


def _read(name: str) -> str:
    return (resources.files("keras_vit.serving") / name).read_text(encoding="utf-8")


def _page() -> HTMLResponse:
    """Returns the page for dropping an image; it may run only its own script."""
    page = _read("page.html")
    own = "; ".join(f"{tag}-src '{digest}'" for tag, digest in hash_elements(page).items())
    policy = f"default-src 'none'; {own}; img-src blob:; connect-src 'self'"
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(page, headers=headers)

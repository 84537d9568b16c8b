"""The HTTP interface: routes, statuses, and the way of a request to its answer."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Annotated, Any

import keras
import numpy as np
from fastapi import Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline

from keras_vit import __version__
from keras_vit.errors import ConfigError, shown
from keras_vit.labels import top_labels
from keras_vit.model import VisionTransformer
from keras_vit.serving.batching import Batcher
from keras_vit.serving.bodies import CONTENT, images_of
from keras_vit.serving.engine import Engine
from keras_vit.serving.hosts import KnownHosts
from keras_vit.serving.settings import RequestError, Settings
from keras_vit.text import visible

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob:; connect-src 'self'"
)
"""What the page at / may do: run its own script, and talk to its own server."""

_BODY = {"requestBody": {"required": True, "content": CONTENT}}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is malformed."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body is too large, or an image has too many pixels."},
    415: {"description": "The body is of a type that is not taken, or no readable image."},
    422: {"description": "The image does not fit the model, or `top` is no positive number."},
    429: {"description": "Too many images wait; `Retry-After` says when to try again."},
    503: {"description": "The answer took too long; `Retry-After` says when to try again."},
}


class RequestHandler:
    """Answers requests: reads their images, and has them computed.

    Args:
        engine: the model's part.
        settings: the limits.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.waiting = 0  # images that are accepted and not answered
        self._readers = ThreadPoolExecutor(os.cpu_count() or 1, "keras_vit-decoding")
        self.batcher = Batcher(engine.functions, settings.max_batch, settings.batch_wait)

    def close(self) -> None:
        """Computes what was accepted, and ends all threads."""
        self._readers.shutdown()
        self.batcher.close()

    async def answer(self, request: Request, function: str) -> list[tuple[np.ndarray, Any]]:
        """Returns each prepared image of a request and its row of a function.

        Raises:
            RequestError: as `bodies.images_of` and `Engine.prepared`; too many images wait (429),
                or the answer takes too long (503).
        """
        with self._admitted(1):
            encoded = await images_of(request, self.settings)
            with self._admitted(len(encoded) - 1):
                try:
                    async with asyncio.timeout(self.settings.timeout):
                        return await asyncio.gather(*(self._one(i, function) for i in encoded))
                except TimeoutError as error:
                    raise RequestError(
                        503,
                        f"No answer within {self.settings.timeout:g} seconds. Try again later, or "
                        "start the server with a longer --timeout.",
                        retry=5,
                    ) from error

    async def _one(self, encoded: bytes, function: str) -> tuple[np.ndarray, Any]:
        loop = asyncio.get_running_loop()
        image = await loop.run_in_executor(self._readers, self.engine.prepared, encoded)
        try:
            return image, await asyncio.wrap_future(self.batcher.submit(function, image))
        except ConfigError as error:  # an image of a size that a model of any size cannot take
            raise RequestError(422, str(error)) from error

    @contextlib.contextmanager
    def _admitted(self, images: int) -> Iterator[None]:
        if self.waiting + images > self.settings.max_queue:
            raise RequestError(
                429,
                f"{self.waiting} images wait, and at most {self.settings.max_queue} may. Try again "
                "in a second, or start the server with a larger --max-queue.",
                retry=1,
            )
        self.waiting += images
        try:
            yield
        finally:
            self.waiting -= images


def application_of(model: VisionTransformer, settings: Settings) -> Any:
    """Returns the ASGI application that serves a model; see `keras_vit.serving.application`."""
    engine = Engine(model, settings)
    handlers: list[RequestHandler] = []  # one, between startup and shutdown

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        engine.warm_up()
        handlers.append(RequestHandler(engine, settings))
        yield
        await asyncio.to_thread(handlers.pop().close)

    app = FastAPIOffline(
        redoc_url=None,
        title=f"keras_vit: {visible(model.name)}",
        version=__version__,
        description="Classifies images. Limits and labels: `GET /metadata`.",
        lifespan=lifespan,
    )
    app.add_middleware(KnownHosts, allowed_hosts=settings.allowed_hosts)

    @app.exception_handler(RequestError)
    async def refuse(request: Request, error: RequestError) -> Response:
        headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
        if error.status == 408:  # the rest of the body may never come
            headers["Connection"] = "close"
        return JSONResponse({"detail": str(error)}, error.status, headers)

    @app.exception_handler(RequestValidationError)
    async def correct(request: Request, error: RequestValidationError) -> Response:
        sentences = [f"{e['loc'][-1]}={shown(e['input'])}: {e['msg']}." for e in error.errors()]
        return JSONResponse({"detail": " ".join(sentences)}, 422)

    @app.exception_handler(Exception)
    async def fail(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "The server failed; its log has the reason."}, 500)

    @app.post("/classify", openapi_extra=_BODY, responses=_REFUSALS)
    async def classify(
        request: Request, top: Annotated[int, Query(ge=1, description="labels per image")] = 5
    ) -> Response:
        """The most probable labels of each image: `{"predictions": [[{label, probability}]]}`."""
        if not engine.classifies:
            raise RequestError(404, "This model has no single prediction per image; use /embed.")
        rows = [row for _, row in await handlers[0].answer(request, "classify")]
        named = [
            [{"label": label, "probability": share} for label, share in best]
            for best in top_labels(np.stack(rows), model.labels, top)
        ]
        return JSONResponse({"predictions": named})

    @app.post("/embed", openapi_extra=_BODY, responses=_REFUSALS)
    async def embed(request: Request) -> Response:
        """The features of each image, the input of the head: `{"embeddings": [[number]]}`."""
        rows = [row.tolist() for _, row in await handlers[0].answer(request, "embed")]
        return JSONResponse({"embeddings": rows})

    @app.post("/attention", openapi_extra=_BODY, responses=_REFUSALS)
    async def attention(request: Request) -> Response:
        """A PNG of the first image as the model sees it, dark where it attends little (rollout)."""
        image, row = (await handlers[0].answer(request, "attention"))[0]
        return Response(engine.picture(image, row), media_type="image/png")

    @app.get("/healthz", responses={503: {"description": "Nothing is computed any more."}})
    async def healthz() -> Response:
        """Whether the model can answer, and how many images wait."""
        alive = bool(handlers) and handlers[0].batcher.is_alive
        waiting = handlers[0].waiting if handlers else 0
        health = {"status": "ok" if alive else "failed", "images_waiting": waiting}
        return JSONResponse(health, 200 if alive else 503)

    @app.get("/metadata")
    async def metadata() -> Response:
        """The model, its labels, how it prepares images, and the limits of the server."""
        return JSONResponse(describe(engine, settings))

    _add_page(app)
    return app


def describe(engine: Engine, settings: Settings) -> dict[str, Any]:
    """Returns the answer to `GET /metadata`."""
    model = engine.model
    return {
        "name": model.name,
        "labels": None if model.labels is None else list(model.labels),
        "image_size": model.config.image_size,
        "channels": model.config.channels,
        "num_classes": model.config.num_classes,
        "classifies": engine.classifies,
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


def _add_page(app: Any) -> None:
    """Adds the page at / on which one drops an image."""
    folder = resources.files("keras_vit.serving") / "page"
    headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
    for path, name, kind in (
        ("/", "index.html", "text/html"),
        ("/page.js", "page.js", "text/javascript"),
        ("/page.css", "page.css", "text/css"),
    ):
        part = Response((folder / name).read_bytes(), media_type=kind, headers=headers)
        app.add_route(path, functools.partial(_same, part))


async def _same(answer: Response, request: Request) -> Response:
    return answer

"""From the body of a request to encoded images: bytes, a form of files, or a JSON list."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from keras_vit.errors import shown
from keras_vit.serving.settings import RequestError, Settings

_WAYS = (
    "an image as the body (image/* or application/octet-stream), files in multipart/form-data, or "
    "a JSON list of images in base64 (application/json)"
)

CONTENT = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "properties": {
                "images": {"type": "array", "items": {"type": "string", "format": "binary"}}
            },
        }
    },
    "application/json": {
        "schema": {
            "type": "array",
            "items": {"type": "string", "format": "byte", "description": "an image in base64"},
        }
    },
}
"""The bodies that are taken, in the words of OpenAPI."""


async def images_of(request: Request, settings: Settings) -> list[bytes]:
    """Returns the encoded images of a request, at least one.

    Raises:
        RequestError: the body is too large (413), too slow (408), of another type (415) or
            malformed (400), or has too many images (413).
    """
    kind = request.headers.get("content-type", "application/octet-stream")
    kind = kind.partition(";")[0].strip().lower()
    if not (kind in CONTENT or kind.startswith("image/")):
        raise RequestError(415, f"Content-Type {shown(kind)} is not taken; send {_WAYS}.")
    body = await _body(request, settings)
    if not body:
        raise RequestError(400, f"The body is empty; send {_WAYS}.")
    if kind == "multipart/form-data":
        images = await _of_form(request, body, settings)
    elif kind == "application/json":
        images = _of_json(body, settings)
    else:
        images = [body]
    if not images:
        raise RequestError(400, f"The request holds no image; send {_WAYS}.")
    return images


async def _body(request: Request, settings: Settings) -> bytes:
    most = settings.max_bytes
    too_large = RequestError(
        413,
        f"The body has more than {most:,} bytes. Send smaller images or fewer at once, or start "
        "the server with a larger --max-bytes.",
    )
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:19]) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(settings.read_timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError as error:
        raise RequestError(
            408,
            f"The body did not arrive within {settings.read_timeout:g} seconds. Send it again, or "
            "give the server a longer Settings.read_timeout.",
        ) from error
    except ClientDisconnect as error:
        raise RequestError(
            400, "The client has closed the connection before the end of the body."
        ) from error
    return bytes(body)


class _InMemory(MultiPartParser):
    spool_max_size = 2**31  # the body is bounded and in memory already; no temporary files


async def _of_form(request: Request, body: bytes, settings: Settings) -> list[bytes]:
    async def whole() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemory(
        request.headers,
        whole(),
        max_files=settings.images_per_request + 1,
        max_part_size=settings.max_bytes,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise _too_many(settings) from error
        raise RequestError(
            400, f"The form cannot be read: {error.message}; send {_WAYS}."
        ) from error
    try:
        files = [value for _, value in form.multi_items() if not isinstance(value, str)]
        if len(files) > settings.images_per_request:
            raise _too_many(settings)
        return [await file.read() for file in files]
    finally:
        await form.close()


def _of_json(body: bytes, settings: Settings) -> list[bytes]:
    try:
        listed: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "The body is no JSON; send a list of images in base64.") from error
    if not isinstance(listed, list):
        raise RequestError(
            400,
            f"Expected a JSON list of images in base64, found a {type(listed).__name__}.",
        )
    if len(listed) > settings.images_per_request:
        raise _too_many(settings)
    images = []
    for k, text in enumerate(listed):
        try:
            images.append(base64.b64decode(text, validate=True))
        except (TypeError, ValueError) as error:
            raise RequestError(
                400, f"Element {k} of the list is no base64. Encode the bytes of an image file."
            ) from error
    return images


def _too_many(settings: Settings) -> RequestError:
    return RequestError(
        413,
        f"The request has more than {settings.images_per_request} images. Divide them among "
        "several requests, or give the server a larger Settings.max_images.",
    )

"""Reads the images of a request: bytes, a form of files, or a JSON list."""

import asyncio
from typing import Any

from fastapi import HTTPException
from pydantic import ConfigDict, TypeAdapter, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect, Request

from keras_vit.errors import shown
from keras_vit.serving.settings import Settings

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
"""The accepted bodies, as OpenAPI describes them."""


_LIST = TypeAdapter(list[bytes], config=ConfigDict(val_json_bytes="base64"))


async def read_images(request: Request, settings: Settings) -> list[bytes]:
    """Returns the encoded images of a request, at least one.

    Raises:
        HTTPException: the body is too large (413), too slow (408), of another type (415) or
            malformed (400), or has too many images (413).
    """
    kind = request.headers.get("content-type", "application/octet-stream")
    kind = kind.partition(";")[0].strip().lower()
    if not (kind in CONTENT or kind.startswith("image/")):
        raise HTTPException(415, f"Content-Type {shown(kind)} is not accepted; send {_WAYS}.")
    limited = Request(request.scope, _limit(request, settings.max_bytes))
    try:
        async with asyncio.timeout(settings.read_timeout):
            if kind == "multipart/form-data":
                images = await _form_files(limited)
            else:
                body = await limited.body()
                images = _decode_list(body) if kind == "application/json" else [body]
    except TimeoutError as error:
        raise HTTPException(
            408,
            f"The body did not arrive within {settings.read_timeout:g} seconds. Send it again, or "
            "start the server with a longer --read-timeout.",
            {"Connection": "close"},  # the rest of the body may never come
        ) from error
    except ClientDisconnect as error:
        raise HTTPException(
            400, "The client has closed the connection before the end of the body."
        ) from error
    if images in ([], [b""]):
        raise HTTPException(400, f"The request holds no image, or an empty one; send {_WAYS}.")
    if len(images) > settings.images_per_request:
        raise HTTPException(
            413,
            f"The request has more than {settings.images_per_request} images. Divide them among "
            "several requests, or start the server with a larger --max-images.",
        )
    return images


def _limit(request: Request, most: int) -> Any:
    """Returns the function that receives a request's body, and refuses more than `most` bytes."""
    count = 0

    async def receive() -> Any:
        nonlocal count
        message = await request.receive()
        count += len(message.get("body", b""))
        if count > most:
            raise HTTPException(
                413,
                f"The body has more than {most:,} bytes. Send smaller images or fewer at once, or "
                "start the server with a larger --max-bytes.",
            )
        return message

    return receive


async def _form_files(request: Request) -> list[bytes]:
    try:
        _, options = parse_options_header(request.headers["Content-Type"])
        if b"--" + options.get(b"boundary", b"") + b"--" not in await request.body():
            raise StarletteHTTPException(400, "The boundary of its Content-Type does not end it.")
        async with request.form() as form:
            files = [value for _, value in form.multi_items() if not isinstance(value, str)]
            return [await file.read() for file in files]
    except HTTPException:
        raise
    except StarletteHTTPException as error:
        raise HTTPException(
            400, f"The form cannot be read: {error.detail} Send {_WAYS}."
        ) from error


def _decode_list(body: bytes) -> list[bytes]:
    try:
        return _LIST.validate_json(body)
    except ValidationError as error:
        fault = error.errors()[0]
        place = f"Element {fault['loc'][0]} of the list" if fault["loc"] else "The body"
        raise HTTPException(
            400, f"{place}: {fault['msg'].rstrip('.')}; send a JSON list of images in base64."
        ) from error

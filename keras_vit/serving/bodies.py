"""Reads the images of a request: bytes, a form of files, or JSON."""

import asyncio
import base64
import re
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import HTTPException
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect, Request

from keras_vit.errors import shown
from keras_vit.serving.settings import Settings

_DataURL = Annotated[
    str,
    Field(pattern="^data:image/[^,]+;base64,"),
    AfterValidator(lambda url: base64.b64decode(url.partition(",")[2], validate=True)),
]


class EmbeddingsRequest(BaseModel):
    """The body of `POST /v1/embeddings`, as OpenAI's client sends it."""

    model: str
    input: Annotated[list[_DataURL], BeforeValidator(lambda x: [x] if isinstance(x, str) else x)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


class Form(NamedTuple):
    """The bodies that a route takes.

    Args:
        kinds: pattern of the accepted values of `Content-Type`.
        ways: what to send, for messages.
        json: the `TypeAdapter` of a body in JSON.
    """

    kinds: str
    ways: str
    json: Any


IMAGES = Form(
    "image/.*|application/octet-stream|multipart/form-data|application/json",
    "an image as the body (image/* or application/octet-stream), files in multipart/form-data, or "
    "a JSON list of images in base64 (application/json)",
    TypeAdapter(list[bytes], config={"val_json_bytes": "base64"}),
)
EMBEDDINGS = Form(
    "application/json",
    "a JSON object (application/json) with `model` and, as `input`, one image or a list of images "
    "as data URLs (data:image/png;base64,...). The server downloads no images and embeds no text",
    TypeAdapter(EmbeddingsRequest),
)


async def read_images(request: Request, settings: Settings, form: Form) -> list[bytes]:
    """Returns the encoded images of a request, at least one.

    The state of the request keeps a body of `POST /v1/embeddings` as `asked`.

    Raises:
        HTTPException: the body is too large (413), too slow (408), of another type (415) or
            malformed (400), or has too many images (413).
    """
    kind = request.headers.get("content-type", "application/octet-stream")
    kind = kind.partition(";")[0].strip().lower()
    if not re.fullmatch(form.kinds, kind):
        raise HTTPException(415, f"Content-Type {shown(kind)} is not accepted; send {form.ways}.")
    limited = Request(request.scope, _limit(request, settings.max_bytes))
    try:
        async with asyncio.timeout(settings.read_timeout):
            if kind == "multipart/form-data":
                images = await _form_files(limited)
            else:
                images = [await limited.body()]
            if kind == "application/json":
                asked = request.state.asked = form.json.validate_json(images[0])
                images = asked.input if form is EMBEDDINGS else asked
    except TimeoutError as error:
        raise HTTPException(
            408,
            f"The body did not arrive within {settings.read_timeout:g} seconds. Send it again, or "
            "start the server with a longer --read-timeout.",
            {"Connection": "close"},  # the rest of the body may never come
        ) from error
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, ("body", *fault["loc"])))
        sentence = f"{place}: {fault['msg'].rstrip('.')}; send {form.ways}."
        raise HTTPException(400, sentence) from error
    except ClientDisconnect as error:
        raise HTTPException(
            400, "The client has closed the connection before the end of the body."
        ) from error
    if images in ([], [b""]):
        raise HTTPException(400, f"The request holds no image, or an empty one; send {form.ways}.")
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
            400, f"The form cannot be read: {error.detail} Send {IMAGES.ways}."
        ) from error

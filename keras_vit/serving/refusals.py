"""The body of a refusal."""

from typing import Any

from starlette.responses import JSONResponse


def refusal(path: str, sentence: str, status: int, headers: Any = None) -> JSONResponse:
    """Returns the answer to a request that is refused: `{"detail": sentence}`.

    Under `/v1/` it has the form of OpenAI's errors; OpenAI's client hides other messages.
    """
    if "/v1/" not in path:
        return JSONResponse({"detail": sentence}, status, headers)
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": sentence, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)

"""Writes the messages about failures of the Hub: the cause, and a remedy."""

import errno
from typing import Any

_BUSY = (408, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer soon."""


class DamagedError(Exception):
    """A file arrived, but not with the bytes that the Hub announced."""


def hub_refusal(error: BaseException, repo: str, revision: str | None) -> str:
    """Returns a message with cause and remedy.

    Args:
        error: exception that a request to the Hub raised.
        repo, revision: repository and revision of the request.
    """
    from huggingface_hub import constants, errors

    page, revision = f"https://huggingface.co/{repo}", revision or "main"
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    answers: tuple[tuple[Any, str], ...] = (
        (
            errors.GatedRepoError,
            f"the repository is gated. Accept its conditions at {page} and {log_in}.",
        ),
        (
            errors.RepositoryNotFoundError,
            f"no such repository, or a private one. Check the spelling; to a private one {log_in}.",
        ),
        (
            errors.RevisionNotFoundError,
            f"the repository has no revision {revision!r}. Its branches, tags and commits are at "
            f"{page}/tree/main. Write '/' in a branch as %2F.",
        ),
        (
            errors.RemoteEntryNotFoundError,
            f"the file is not there (404). See {page}/tree/{revision}.",
        ),
        (errors.HfHubHTTPError, _status(error, log_in)),
        (
            (
                errors.OfflineModeIsEnabled,
                errors.LocalEntryNotFoundError,
                errors.RevisionResolutionError,
            ),
            f"not in the cache ({constants.HF_HUB_CACHE}), and HF_HUB_OFFLINE forbids to fetch "
            "it. Unset HF_HUB_OFFLINE, or load it once while online.",
        ),
        (
            errors.HTTPError,
            f"no connection to {constants.ENDPOINT} ({type(error).__name__}: {error}). Check the "
            "network and call again; files that are complete stay in the cache.",
        ),
        (
            DamagedError,
            f"damaged on its way: {error}. It was removed from the cache. Call again, try another "
            "network, or tell the authors.",
        ),
        (OSError, _disk_refusal(error, constants.HF_HUB_CACHE)),
        (BaseException, f"{constants.ENDPOINT} gave an answer that is no Hub's ({error!r})."),
    )
    return next(words for kind, words in answers if isinstance(error, kind))


def is_unreachable(error: BaseException) -> bool:
    """Returns whether the Hub gave no answer, so that the cache may be used."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _BUSY
    return isinstance(error, HTTPError | OfflineModeIsEnabled)


def _status(error: BaseException, log_in: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    reason = getattr(error, "server_message", None) or "no reason given"
    if status in (401, 403):
        return f"access refused ({status}: {reason}). L{log_in[1:]}, with a token that may do this."
    if status in _BUSY:
        return (
            f"the Hub is busy or down ({status}: {reason}). Try again later; "
            "https://status.huggingface.co tells more."
        )
    return f"the Hub answered {status} ({reason})."


def _disk_refusal(error: BaseException, cache: str) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left on the disk of the cache, {cache}. Make room, or set HF_HUB_CACHE to a "
            "folder on another disk."
        )
    if number is None:  # huggingface_hub's own, if fewer bytes came than were announced
        return f"the download failed. {error} Call again."
    return f"{getattr(error, 'strerror', error)}: {getattr(error, 'filename', None) or cache}."

"""Writes the messages about failures of the Hub: the cause and a fix."""

import errno
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError


class HostileError(Exception):
    """A response has a name that could become a path outside the cache, or too many bytes."""


class SlowError(Exception):
    """A response is so slow that it may never end."""


def hub_refusal(error: BaseException, repo: str, revision: str | None) -> str:
    """Returns a message with cause and fix.

    Args:
        error: exception that a request to the Hub raised.
        repo, revision: repository and revision of the request.
    """
    from huggingface_hub import constants, errors

    page, revision, hub = f"https://huggingface.co/{repo}", revision or "main", constants.ENDPOINT
    match error:
        case errors.GatedRepoError():
            words = f"the repository is gated. Accept its conditions at {page} and {_LOG_IN}."
        case errors.RepositoryNotFoundError():
            words = (
                "no such repository, or it is private. Check the spelling; for a private one "
                f"{_LOG_IN}."
            )
        case errors.RevisionNotFoundError():
            words = (
                f"the repository has no revision {revision!r}. Its branches, tags and commits are "
                f"at {page}/tree/main. Write '/' in a branch as %2F."
            )
        case errors.RemoteEntryNotFoundError():
            words = f"no such file (404). See {page}/tree/{revision}."
        case errors.HfHubHTTPError():
            words = _status(error)
        case (
            errors.OfflineModeIsEnabled()
            | errors.LocalEntryNotFoundError()
            | errors.RevisionResolutionError()
        ):
            words = (
                f"not in the cache ({constants.HF_HUB_CACHE}), and HF_HUB_OFFLINE forbids "
                "downloads. Unset HF_HUB_OFFLINE, or load it once while online."
            )
        case errors.HTTPError():
            words = (
                f"no connection to {hub} ({type(error).__name__}: {first_sentence(error)}). Check "
                "the network and try again; complete files stay in the cache."
            )
        case HostileError():
            words = (
                f"{hub} sent an invalid response: {error}. It was discarded. If HF_ENDPOINT names "
                "a mirror, unset it, or tell its owner."
            )
        case SlowError():
            words = f"{hub} is too slow: {error}. Check the network and try again."
        case OSError(errno=None):  # huggingface_hub's, if fewer bytes came than were announced
            words = f"the download failed. {first_sentence(error)}. Try again."
        case OSError():
            words = disk_refusal(error, constants.HF_HUB_CACHE, "HF_HOME or HF_HUB_CACHE")
        case _:
            fault = f"{type(error).__name__}: {first_sentence(error)}"
            check = "Check HF_ENDPOINT and the network."
            words = f"{hub} sent an invalid response ({fault}). {check}"
    return words


_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def is_busy(status: int) -> bool:
    """Whether a status says that the server may respond later."""
    return status in (408, 425, 429) or status >= 500


def is_unreachable(error: BaseException) -> bool:
    """Whether the Hub did not respond, so that the cache may be used."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return is_busy(error.response.status_code)
    # The login page of a network is not JSON, or JSON of another form.
    page = ValueError | LookupError | TypeError | AttributeError
    return isinstance(error, HTTPError | OfflineModeIsEnabled | SlowError | page)


def stated_wait(response: Any) -> int:
    """Returns the seconds that a busy server asks to wait before the next request, 0 if none."""
    from huggingface_hub.utils import parse_ratelimit_headers

    # Every response states the end of a period in its header, also while requests remain in it.
    limit = parse_ratelimit_headers(response.headers)
    if response.status_code == 429 and limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds
    stated = response.headers.get("Retry-After", "").strip()
    return int(stated[:9]) if stated.isdecimal() else 0


def first_sentence(error: BaseException) -> str:
    """Returns the first sentence of another library's message, without its advice and full stop."""
    return re.split(r"\n|\. ", str(error), maxsplit=1)[0][:500].rstrip(".")


def sent_token(error: BaseException) -> str:
    """Returns the token that was sent with the request that failed, `""` for none."""
    request = getattr(getattr(error, "response", None), "request", None)
    return request.headers.get("Authorization", "").removeprefix("Bearer ") if request else ""


def _status(error: "HfHubHTTPError") -> str:
    status, reason = error.response.status_code, error.server_message or "no reason given"
    if token := sent_token(error):
        reason = reason.replace(token, "(the token)")
    if status in (401, 403):
        return (
            f"access refused ({status}: {reason}). L{_LOG_IN[1:]}, with a token that allows this."
        )
    if not is_busy(status):
        return (
            f"the Hub responded {status} ({reason}). If this persists, ask the owner of the "
            "repository, or of a proxy or mirror (HF_ENDPOINT)."
        )
    wait = stated_wait(error.response)
    return (
        f"the Hub is busy or down ({status}: {reason}). Try again "
        f"{f'in {wait:,} s, as it asks' if wait else 'later'}; "
        "see https://status.huggingface.co."
    )


_REMEDIES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free space") | dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), "Give this user access"
)


def disk_refusal(error: OSError, cache: object, variables: str) -> str:
    """Returns a message with cause and fix.

    Args:
        error: exception that the system raised for a path in a cache.
        cache: path of the cache.
        variables: names of the environment variables that move the cache.
    """
    remedy = _REMEDIES.get(error.errno or 0, "Check this path")
    place = error.filename2 or error.filename or cache  # a rename fails at its target
    return f"{error.strerror}: {place}. {remedy}, or set {variables} to another folder."

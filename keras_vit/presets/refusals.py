"""Writes the messages about failures of the Hub: the cause, and a remedy."""

import errno
import json
import re
from typing import Any

BUSY = (408, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer soon."""


class DamagedError(Exception):
    """A file has other bytes than the Hub states."""


class HostileError(Exception):
    """An answer holds a name that could become a path outside the cache."""


class SlowError(Exception):
    """An answer comes so slowly that it may never end."""


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
        (DamagedError, str(error)),
        (
            HostileError,
            f"{constants.ENDPOINT} gave an answer that is no Hub's: {error}. Nothing was fetched. "
            "If HF_ENDPOINT names a mirror, unset it, or tell its owner.",
        ),
        (
            SlowError,
            f"{constants.ENDPOINT} is too slow: {error}. Check the network and call again.",
        ),
        (OSError, _disk_refusal(error, constants.HF_HUB_CACHE)),
        (BaseException, f"{constants.ENDPOINT} gave an answer that is no Hub's ({error!r})."),
    )
    return next(words for kind, words in answers if isinstance(error, kind))


def is_unreachable(error: BaseException) -> bool:
    """Returns whether the Hub gave no answer, so that the cache may be used."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in BUSY
    # A network's page for logging in is no JSON.
    return isinstance(error, HTTPError | OfflineModeIsEnabled | SlowError | json.JSONDecodeError)


def stated_wait(response: Any) -> int:
    """Returns the seconds that a busy server asks to wait before the next request, 0 if none."""
    stated = response.headers.get("Retry-After", "").strip()
    reset = re.search(r";\s*t\s*=\s*(\d+)", response.headers.get("ratelimit", ""))
    waits = (stated, reset[1] if reset else "")
    return max(int(wait[:9]) if wait.isdecimal() else 0 for wait in waits)


def _status(error: BaseException, log_in: str) -> str:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    reason = getattr(error, "server_message", None) or "no reason given"
    if status in (401, 403):
        return f"access refused ({status}: {reason}). L{log_in[1:]}, with a token that may do this."
    if status in BUSY:
        wait = stated_wait(response)
        return (
            f"the Hub is busy or down ({status}: {reason}). Try again "
            f"{f'in {wait:,} s, as it asks' if wait else 'later'}; "
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
    fault = f"{getattr(error, 'strerror', error)}: {getattr(error, 'filename', None) or cache}."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        fault += " Give this user access, or set HF_HOME to a folder where this user may write."
    return fault

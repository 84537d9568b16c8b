"""Rules for the repetition of requests: after which failures and pauses; the loop is tenacity's."""

import email.utils
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from keras_vit.text import log

ATTEMPTS = 4
FIRST_WAIT = 1.0
"""Seconds of the pause after the first failure, doubled after each further failure."""
LONGEST_WAIT = 60.0
"""Longest pause in seconds that a server may ask for; a request for more is a final failure."""
TRANSIENT = (408, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer soon."""


class DamagedError(Exception):
    """A file arrived with the right length, but not with the bytes that its server announced."""


def retrying(stop: Callable[[RetryCallState], bool] | None = None) -> Retrying:
    """Returns a loop over attempts, which raises a final failure or that of the last attempt.

    Args:
        stop: returns whether an attempt was the last; None stops after `ATTEMPTS`.
    """
    return Retrying(
        stop=stop or stop_after_attempt(ATTEMPTS),
        retry=retry_if_exception(may_pass),
        wait=_seconds_to_wait,
        sleep=time.sleep,
        before_sleep=lambda state: log.info("%s; trying again.", _failure(state)),
        reraise=True,
    )


def may_pass(error: BaseException) -> bool:
    """Returns whether another attempt may succeed within `LONGEST_WAIT`."""
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if (response := getattr(error, "response", None)) is not None:
        soon = (seconds_asked(response) or 0.0) <= LONGEST_WAIT
        return response.status_code in TRANSIENT and soon
    if isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled):
        return False  # huggingface_hub raises the first after five attempts of its own
    # huggingface_hub raises an OSError without errno if fewer bytes came than were announced.
    cut_short = type(error) is OSError and error.errno is None
    return cut_short or isinstance(error, HTTPError | DamagedError)


def seconds_asked(response: Any) -> float | None:
    """Returns the pause that a server asks for by a rate limit or Retry-After (RFC 9110)."""
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(response.headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    asked = response.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked)
    try:
        until = email.utils.parsedate_to_datetime(asked)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def _seconds_to_wait(state: RetryCallState) -> float:
    response = getattr(_failure(state), "response", None)
    asked = None if response is None else seconds_asked(response)
    return FIRST_WAIT * 2 ** (state.attempt_number - 1) if asked is None else asked


def _failure(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()

"""The limits of a server: sizes, counts, times and host names."""

import dataclasses

from keras_vit.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Settings:
    """The limits of a server, and the time that it waits.

    Args:
        max_batch: most images that the model computes at once.
        batch_wait: seconds that the first image of a batch waits for others.
        max_bytes: most bytes of a request's body; a request beyond it gets 413.
        max_pixels: most pixels of an image; a larger image gets 413. By default the limit
            is the value of `KERAS_VIT_MAX_PIXELS`, or 89,478,485.
        max_images: most images of a request, and never more than may wait; a request beyond it
            gets 413.
        max_queue: most images that wait for an answer; a request beyond it gets 429. A request
            counts as one image from its headers on, until its body is read.
        max_connections: most open connections; a request on another one gets 503.
        timeout: seconds from the body to the answer; a later answer becomes 503.
        read_timeout: seconds for the header of a request, and as many to read its answer, after
            which the connection is closed, and for its body; a slower body gets 408.
        drain: seconds after SIGTERM in which accepted requests are answered.
        allowed_hosts: names of the server in requests (the header `Host`), and of other sites whose
            pages may send images (the header `Origin`). Another `Host` gets 400, because a
            malicious page could reach the server through its own domain (DNS rebinding), and
            another `Origin` gets 403. `"*.example.org"` means every subdomain, and `"*"` every
            name. Numeric addresses are always allowed.

    Raises:
        ConfigError: a limit is not above 0, or a host name has a star inside.
    """

    max_batch: int = 16
    batch_wait: float = 0.005
    max_bytes: int = 10 * 2**20
    max_pixels: int | None = None
    max_images: int = 64
    max_queue: int = 128
    max_connections: int = 512
    timeout: float = 30.0
    read_timeout: float = 10.0
    drain: float = 30.0
    allowed_hosts: tuple[str, ...] = ("localhost",)

    @property
    def images_per_request(self) -> int:
        """Most images of a request: more than may wait would never be accepted."""
        return min(self.max_images, self.max_queue)

    def __post_init__(self) -> None:
        for name in self.allowed_hosts:
            if "*" in name.removeprefix("*.") and name != "*":
                raise ConfigError(
                    f"allowed_hosts: {name!r} is not a host name. A star is allowed alone, or as "
                    "the first part, as in '*.example.org'."
                )
        numbers = {name: value for name, value in vars(self).items() if name != "allowed_hosts"}
        for name, value in numbers.items():
            if not (value is None or value > 0 or (name == "batch_wait" and value == 0)):
                raise ConfigError(f"{name}={value!r}: expected a number above 0.")

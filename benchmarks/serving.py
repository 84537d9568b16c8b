"""A load test of `keras-vit serve` on 127.0.0.1, beside the model called directly.

    KERAS_BACKEND=torch python -m benchmarks.serving FILE

For each batch size, as many clients as fill two batches send JPEG photographs one after another;
they share the machine with the server. Then come 1,000 malformed requests, clients that hang, and
SIGTERM under load. Weights are random, which changes no time.
"""

import argparse
import contextlib
import http.client
import io
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from PIL import Image

import keras_vit

BATCHES = (1, 4, 8, 16)


def photographs(count: int) -> list[bytes]:
    """Returns JPEG files of 320x240 pixels, with areas and noise."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((320, 240), Image.Resampling.BICUBIC).save(file, "JPEG")
        files.append(file.getvalue())
    return files


@contextlib.contextmanager
def served(preset: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """Yields a process of `keras-vit serve`, its host and its port."""
    command = [sys.executable, "-m", "keras_vit.cli", "serve", str(preset), "--port", "0"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None  # noqa: S101  a pipe
    try:
        address = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
        if address is None:
            raise RuntimeError(process.communicate()[1])
        yield process, address.group(1), int(address.group(2))
    finally:
        process.kill()
        process.communicate()


def load(host: str, port: int, images: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Returns requests per second and latencies of clients that ask one after another."""
    latencies: list[float] = []
    statuses: Counter[int] = Counter()
    end = time.perf_counter() + seconds

    def ask(k: int) -> None:
        connection = http.client.HTTPConnection(host, port, timeout=120)
        while time.perf_counter() < end:
            start = time.perf_counter()
            connection.request("POST", "/classify", images[k % len(images)])
            answer = connection.getresponse()
            answer.read()
            latencies.append(time.perf_counter() - start)
            statuses[answer.status] += 1

    started = time.perf_counter()
    _in_threads(ask, clients)
    wall = time.perf_counter() - started
    ordered = sorted(latencies)
    return {
        "clients": clients,
        "requests": len(ordered),
        "statuses": dict(statuses),
        "requests_per_second": round(len(ordered) / wall, 2),
        "p50_ms": round(1000 * statistics.median(ordered), 1),
        "p99_ms": round(1000 * ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)], 1),
    }


def directly(model: Any, images: list[bytes], batch: int, seconds: float) -> float:
    """Returns images per second of `model.classify` with the same images and batch size."""
    some = [images[k % len(images)] for k in range(batch)]
    model.classify(some, batch_size=batch)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        model.classify(some, batch_size=batch)
        count += batch
    return round(count / (time.perf_counter() - start), 2)


def malformed(host: str, port: int, image: bytes, count: int = 1000) -> dict[str, Any]:
    """Sends random and damaged bodies; returns the statuses, and whether a good one is answered."""
    rng = np.random.default_rng(0)
    kinds = ["image/png", "application/json", "multipart/form-data; boundary=x", "", "text/html"]
    connection = http.client.HTTPConnection(host, port, timeout=120)
    statuses: Counter[int] = Counter()
    for k in range(count):
        body = bytearray(rng.bytes(int(rng.integers(0, 2000))))
        if k % 4 == 0:
            body = bytearray(image[: int(rng.integers(1, len(image)))])
        connection.request("POST", "/classify", bytes(body), {"Content-Type": kinds[k % 5]})
        answer = connection.getresponse()
        answer.read()
        statuses[answer.status] += 1
    connection.request("POST", "/classify", image)
    return {"statuses": dict(statuses), "then_a_good_one": connection.getresponse().status}


def hanging(host: str, port: int, image: bytes, count: int = 20) -> dict[str, Any]:
    """Opens connections that send half a request; returns how they end, and others' latency."""
    head = b"POST /classify HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    waiting = [socket.create_connection((host, port), 120) for _ in range(count)]
    start = time.perf_counter()
    for k, connection in enumerate(waiting):
        connection.sendall(head + b"abc" if k % 2 else head[:20])
    meanwhile = load(host, port, [image], 2, 2.0)
    ends = Counter(_read_end(connection) for connection in waiting)
    seconds = round(time.perf_counter() - start, 1)
    return {"ends": dict(ends), "seconds": seconds, "others_meanwhile": meanwhile}


def sigterm(preset: Path, image: bytes, clients: int = 16) -> dict[str, Any]:
    """Ends a server under load; returns what became of the requests.

    Each request has its own connection. One that the server has read is answered; one whose
    connection still stood in the system's queue when the port was closed was never accepted.
    """
    ends: Counter[str] = Counter()
    stop = threading.Event()

    def ask(_: int) -> None:
        while not stop.is_set():
            connection = http.client.HTTPConnection(host, port, timeout=120)
            try:
                connection.connect()
                connection.request("POST", "/classify", image)
                ends[str(connection.getresponse().status)] += 1
            except ConnectionRefusedError:
                ends["port closed"] += 1
                return
            except (ConnectionError, http.client.HTTPException):
                ends["never accepted"] += 1
            finally:
                connection.close()

    with served(preset, "--access-log") as (process, host, port):
        timer = threading.Timer(4.0, process.send_signal, [signal.SIGTERM])
        timer.start()
        _in_threads(ask, clients)
        started = time.perf_counter()
        output, errors = process.communicate(timeout=60)
        stop.set()
        answered = len(re.findall(r'"POST /classify HTTP/1.1" 200', output + errors))
        return {
            "ends": dict(ends),
            "answered_by_the_server's_log": answered,
            "cut_by_the_server": "Cancel" in errors,
            "exit_status": process.returncode,
            "seconds_to_end_after_the_last_client": round(time.perf_counter() - started, 2),
        }


def _read_end(connection: socket.socket) -> str:
    with connection:
        first = connection.recv(10_000)
        return first.split(b"\r\n")[0].decode() if first else "closed"


def _in_threads(task: Any, count: int) -> None:
    threads = [threading.Thread(target=task, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    """Writes the results to a JSON file and prints them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--variant", default="vit_s16")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    arguments = parser.parse_args()
    model = getattr(keras_vit, arguments.variant)()
    images = photographs(16)
    results: dict[str, Any] = {
        "variant": arguments.variant,
        "backend": keras.backend.backend(),
        "cores": os.cpu_count(),
        "image": "JPEG, 320x240",
        "batches": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        preset = Path(folder) / "preset"
        model.save_to_preset(preset)
        for batch in BATCHES:
            with served(preset, "--max-batch", str(batch)) as (_, host, port):
                row = load(host, port, images, 2 * batch, arguments.seconds)
            row["directly_images_per_second"] = directly(model, images, batch, arguments.seconds)
            results["batches"][batch] = row
            print(batch, row, flush=True)
        digits = keras_vit.VisionTransformer.from_preset("vit_digits")
        digits.save_to_preset(Path(folder) / "digits")
        with served(Path(folder) / "digits") as (_, host, port):
            results["vit_digits"] = load(host, port, images, 16, arguments.seconds)
            results["malformed"] = malformed(host, port, images[0])
            results["hanging"] = hanging(host, port, images[0])
        results["sigterm"] = sigterm(Path(folder) / "digits", images[0])
    print(json.dumps(results, indent=2))
    arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Photographs of a table with fruit, a mug, a die and a doughnut, computed by a path tracer.

`random_scene` draws what lies on the table, its colours, the light and the camera; `photograph`
follows rays of light through it. Surfaces are distance fields: a ray advances by the distance to
the nearest surface. A lens of finite width leaves the background out of focus, a lamp of finite
size gives soft shadows, and glazes reflect the lamp. Points and directions have the shape
(3, rays).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

NAMES = ("apple", "pear", "lemon", "mug", "doughnut", "die")
RADII = (0.78, 0.68, 0.85, 0.95, 0.95, 0.75)  # seen from above
AWAY = 60.0  # x of what does not lie on the table


class Scene(NamedTuple):
    """Everything a photograph depends on. One object of each name, in the order of `NAMES`.

    Args:
        places: centres on the table, (6, 2).
        turns: rotations about the vertical axis, (6,).
        sizes: scales, (6,).
        colours: main colours, (6, 3).
        table: two colours of the table, (2, 3).
        grain: how strong the table's rings of wood are, ().
        wall: colour of the wall, (3,).
        lamp: centre of the lamp, (3,).
        light: brightness of the lamp and of the room, (2,).
        camera: place of the camera, (3,).
        target: the point in focus, (3,).
        lens: width of the picture at distance 1, and of the lens, (2,).
    """

    places: np.ndarray
    turns: np.ndarray
    sizes: np.ndarray
    colours: np.ndarray
    table: np.ndarray
    grain: np.ndarray
    wall: np.ndarray
    lamp: np.ndarray
    light: np.ndarray
    camera: np.ndarray
    target: np.ndarray
    lens: np.ndarray


def random_scene(rng: np.random.Generator) -> tuple[Scene, np.ndarray]:
    """Draws a scene, and returns it with a 1 for each object on the table, (6,)."""
    present = rng.random(6) < 0.5
    sizes = rng.uniform(0.85, 1.2, 6)
    places = np.full((6, 2), AWAY) + np.arange(6)[:, None] * 4
    for k in rng.permutation(np.flatnonzero(present)):
        for _ in range(200):
            spot = rng.uniform((-2.2, -1.3), (2.2, 1.9))
            apart = (np.array(RADII) * sizes + RADII[k] * sizes[k]) * 0.98
            if (np.linalg.norm(places - spot, axis=1) > apart).all():
                places[k] = spot
                break
        else:
            present[k] = False
    mix = rng.random((6, 1))
    first = np.array(
        [(0.55, 0.02, 0.02), (0.45, 0.5, 0.06), (0.85, 0.6, 0.02), (0.02, 0.12, 0.3),
         (0.75, 0.2, 0.32), (0.8, 0.78, 0.72)]
    )  # fmt: skip
    second = np.array(
        [(0.3, 0.42, 0.04), (0.62, 0.5, 0.08), (0.8, 0.72, 0.1), (0.7, 0.68, 0.62),
         (0.18, 0.07, 0.03), (0.5, 0.03, 0.03)]
    )  # fmt: skip
    colours = mix * first + (1 - mix) * second
    colours[3] = rng.uniform(0.03, 0.75, 3)
    one = [0, 4, 5]  # of two kinds, with nothing in between
    colours[one] = np.where(mix[one] > 0.4, first[one], second[one])
    wood = np.array(((0.33, 0.17, 0.075), (0.2, 0.09, 0.035)))
    plain = np.repeat(rng.uniform(0.08, 0.5) * rng.uniform(0.5, 1.4, (1, 3)), 2, axis=0)
    wooden = rng.random() < 0.65
    angle, height, far = rng.uniform(-0.5, 0.5), rng.uniform(0.32, 0.75), rng.uniform(5.6, 8.0)
    flat = far * np.cos(height)
    camera = (flat * np.sin(angle), -flat * np.cos(angle), far * np.sin(height) + 0.4)
    left = rng.choice((-1, 1))
    scene = Scene(
        places, rng.uniform(0, 2 * np.pi, 6), sizes,
        np.clip(colours * rng.uniform(0.8, 1.2, (6, 3)), 0, 0.9),
        wood * rng.uniform(0.5, 2.0, (1, 1)) * rng.uniform(0.9, 1.1, (2, 3)) if wooden else plain,
        np.float64(wooden), np.clip(rng.uniform(0.08, 0.5) * rng.uniform(0.7, 1.3, 3), 0, 1),
        np.array((left * rng.uniform(2.5, 5), rng.uniform(-2.5, 2), rng.uniform(4.5, 6.5))),
        np.array((rng.uniform(0.7, 1.3), rng.uniform(0.25, 0.8))),
        np.array(camera), np.array((rng.uniform(-0.5, 0.5), rng.uniform(-0.1, 0.5), 0.5)),
        np.array((rng.uniform(0.6, 0.85), rng.uniform(0, 0.1))),
    )  # fmt: skip
    return Scene(*(np.asarray(part, "float32") for part in scene)), present.astype("float32")


# -- shapes --------------------------------------------------------------------------------------


def _smooth_min(a, b, width):
    h = jnp.maximum(width - jnp.abs(a - b), 0) / width
    return jnp.minimum(a, b) - h * h * width / 4


def _capsule(x, y, z, low, high, lean, radius):
    t = jnp.clip((z - low) / (high - low), 0, 1)
    return jnp.sqrt((x - lean * t * t) ** 2 + y * y + (z - low - (high - low) * t) ** 2) - radius


def _local(scene, k, p):
    """Returns coordinates in which object `k` stands at the origin with size 1."""
    x, y = p[0] - scene.places[k, 0], p[1] - scene.places[k, 1]
    c, s = jnp.cos(scene.turns[k]), jnp.sin(scene.turns[k])
    size = scene.sizes[k]
    return (c * x + s * y) / size, (c * y - s * x) / size, p[2] / size


def _apple(x, y, z):
    z = z - 0.56
    r = jnp.sqrt(x * x + y * y) * (1 - 0.16 * z)
    body = jnp.sqrt((r - 0.25) ** 2 + (0.94 * z) ** 2) - 0.52
    return 0.88 * jnp.minimum(body, _capsule(x, y, z, 0.35, 0.8, 0.12, 0.025))


def _pear(x, y, z):
    low = jnp.sqrt(x * x + y * y + (z - 0.6) ** 2) - 0.6
    high = jnp.sqrt((x - 0.05) ** 2 + y * y + (z - 1.28) ** 2) - 0.29
    stem = _capsule(x - 0.05, y, z, 1.5, 1.85, -0.12, 0.03)
    return 0.9 * jnp.minimum(_smooth_min(low, high, 0.55), stem)


def _lemon(x, y, z):
    z = z - 0.56
    r = jnp.sqrt(y * y + z * z)
    body = jnp.sqrt((r + 0.34) ** 2 + x * x) - 0.9
    tips = jnp.sqrt(r * r + (jnp.abs(x) - 0.79) ** 2) - 0.1
    return 0.9 * _smooth_min(body, tips, 0.22)


def _mug(x, y, z):
    r = jnp.sqrt(x * x + y * y)
    a, b = r - 0.6, jnp.abs(z - 0.72) - 0.72
    inside = jnp.minimum(jnp.maximum(a, b), -0.05) + 0.05
    outer = jnp.sqrt(jnp.maximum(a + 0.05, 0) ** 2 + jnp.maximum(b + 0.05, 0) ** 2) + inside - 0.05
    hollow = jnp.maximum(r - 0.52, 0.1 - z)
    cup = -_smooth_min(-outer, hollow, 0.06)
    ring = jnp.sqrt((x - 0.62) ** 2 + ((z - 0.74) * 0.9) ** 2) - 0.36
    handle = jnp.maximum(jnp.sqrt(ring * ring + (0.8 * y) ** 2) - 0.085, 0.55 - r)
    coffee = jnp.maximum(r - 0.53, jnp.abs(z - 0.6) - 0.6)
    return 0.9 * jnp.minimum(_smooth_min(cup, handle, 0.06), coffee)


def _doughnut(x, y, z):
    r = jnp.sqrt(x * x + y * y)
    return jnp.sqrt((r - 0.56) ** 2 + ((z - 0.33) * 1.05) ** 2) - 0.34


def _die(x, y, z):
    a, b, c = jnp.abs(x) - 0.38, jnp.abs(y) - 0.38, jnp.abs(z - 0.5) - 0.38
    out = jnp.maximum(a, 0) ** 2 + jnp.maximum(b, 0) ** 2 + jnp.maximum(c, 0) ** 2
    return jnp.sqrt(out) + jnp.minimum(jnp.maximum(a, jnp.maximum(b, c)), 0) - 0.12


SHAPES = (_apple, _pear, _lemon, _mug, _doughnut, _die)


def _distances(scene, p):
    """Returns the distance to each object, (6, rays)."""
    return [shape(*_local(scene, k, p)) * scene.sizes[k] for k, shape in enumerate(SHAPES)]


def _distance(scene, p):
    wall = 7.5 - p[1]
    return functools.reduce(jnp.minimum, _distances(scene, p), jnp.minimum(p[2], wall))


def _march(scene, start, ray, steps):
    """Returns how far each ray goes until it meets a surface."""

    def step(_, t):
        return jnp.minimum(t + _distance(scene, start + t * ray), 40.0)

    return jax.lax.fori_loop(0, steps, step, jnp.full(start.shape[1:], 0.01, start.dtype))


def _normal(scene, p):
    total = 0.0
    for signs in ((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1)):
        corner = jnp.array(signs, p.dtype)[:, None]
        total = total + corner * _distance(scene, p + 0.002 * corner)
    return _unit(total)


def _unit(v):
    return v / jnp.sqrt(jnp.maximum((v * v).sum(0), 1e-12))


# -- surfaces ------------------------------------------------------------------------------------


def _hash(*values):
    total = sum(v * w for v, w in zip(values, (12.9898, 78.233, 37.719), strict=False))
    return jnp.abs(jnp.sin(total) * 43758.547) % 1.0


def _noise(x, y):
    """Smooth noise between 0 and 1."""
    i, j = jnp.floor(x), jnp.floor(y)
    u, v = x - i, y - j
    u, v = u * u * (3 - 2 * u), v * v * (3 - 2 * v)
    low = _hash(i, j) * (1 - u) + _hash(i + 1, j) * u
    return low * (1 - v) + (_hash(i, j + 1) * (1 - u) + _hash(i + 1, j + 1) * u) * v


def _mix(share, a, b):
    """Returns `a` where `share` is 0 and `b` where it is 1; colours are (3,) or (3, rays)."""
    columns = [jnp.asarray(c)[:, None] if jnp.ndim(c) == 1 else c for c in (a, b)]
    return columns[0] * (1 - share) + columns[1] * share


def _surface(scene, p):
    """Returns colour (3, rays), gloss and roughness (rays,) of the surface at `p`."""
    x, y, z = p
    plank = jnp.floor(y / 1.3)
    warp = 6 * _noise(0.5 * x + 9 * plank, 2.2 * y) + 0.5 * _noise(5 * x, 42 * y)
    rings = (0.5 + 0.5 * jnp.sin(5 * warp + 3 * y)) * 0.6 + 0.4 * _noise(2 * x, 70 * y)
    rings = 0.5 + (rings - 0.5 + 0.35 * (_hash(plank, 1.0) - 0.5)) * scene.grain
    seam = (jnp.abs(y / 1.3 - jnp.round(y / 1.3)) < 0.008) * scene.grain
    colour = _mix(rings, scene.table[1], scene.table[0]) * (1 - 0.7 * seam)
    gloss = jnp.full_like(x, 0.035) * scene.grain
    rough = jnp.zeros_like(x)
    wall = 7.5 - y < z
    colour, gloss = jnp.where(wall, scene.wall[:, None], colour), jnp.where(wall, 0, gloss)
    distances = _distances(scene, p)
    nearest = functools.reduce(jnp.minimum, distances)
    for k, paint in enumerate((_on_apple, _on_pear, _on_lemon, _on_mug, _on_doughnut, _on_die)):
        here = (distances[k] <= nearest) & (nearest < 0.03) & (nearest < z + 0.004)
        painted, *rest = paint(scene.colours[k], *_local(scene, k, p))
        colour = jnp.where(here, painted, colour)
        gloss, rough = (jnp.where(here, *pair) for pair in zip(rest, (gloss, rough), strict=True))
    return colour, gloss, rough


def _on_apple(colour, x, y, z):
    angle = jnp.arctan2(y, x)
    streaks = _noise(5 * jnp.cos(angle) + 5, 5 * jnp.sin(angle) + 1.5 * z)
    green = jnp.clip(0.75 - 0.9 * jnp.abs(z - 0.75) + 0.8 * (streaks - 0.7), 0, 1) * 0.35
    skin = _mix(green, colour, jnp.array((0.6, 0.3, 0.05)))
    stem = (x * x + y * y < 0.03) & (z > 0.93)
    return _mix(1.0 * stem, skin, jnp.array((0.12, 0.06, 0.02))), jnp.where(stem, 0.0, 0.06), 0.01


def _on_pear(colour, x, y, z):
    dots = (_noise(34 * jnp.arctan2(y, x), 34 * z) > 0.82) * 0.3
    blush = jnp.clip(0.4 * _noise(2 * x + 3, 2 * y + z), 0, 1)
    skin = _mix(blush, colour, jnp.array((0.6, 0.22, 0.05)))
    stem = z > 1.58
    skin = _mix(jnp.where(stem, 0.95, dots), skin, jnp.array((0.14, 0.08, 0.03)))
    return skin, jnp.where(stem, 0.0, 0.035), 0.02


def _on_lemon(colour, x, y, z):
    tip = jnp.clip(8 * (jnp.abs(x) - 0.8), 0, 0.4)
    return _mix(tip, colour, jnp.array((0.45, 0.42, 0.06))), 0.045, 0.08


def _on_mug(colour, x, y, z):
    r = jnp.sqrt(x * x + y * y)
    white = ((r < 0.56) & (z > 0.15)) | (z > 1.37)
    coffee = (r < 0.525) & (z < 1.22) & (z > 1.0)
    glaze = _mix(0.9 * white, colour, jnp.array((0.78, 0.76, 0.7)))
    return _mix(1.0 * coffee, glaze, jnp.array((0.05, 0.02, 0.008))), 0.08, 0.0


def _on_doughnut(colour, x, y, z):
    angle = jnp.arctan2(y, x)
    iced = z > 0.36 + 0.05 * jnp.sin(5 * angle) + 0.04 * jnp.sin(9 * angle + 1)
    # Sprinkles: one short stroke of random direction and colour in most cells of a grid.
    u, v = 7.5 * x, 7.5 * y
    i, j = jnp.floor(u), jnp.floor(v)
    turn = 6.283 * _hash(i, j)
    du = u - i - 0.5 - 0.3 * (_hash(i, j, 2.0) - 0.5)
    dv = v - j - 0.5 - 0.3 * (_hash(i, j, 3.0) - 0.5)
    along, across = (
        du * jnp.cos(turn) + dv * jnp.sin(turn),
        dv * jnp.cos(turn) - du * jnp.sin(turn),
    )
    stroke = iced & (jnp.abs(along) < 0.3) & (jnp.abs(across) < 0.1) & (_hash(i, j, 5.0) < 0.75)
    hue = _hash(i, j, 7.0)
    tint = jnp.stack([jnp.abs((hue * 6 + shift) % 6 - 3) - 1 for shift in (0, 4, 2)])
    dough = _mix(jnp.clip(3.5 * jnp.abs(z - 0.36) - 0.1, 0, 1), jnp.array((0.62, 0.4, 0.17)),
                 jnp.array((0.4, 0.17, 0.045)))  # fmt: skip
    skin = jnp.where(iced, colour[:, None], dough)
    skin = jnp.where(stroke, 0.15 + 0.7 * jnp.clip(tint, 0, 1), skin)
    return skin, jnp.where(iced, 0.06, 0.0), jnp.where(iced, 0.03, 0.1)


def _on_die(colour, x, y, z):
    a, b, c = x, y, z - 0.5
    dark = jnp.zeros_like(x, bool)
    pips = {1: ((0, 0),), 2: ((-1, -1), (1, 1)), 3: ((-1, -1), (0, 0), (1, 1)),
            5: ((-1, -1), (-1, 1), (0, 0), (1, -1), (1, 1)),
            6: ((-1, -1), (-1, 0), (-1, 1), (1, -1), (1, 0), (1, 1))}  # fmt: skip
    for side, u, v, count in (
        (c, a, b, 5),
        (a, b, c, 3),
        (-a, b, c, 6),
        (b, a, c, 2),
        (-b, a, c, 6),
    ):
        for m, n in pips[count]:
            dark |= (side > 0.47) & ((u - 0.23 * m) ** 2 + (v - 0.23 * n) ** 2 < 0.0085)
    ink = jnp.where(colour.min() < 0.3, 0.85, 0.02)
    return _mix(1.0 * dark, colour, jnp.full(3, 1.0) * ink), jnp.where(dark, 0.02, 0.05), 0.0


# -- light ---------------------------------------------------------------------------------------


def _room(scene, ray, lamp_seen):
    """Returns the light from where no object is: a dim room, and the lamp in reflections."""
    up = 0.5 + 0.5 * ray[2]
    dim = jnp.array((0.62, 0.7, 0.85))[:, None] * (0.25 + 0.75 * up) * scene.light[1]
    toward = (ray * _unit(scene.lamp[:, None] - jnp.array((0, 0, 0.6))[:, None])).sum(0)
    window = jax.nn.sigmoid((toward - 0.955) * 300) * lamp_seen
    return dim + 9 * scene.light[0] * window


@functools.partial(jax.jit, static_argnames=("bounces", "steps"))
def _trace(scene, start, ray, key, bounces, steps):
    """Returns the light that comes back along each ray, (3, rays)."""
    light, weight = jnp.zeros_like(start), jnp.ones_like(start)
    specular = jnp.ones_like(start[0])
    for key_here in jax.random.split(key, bounces):
        t = _march(scene, start, ray, steps)
        met = t < 39.0
        light += weight * jnp.where(met, 0, _room(scene, ray, specular))
        weight *= met
        p = start + t * ray
        normal = _normal(scene, p)
        colour, gloss, rough = _surface(scene, p)
        normal = _unit(normal + rough * jnp.sin(41 * p + 2 * jnp.cos(37 * p[jnp.array((1, 2, 0))])))
        p = p + 0.006 * normal
        draws = jax.random.uniform(key_here, (5, *t.shape))
        # The lamp: a random point on it, if nothing is in between.
        spot = scene.lamp[:, None] + jnp.stack([1.1, 1.1, 0.4])[:, None] * (2 * draws[:3] - 1)
        toward = spot - p
        far = jnp.sqrt((toward * toward).sum(0))
        toward = toward / far
        clear = _march(scene, p, toward, steps * 2 // 3) > far
        facing = jnp.maximum((normal * toward).sum(0), 0) * clear
        warm = jnp.array((1.0, 0.9, 0.76))[:, None]
        cosine = jnp.clip(-(normal * ray).sum(0), 0, 1)
        mirror = (gloss + (1 - gloss) * (1 - cosine) ** 5) * (gloss > 0)
        light += weight * (1 - mirror) * colour * warm * 42 * scene.light[0] * facing / far**2
        # Onward: reflected by the glaze, or scattered.
        reflected = draws[3] < mirror
        angle = 2 * jnp.pi * draws[4]
        height = 2 * draws[0] - 1
        ring = jnp.sqrt(jnp.maximum(1 - height * height, 0))
        ball = jnp.stack([ring * jnp.cos(angle), ring * jnp.sin(angle), height])
        bounced = ray - 2 * (normal * ray).sum(0) * normal
        ray = jnp.where(reflected, _unit(bounced), _unit(normal + 0.999 * ball))
        weight *= jnp.where(reflected, 1.0, colour)
        specular = jnp.where(reflected, 1.0, 0.0)
        start = p
    return light + weight * _room(scene, ray, specular) * 0.35


@functools.partial(jax.jit, static_argnames=("size", "steps"))
def outlines(scene: Scene, *, size: int, steps: int = 36) -> jax.Array:
    """Returns which object each pixel shows, (size, size, 6)."""
    centre = (jnp.arange(size) + 0.5) / size - 0.5
    v, u = jnp.meshgrid(centre, centre, indexing="ij")
    ray = _aim(scene, u.ravel(), v.ravel())
    start = scene.camera[:, None] + jnp.zeros_like(ray)
    p = start + _march(scene, start, ray, steps) * ray
    shown = jnp.stack([d < jnp.minimum(0.03, p[2] + 0.004) for d in _distances(scene, p)], axis=-1)
    return shown.reshape(size, size, len(NAMES))


def _aim(scene, u, v):
    """Returns the directions of points of the picture, which go from -0.5 to 0.5."""
    forward = _unit(scene.target - scene.camera)
    right = _unit(jnp.cross(forward, jnp.array((0.0, 0, 1))))
    down = jnp.cross(forward, right)
    plane = right[:, None] * u + down[:, None] * v
    return _unit(forward[:, None] + plane * scene.lens[0])


@functools.partial(jax.jit, static_argnames=("size", "samples", "bounces", "steps"))
def _exposure(scene, key, *, size, samples, bounces, steps):
    """Returns the mean light of `samples` rays per pixel, (size, size, 3)."""
    forward = _unit(scene.target - scene.camera)[:, None]
    right = _aim(scene, jnp.array([1e4]), jnp.zeros(1))
    down = _aim(scene, jnp.zeros(1), jnp.array([1e4]))
    focus = jnp.sqrt(((scene.target - scene.camera) ** 2).sum())
    rows, columns = jnp.meshgrid(jnp.arange(size), jnp.arange(size), indexing="ij")

    def sample(k, total):
        shift, aperture, path = jax.random.split(jax.random.fold_in(key, k), 3)
        jitter = jax.random.uniform(shift, (2, size, size))
        v, u = (((axis + jitter[k]) / size - 0.5).ravel() for k, axis in enumerate((rows, columns)))
        aim = _aim(scene, u, v)
        sharp = scene.camera[:, None] + focus * aim / (aim * forward).sum(0)
        radius, turn = jax.random.uniform(aperture, (2, size * size))
        radius, turn = jnp.sqrt(radius) * scene.lens[1], 2 * jnp.pi * turn
        start = scene.camera[:, None] + radius * (right * jnp.cos(turn) + down * jnp.sin(turn))
        light = _trace(scene, start, _unit(sharp - start), path, bounces, steps)
        return total + jnp.minimum(light, 6.0)

    total = jax.lax.fori_loop(0, samples, sample, jnp.zeros((3, size * size)))
    return (total / samples).reshape(3, size, size).transpose(1, 2, 0)


def photograph(
    scene: Scene, *, size: int, samples: int, bounces: int = 3, steps: int = 56, seed: int = 0
) -> np.ndarray:
    """Returns the photograph as uint8, (size, size, 3): exposed, with the curve of a film."""
    arguments = {"size": size, "samples": samples, "bounces": bounces, "steps": steps}
    light = _exposure(jax.tree.map(jnp.asarray, scene), jax.random.key(seed), **arguments)
    return develop(np.asarray(light))


def develop(light: np.ndarray) -> np.ndarray:
    """Returns light as uint8 pixels: highlights are compressed, then the gamma of sRGB."""
    curve = light * (2.51 * light + 0.03) / (light * (2.43 * light + 0.59) + 0.14)
    return np.round(255 * np.clip(curve, 0, 1) ** (1 / 2.2)).astype("uint8")

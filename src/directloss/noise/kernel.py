"""Gumbel and normal draws on the CPU: counter-based random bits (Philox4x32-10) to draws in one vectorised pass.

torch draws uniforms one after the other and then walks the tensor once for each operation. Here it is one walk, and
parts can be drawn by several threads, because each number depends only on its index and the key.
"""

import numpy as np

from directloss.compiling import kernel, part

EULER_GAMMA = np.float32(0.5772156649015329)

_CHUNK = 2048

_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)

_SQRT_HALF = np.float32(0.7071067811865476)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_COEFFICIENTS = tuple(
    np.float32(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
# Of sine and cosine between -pi / 4 and pi / 4, as of the logarithm above: Cephes, to about one unit in the last place.
_SINE = np.float32(-1.9515295891e-4), np.float32(8.3321608736e-3), np.float32(-1.6666654611e-1)
_COSINE = np.float32(2.443315711809948e-5), np.float32(-1.388731625493765e-3), np.float32(4.166664568298827e-2)
_QUARTER_TURN = np.float32(1.5707963267948966)


@part()
def _round(a, b, c, d, low_key, high_key):
    p, q = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
    return (q >> _WORD) ^ b ^ low_key, q & _LOW, (p >> _WORD) ^ d ^ high_key, p & _LOW


@part()
def _philox(index, keys):
    """Four words of 32 random bits for one counter. Written out: LLVM vectorises only innermost loops."""
    a, b, c, d = index & _LOW, index >> _WORD, np.uint64(0), np.uint64(0)
    a, b, c, d = _round(a, b, c, d, keys[0][0], keys[0][1])
    a, b, c, d = _round(a, b, c, d, keys[1][0], keys[1][1])
    a, b, c, d = _round(a, b, c, d, keys[2][0], keys[2][1])
    a, b, c, d = _round(a, b, c, d, keys[3][0], keys[3][1])
    a, b, c, d = _round(a, b, c, d, keys[4][0], keys[4][1])
    a, b, c, d = _round(a, b, c, d, keys[5][0], keys[5][1])
    a, b, c, d = _round(a, b, c, d, keys[6][0], keys[6][1])
    a, b, c, d = _round(a, b, c, d, keys[7][0], keys[7][1])
    a, b, c, d = _round(a, b, c, d, keys[8][0], keys[8][1])
    return _round(a, b, c, d, keys[9][0], keys[9][1])


@part()
def _open_interval(word):
    """32 random bits to (k + 1/2) / 2^23, exact in float32."""
    return (np.float32(np.int32(word >> np.uint64(9))) + np.float32(0.5)) * np.float32(2.0**-23)


@part()
def _uniforms(one, two, three, four, first, keys):
    for index in range(one.shape[0]):
        a, b, c, d = _philox(np.uint64(first + index), keys)
        one[index] = _open_interval(a)
        two[index] = _open_interval(b)
        three[index] = _open_interval(c)
        four[index] = _open_interval(d)


@part()
def _log(x):
    """Natural logarithm of a positive normal float32, to about one unit in the last place."""
    bits = np.float32(x).view(np.int32)
    exponent = np.float32((bits >> np.int32(23)) - np.int32(126))
    mantissa = np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)).view(np.float32)
    small = mantissa < _SQRT_HALF
    exponent = exponent - np.float32(1.0) if small else exponent
    m = (mantissa + mantissa if small else mantissa) - np.float32(1.0)
    y = _COEFFICIENTS[0]
    y = y * m + _COEFFICIENTS[1]
    y = y * m + _COEFFICIENTS[2]
    y = y * m + _COEFFICIENTS[3]
    y = y * m + _COEFFICIENTS[4]
    y = y * m + _COEFFICIENTS[5]
    y = y * m + _COEFFICIENTS[6]
    y = y * m + _COEFFICIENTS[7]
    y = y * m + _COEFFICIENTS[8]
    z = m * m
    y = y * m * z + exponent * _LN2_LOW - np.float32(0.5) * z
    return m + y + exponent * _LN2_HIGH


@part(fastmath={"contract", "nsz"})
def _to_gumbel(out):
    for index in range(out.shape[0]):
        out[index] = -_log(-_log(out[index])) - EULER_GAMMA


@part(fastmath={"contract", "nsz"})
def _to_normal(one, two):
    """Two uniforms to two independent normals (Box and Muller 1958): a radius and an angle, quarter turns apart."""
    for index in range(one.shape[0]):
        radius = np.sqrt(np.float32(-2.0) * _log(one[index]))
        quarters = np.float32(4.0) * two[index]
        quarter = np.int32(quarters)
        x = (quarters - np.float32(quarter) - np.float32(0.5)) * _QUARTER_TURN
        z = x * x
        sine = x + x * z * ((_SINE[0] * z + _SINE[1]) * z + _SINE[2])
        cosine = np.float32(1.0) - np.float32(0.5) * z + z * z * ((_COSINE[0] * z + _COSINE[1]) * z + _COSINE[2])
        odd = quarter & np.int32(1) != 0
        signed = -radius if quarter & np.int32(2) != 0 else radius
        one[index] = signed * (sine if odd else cosine)
        two[index] = signed * (-cosine if odd else sine)


@part()
def _next(key):
    return (key[0] + _KEY_STEPS[0]) & _LOW, (key[1] + _KEY_STEPS[1]) & _LOW


@kernel
def draw(out, key, normal, scale, first, last):
    """Normal or zero-mean Gumbel draws times ``scale`` at the counters first..last, to ``out`` (blocks, length).

    A counter gives four numbers, which stand a quarter of all apart, in ``out`` read block after block.
    """
    size = out.size
    quarter = (size + 3) // 4
    k0 = key & _LOW, key >> _WORD
    k1 = _next(k0)
    k2 = _next(k1)
    k3 = _next(k2)
    k4 = _next(k3)
    k5 = _next(k4)
    k6 = _next(k5)
    k7 = _next(k6)
    k8 = _next(k7)
    keys = k0, k1, k2, k3, k4, k5, k6, k7, k8, _next(k8)
    # Small enough to stay in the first cache from the random bits to the last logarithm.
    words = np.empty((4, _CHUNK), np.float32)
    for start in range(first, last, _CHUNK):
        count = min(_CHUNK, last - start)
        _uniforms(words[0][:count], words[1][:count], words[2][:count], words[3][:count], start, keys)
        if normal:
            _to_normal(words[0][:count], words[1][:count])
            _to_normal(words[2][:count], words[3][:count])
        else:
            for word in range(4):
                _to_gumbel(words[word][:count])
        for word in range(4):
            _write(words[word][:count], scale, out, word * quarter + start, size)
    return 0


@part()
def _write(part, scale, out, start, size):
    """Write draws at ``start`` of all ``out``, as far as it goes."""
    length = out.shape[1]
    done, count = 0, min(part.shape[0], size - start)
    while done < count:
        block, offset = (start + done) // length, (start + done) % length
        fits = min(count - done, length - offset)
        target, source = out[block], part[done : done + fits]
        for index in range(fits):
            target[offset + index] = source[index] * scale
        done += fits

"""Tiles: loaded, stored and multiplied. DT is the dtype in which matrices are multiplied, here and elsewhere.

The result of a product is never transposed to be the left factor of another: Triton 3.4 to 3.7.0 miscompile
that on Hopper. What is needed transposed is computed, or loaded, transposed.
"""

import triton
import triton.language as tl


@triton.jit
def dot(a, b, DT: tl.constexpr, onto=None):
    """Return a @ b, accumulated in float32 `onto` what is given.

    float32 factors have 22 bits, in three products of TF32.
    """
    if DT == tl.float32:
        high_a, low_a = rounded_tf32(a.to(DT))
        high_b, low_b = rounded_tf32(b.to(DT))
        small = product_onto(high_a, low_b, product_onto(low_a, high_b, onto))
        product = product_onto(high_a, high_b, small)
    else:
        product = product_onto(a.to(DT), b.to(DT), onto)
    return product


@triton.jit
def product_onto(a, b, onto):
    """Return a @ b, added to `onto` if that is not None.

    Triton 3.3 does not take None for an accumulator.
    """
    if onto is None:
        product = tl.dot(a, b, input_precision="tf32")
    else:
        product = tl.dot(a, b, onto, input_precision="tf32")
    return product


@triton.jit
def rounded_tf32(x):
    """Split x [.., ..] in float32 into one of the 11 bits that a TF32 product reads, and the rest.

    Triton's own "tf32x3" does as much, but also looks for infinities, in a quarter more instructions and
    twice the shared memory.
    """
    high = ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def halved(x):
    """Split x [.., ..] in float32 into two bfloat16 that add up to it, to 16 bits."""
    high = ((x.to(tl.int32, bitcast=True) + 32768) & -65536).to(tl.float32, bitcast=True)
    return high.to(tl.bfloat16), (x - high).to(tl.bfloat16)


@triton.jit
def sum_dot(ones, x, DT: tl.constexpr):
    """Return ones @ x for a matrix of zeros and ones: sums of log decays, in float32.

    They are exact to 16 bits and more where the factors have 8.
    """
    if DT == tl.float32:
        high, low = rounded_tf32(x)
        summed = tl.dot(
            tl.where(ones, 1.0, 0.0),
            high,
            tl.dot(tl.where(ones, 1.0, 0.0), low, input_precision="tf32"),
            input_precision="tf32",
        )
    else:
        high, low = halved(x)
        summed = tl.dot(
            tl.where(ones, 1.0, 0.0).to(tl.bfloat16),
            high,
            tl.dot(tl.where(ones, 1.0, 0.0).to(tl.bfloat16), low),
        )
    return summed


@triton.jit
def sum_dot_transposed(x, ones, DT: tl.constexpr):
    """Return x @ ones, as `sum_dot`."""
    if DT == tl.float32:
        high, low = rounded_tf32(x)
        summed = tl.dot(
            high,
            tl.where(ones, 1.0, 0.0),
            tl.dot(low, tl.where(ones, 1.0, 0.0), input_precision="tf32"),
            input_precision="tf32",
        )
    else:
        high, low = halved(x)
        summed = tl.dot(
            high,
            tl.where(ones, 1.0, 0.0).to(tl.bfloat16),
            tl.dot(low, tl.where(ones, 1.0, 0.0).to(tl.bfloat16)),
        )
    return summed


@triton.jit
def extended_dot(a, b, DT: tl.constexpr, onto=None):
    """Return `dot`, with a float32 factor to 16 bits beside 16-bit inputs, as the sum of two halves.

    A factor of DT is taken as it is.
    """
    if DT == tl.float32:
        product = dot(a, b, DT, onto)
    elif a.dtype == tl.float32:
        high, low = halved(a)
        if b.dtype == tl.float32:
            high_b, low_b = halved(b)
            product = dot(high, high_b, DT, dot(low, high_b, DT, dot(high, low_b, DT, onto)))
        else:
            product = dot(high, b, DT, dot(low, b, DT, onto))
    elif b.dtype == tl.float32:
        high, low = halved(b)
        product = dot(a, high, DT, dot(a, low, DT, onto))
    else:
        product = dot(a, b, DT, onto)
    return product


@triton.jit
def wide_dot(a, b, DT: tl.constexpr, onto=None):
    """Return `dot` of float32 factors, which beside 16-bit inputs count to the 11 bits of TF32."""
    if DT == tl.float32:
        product = dot(a, b, DT, onto)
    else:
        product = product_onto(a, b, onto)
    return product


@triton.jit
def rounded(x, EXTENDED: tl.constexpr, DT: tl.constexpr):
    """Return x as a factor of `extended_dot`: as it is if EXTENDED, else in DT."""
    if not EXTENDED:
        x = x.to(DT)
    return x


@triton.jit
def exact_dot(a, b, EXTENDED: tl.constexpr, DT: tl.constexpr):
    """Return a @ b of two float32 matrices, of which a triangular inverse is made.

    It is in float32, or beside 16-bit inputs with factors of 11 bits, of 16 if EXTENDED.
    """
    if EXTENDED:
        product = extended_dot(a, b, tl.bfloat16)
    else:
        product = tl.dot(a, b, input_precision="ieee" if DT == tl.float32 else "tf32")
    return product


@triton.jit
def token_of(t, T, FIRST: tl.constexpr, STEPS: tl.constexpr):
    """Return the token whose FIRST or last step each of steps t is; T where it is neither.

    There are STEPS for every token and T in all. Keys, values and beta have a row for every step. A decay,
    which comes with the first, and q and o, which come with the last or, read before the write, with the
    first, have one for every token.
    """
    if STEPS == 1:
        token = t
    else:
        token = tl.where(t % STEPS == (0 if FIRST else STEPS - 1), t // STEPS, T)
    return token


@triton.jit
def load_rows(base, rows, T, stride, columns, width):
    """Load [len(rows), len(columns)] of a row-major matrix with T rows; zero outside."""
    return tl.load(
        base + rows[:, None] * stride + columns[None, :],
        mask=(rows[:, None] < T) & (columns[None, :] < width),
        other=0.0,
    )


@triton.jit
def load_transposed(base, rows, T, stride, columns, width):
    """Load the transpose of `load_rows`: [len(columns), len(rows)]."""
    return tl.load(
        base + rows[None, :] * stride + columns[:, None],
        mask=(rows[None, :] < T) & (columns[:, None] < width),
        other=0.0,
    )


@triton.jit
def store_rows(base, rows, T, stride, columns, width, x):
    """Store where `load_rows` would read."""
    tl.store(
        base + rows[:, None] * stride + columns[None, :],
        x.to(base.dtype.element_ty),
        mask=(rows[:, None] < T) & (columns[None, :] < width),
    )


@triton.jit
def load_square(base, C: tl.constexpr):
    """Load a stored [C, C]."""
    i = tl.arange(0, C)
    return tl.load(base + i[:, None] * C + i[None, :])


@triton.jit
def load_square_transposed(base, C: tl.constexpr):
    """Load the transpose of `load_square`."""
    i = tl.arange(0, C)
    return tl.load(base + i[None, :] * C + i[:, None])


@triton.jit
def store_square(base, C: tl.constexpr, x):
    """Store where `load_square` would read."""
    i = tl.arange(0, C)
    tl.store(base + i[:, None] * C + i[None, :], x.to(base.dtype.element_ty))

"""Random numbers that are a function of (seed, epoch, sample, draw) and of nothing else, for many samples at once.

Philox4x32-10: ten rounds of multiplying and mixing turn a counter of four 32-bit words under a key of two into four
random words. numpy's own Philox makes one stream per object; here every sample of a batch has a counter of its own.

    key      seed, low and high half
    counter  number of the block of four draws, epoch, sample, low and high half

Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011), section 3.3.
"""

from __future__ import annotations

import numpy as np

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85  # what each round adds to the key
ROUNDS = 10
WORD = 0xFFFFFFFF
HALF = np.uint64(32)
LOW = np.uint64(WORD)


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Return four random words for each counter: 32 bits each, uint64 of (4, ...) as the counter."""
    first, second, third, fourth = counter.astype(np.uint64)
    key_0, key_1 = key
    for _ in range(ROUNDS):
        product_0, product_1 = MULTIPLIERS[0] * first, MULTIPLIERS[1] * third
        first, second, third, fourth = (
            (product_1 >> HALF) ^ second ^ np.uint64(key_0),
            product_1 & LOW,
            (product_0 >> HALF) ^ fourth ^ np.uint64(key_1),
            product_0 & LOW,
        )
        key_0, key_1 = (key_0 + WEYL[0]) & WORD, (key_1 + WEYL[1]) & WORD
    return np.stack([first, second, third, fourth])


def uniforms(seed: int, epochs: np.ndarray, samples: np.ndarray, draws: int) -> np.ndarray:
    """Return `draws` numbers in [0, 1) for each sample, float64 of (n, draws); `epochs` and `samples` are (n,).

    The seed has 64 bits, an epoch 32. Fewer draws are the first of more.
    """
    blocks = -(-draws // 4)
    counter = np.empty((4, len(samples), blocks), np.uint64)
    counter[0] = np.arange(blocks)
    counter[1] = epochs[:, None]
    counter[2] = samples[:, None] & WORD
    counter[3] = samples[:, None] >> 32
    words = philox(counter, (seed & WORD, seed >> 32 & WORD))
    return words.transpose(1, 2, 0).reshape(len(samples), -1)[:, :draws] / 2.0**32

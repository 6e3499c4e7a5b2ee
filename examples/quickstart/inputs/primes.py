"""Prime numbers by the sieve of Eratosthenes."""

from collections.abc import Iterator
from itertools import compress


def primes(limit: int) -> Iterator[int]:
    """Yield the primes below ``limit``, in order."""
    sieve = bytearray([1]) * limit
    sieve[:2] = bytes(min(limit, 2))
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return compress(range(limit), sieve)


if __name__ == "__main__":
    print(*primes(100))

"""A group's collectives by steps of our own, with non-blocking messages between pairs of ranks.

Ring: in each of p - 1 steps every member sends a piece to its successor and receives one from its predecessor. A piece
is cut into chunks, and a chunk goes on as soon as it has come (and, in a reduce-scatter, has been added), so the link
stays full in both directions.

    step 0    0 --piece 2--> 1 --piece 0--> 2 --piece 1--> 0      after p - 1 steps member i holds piece i of the sum
    step 1    0 --piece 1--> 1 --piece 2--> 2 --piece 0--> 0

Halving (a power of two of members): log2 p exchanges, each of half of what is left, with the farthest partner first.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives import Pieces, Start
from nnabla_torus.collectives.mpi import MpiCollectives
from nnabla_torus.plan import split

# Bytes of a chunk: large enough that a message costs little beside it, small enough that the first goes on early.
CHUNK_B = 256 * 1024


class RingCollectives(MpiCollectives):
    """Reduce-scatter, all-gather and all-reduce around the ring of the group's members; the rest is the library's."""

    def reduce_scatter(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Pass partial sums around: each piece ends at its owner, who adds last."""
        received = np.empty(max(stop - start for start, stop in pieces), view.dtype)
        steps = [_chunks(view[slice(*pieces[(self.rank - step - 1) % self.size])]) for step in range(self.size)]

        def start() -> None:
            sent = [self._send(chunk) for chunk in steps[0]]
            for mine in steps[1:]:  # what comes in this step, and goes on in the next
                places = _chunks(received[: sum(map(len, mine))])
                coming = [self._receive(place) for place in places]
                MPI.Request.Waitall(sent)
                sent = []
                for request, place, chunk in zip(coming, places, mine):
                    request.Wait()
                    np.add(chunk, place, chunk)
                    if mine is not steps[-1]:
                        sent.append(self._send(chunk))

        return start

    def all_gather(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Pass finished pieces around."""
        steps = [_chunks(view[slice(*pieces[(self.rank - step) % self.size])]) for step in range(self.size)]

        def start() -> None:
            sent = [self._send(chunk) for chunk in steps[0]]
            for mine in steps[1:]:
                for request, chunk in [(self._receive(chunk), chunk) for chunk in mine]:
                    request.Wait()
                    if mine is not steps[-1]:
                        sent.append(self._send(chunk))
            MPI.Request.Waitall(sent)

        return start

    def all_reduce(self, view: np.ndarray) -> Start:
        """Reduce-scatter, then all-gather."""
        pieces = split(0, len(view), self.size)
        reduce_scatter, all_gather = self.reduce_scatter(view, pieces), self.all_gather(view, pieces)

        def start() -> None:
            reduce_scatter()
            all_gather()

        return start

    def _send(self, chunk: np.ndarray) -> MPI.Request:
        return self.comm.Isend(chunk, (self.rank + 1) % self.size)

    def _receive(self, place: np.ndarray) -> MPI.Request:
        return self.comm.Irecv(place, (self.rank - 1) % self.size)


class HalvingCollectives(RingCollectives):
    """Recursive halving and doubling where the members are a power of two, the ring elsewhere."""

    def reduce_scatter(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Keep one half of what is left and add the partner's to it, until one's own piece is left."""
        if self.size & (self.size - 1):
            return super().reduce_scatter(view, pieces)
        exchanges = []
        first, last, distance = 0, self.size, self.size // 2
        while distance:
            middle = first + distance
            upper = self.rank >= middle
            low, high = view[pieces[first][0] : pieces[middle][0]], view[pieces[middle][0] : pieces[last - 1][1]]
            kept, given = (high, low) if upper else (low, high)
            exchanges.append((self.rank ^ distance, given, kept, np.empty_like(kept)))
            first, last = (middle, last) if upper else (first, middle)
            distance //= 2

        def start() -> None:
            for partner, given, kept, received in exchanges:
                self._exchange(partner, given, received)
                np.add(kept, received, kept)

        return start

    def all_gather(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Exchange what one has with the partner, the nearest first, until it is everything."""
        if self.size & (self.size - 1):
            return super().all_gather(view, pieces)
        exchanges = []
        distance = 1
        while distance < self.size:
            first = self.rank // distance * distance
            theirs = first ^ distance
            own = view[pieces[first][0] : pieces[first + distance - 1][1]]
            other = view[pieces[theirs][0] : pieces[theirs + distance - 1][1]]
            exchanges.append((self.rank ^ distance, own, other))
            distance *= 2

        def start() -> None:
            for partner, own, other in exchanges:
                self._exchange(partner, own, other)

        return start

    def _exchange(self, partner: int, given: np.ndarray, received: np.ndarray) -> None:
        """Swap two views with a partner, in chunks."""
        MPI.Request.Waitall(
            [self.comm.Irecv(chunk, partner) for chunk in _chunks(received)]
            + [self.comm.Isend(chunk, partner) for chunk in _chunks(given)]
        )


def _chunks(piece: np.ndarray) -> list[np.ndarray]:
    step = max(CHUNK_B // piece.itemsize, 1)
    return [piece[at : at + step] for at in range(0, len(piece), step)]

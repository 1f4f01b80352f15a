"""Gradients in flat buffers, summed over the ranks.

    parameters      conv/W   bn/gamma   bn/beta   ...   affine/W   affine/b
    flat buffer   | affine/W | affine/b | ... | bn/beta | bn/gamma | conv/W | pad |

Gradients lie in the order in which backward finishes them. Each parameter's gradient is a view into the buffer, so
backward writes where the exchange reads, and nothing is packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import nnabla as nn
import numpy as np

from nnabla_torus.collectives import Start
from nnabla_torus.communicators.mpi import MpiCommunicator


@dataclass(frozen=True)
class Placement:
    """Where one parameter's gradient lies: its name, its buffer's dtype, and the elements [start, stop) there."""

    parameter: str
    dtype: str
    start: int
    stop: int


class GradientExchange:
    """Runs backward and sums the gradients of `parameters` over all ranks of `communicator`.

    The order and the dtypes of the gradients are learned from the first backward, on the lowest rank that has a loss,
    and told to the others; then `placements` says where each gradient lies and `algorithms` how each buffer travels.
    Every rank must make one, with equal parameters. Gradients only add: divide the loss by the global batch.
    """

    def __init__(self, communicator: MpiCommunicator, parameters: Mapping[str, nn.Variable]) -> None:
        self.communicator = communicator
        self.parameters = dict(parameters)
        self.placements: list[Placement] = []
        self._buffers: list[nn.NdArray] = []
        self._exchanges: list[Start] = []

    @property
    def algorithms(self) -> list[str]:
        """What was taken for each buffer."""
        return [self.communicator.choice(buffer) for buffer in self._buffers]

    def backward(self, loss: nn.Variable | None) -> None:
        """Leave the sum over ranks of the gradients of `loss` in every parameter's `grad`.

        None stands for a rank without samples in this step: it brings zeros and takes part. Raises ValueError when no
        rank has a loss in the first call.
        """
        if not self._buffers:
            self._lay_out(loss)
        else:
            for buffer in self._buffers:
                buffer.data[:] = 0
            if loss is not None:
                loss.backward(clear_buffer=True)
        for exchange in self._exchanges:
            exchange()

    def _lay_out(self, loss: nn.Variable | None) -> None:
        """Run the first backward, learn the order of gradients from it, and move every gradient to its place."""
        learned = None if loss is None else self._learn(loss)
        order = next((order for order in self.communicator.mpi.allgather(learned) if order is not None), None)
        if order is None:
            raise ValueError("no rank has a loss in the first backward; at least one rank needs samples")
        ends: dict[str, int] = {}
        for name, dtype in order:
            start = ends.get(dtype, 0)
            ends[dtype] = start + self.parameters[name].size
            self.placements.append(Placement(name, dtype, start, ends[dtype]))
        for dtype, end in ends.items():
            padded = -(-end // self.communicator.size) * self.communicator.size
            buffer = self.communicator.allocate(padded, np.dtype(dtype))
            for place in self.placements:
                if place.dtype == dtype:
                    parameter = self.parameters[place.parameter]
                    gradient = None if loss is None else parameter.g.copy()
                    parameter.grad = buffer.narrow(0, place.start, place.stop - place.start).view(parameter.shape)
                    if gradient is not None:
                        parameter.grad.data[...] = gradient
            self._buffers.append(buffer)
            self._exchanges.append(self.communicator.prepare(buffer))

    def _learn(self, loss: nn.Variable) -> list[tuple[str, str]]:
        """Return (name, dtype) of all gradients in the order in which backward finishes them; unused ones last.

        A shared parameter is finished by its last use.
        """
        names = {parameter: name for name, parameter in self.parameters.items()}
        finished: list[str] = []

        def note(function: nn.function.Function) -> None:
            finished.extend(names[variable] for variable in function.inputs if variable in names)

        for parameter in self.parameters.values():
            parameter.grad.zero()
        loss.backward(clear_buffer=True, function_post_hook=note)
        last_use = {name: position for position, name in enumerate(finished)}
        unused = [name for name in self.parameters if name not in last_use]
        order = [*sorted(last_use, key=last_use.__getitem__), *unused]
        return [(name, np.dtype(self.parameters[name].grad.dtype).name) for name in order]

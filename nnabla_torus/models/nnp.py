"""A trained network as one NNP file: graph and parameters, which nnabla's other tools read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

import nnabla as nn
import numpy as np
from nnabla.utils.save import save

Network = Callable[[nn.Variable, bool], nn.Variable]
NAME = "network"


def save_nnp(
    file: Path, network: Network, image_shape: tuple[int, ...], parameters: Mapping[str, np.ndarray], batch: int = 1
) -> None:
    """Write the evaluation graph of `network` with these parameters; input `images`, output `logits`.

    `nn.load_parameters` reads the parameters back, `nnabla.utils.nnp_graph.NnpLoader` the graph, for any batch. Raises
    ValueError where the parameters are another network's.
    """
    with nn.parameter_scope("", OrderedDict()):
        images = nn.Variable((batch, *image_shape))
        logits = network(images, False)
        _fill(nn.get_parameters(grad_only=False), parameters)
        contents = {
            "networks": [
                {"name": NAME, "batch_size": batch, "names": {"images": images}, "outputs": {"logits": logits}}
            ],
            "executors": [{"name": "executor", "network": NAME, "data": ["images"], "output": ["logits"]}],
        }
        save(str(file), contents)


def _fill(variables: Mapping[str, nn.Variable], parameters: Mapping[str, np.ndarray]) -> None:
    wanted = {name: variable.shape for name, variable in variables.items()}
    given = {name: array.shape for name, array in parameters.items()}
    other = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
    if other:
        shapes = wanted.get(other[0]), given.get(other[0])
        raise ValueError(f"{len(other)} parameters differ: {other[0]} is {shapes[0]} in the network, {shapes[1]} here")
    for name, variable in variables.items():
        variable.d = parameters[name]

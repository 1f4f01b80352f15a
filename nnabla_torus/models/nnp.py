"""A trained network as one NNP file: graph and parameters, which nnabla's other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import nnabla as nn
from nnabla.utils.save import save

NAME = "network"

Network = Callable[[nn.Variable, bool], nn.Variable]


def save_nnp(file: Path, network: Network, image_shape: tuple[int, ...], batch: int = 1) -> None:
    """Write the evaluation graph of `network` with the current parameters; input `images`, output `logits`.

    `nn.load_parameters` reads the parameters back, `nnabla.utils.nnp_graph.NnpLoader` the graph, for any batch.
    """
    images = nn.Variable((batch, *image_shape))
    logits = network(images, False)
    contents = {
        "networks": [{"name": NAME, "batch_size": batch, "names": {"images": images}, "outputs": {"logits": logits}}],
        "executors": [{"name": "executor", "network": NAME, "data": ["images"], "output": ["logits"]}],
    }
    save(str(file), contents)

"""nnabla's usual data-parallel loop with one line changed: the communicator.

mpirun -n 4 python examples/drop_in.py
"""

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
from nnabla.ext_utils import get_extension_context
from sklearn.datasets import load_digits

from nnabla_torus.communicators import create_communicator

BATCH = 16  # per rank

ctx = get_extension_context("cpu")
# Was: comm = nnabla.communicators.MultiProcessDataParallelCommunicator(ctx); comm.init()
comm = create_communicator(ctx, algorithm="torus", grid="auto")
nn.set_default_context(ctx)

images, labels = load_digits(return_X_y=True)
images, labels = images.astype(np.float32) / 16, labels.reshape(-1, 1)
mine = np.arange(comm.rank, len(images), comm.size)  # this rank's share of the samples

x, t = nn.Variable((BATCH, 64)), nn.Variable((BATCH, 1))
hidden = F.relu(PF.affine(x, 64, name="hidden"))
loss = F.mean(F.softmax_cross_entropy(PF.affine(hidden, 10, name="output"), t))
parameters = nn.get_parameters()
comm.bcast([parameter.data for parameter in parameters.values()], src=0)  # all ranks begin with the same weights
solver = S.Momentum(0.1)
solver.set_parameters(parameters)

random = np.random.RandomState(comm.rank)
for step in range(100):
    batch = random.choice(mine, BATCH, replace=False)
    x.d, t.d = images[batch], labels[batch]
    loss.forward()
    solver.zero_grad()
    loss.backward(clear_buffer=True)
    comm.all_reduce([parameter.grad for parameter in parameters.values()], division=True)
    solver.update()
    if comm.rank == 0 and step % 20 == 19:
        print(f"step {step + 1}  loss {loss.d:.4f}")

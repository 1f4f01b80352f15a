"""Trainings on the digits, small, that check and print what a test compares: `training.py SCENARIO [FOLDER]`."""

import hashlib
import json
import sys
from pathlib import Path

import nnabla as nn
import nnabla.functions as F
import numpy as np
from mpi4py import MPI

from nnabla_torus.communicators import create_communicator
from nnabla_torus.data.digits import Digits
from nnabla_torus.data.stream import SampleStream
from nnabla_torus.failure import ending_all_ranks
from nnabla_torus.models.resnet import ResNet
from nnabla_torus.schedules.batch_size import ladder
from nnabla_torus.schedules.value import linear, piecewise
from nnabla_torus.training import checkpoint as checkpoints
from nnabla_torus.training import solver
from nnabla_torus.training.callbacks import BatchSizeControl, Callback, TellAlgorithms
from nnabla_torus.training.resuming import restore, take
from nnabla_torus.training.saving import Saving
from nnabla_torus.training.trainer import Trainer

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
DIGITS = Digits()
EPOCH = DIGITS.train_samples


class Few(Digits):
    """The first digits only, so that an epoch takes a few steps."""

    def __init__(self, samples):
        super().__init__()
        self.train_samples = samples


class Losses(Callback):
    """Collects every step's loss, and whatever `look` returns."""

    def __init__(self, look=lambda trainer: None):
        self.losses, self.looks, self.look = [], [], look

    def after_step(self, trainer):
        self.losses.append(trainer.loss)
        self.looks.append(self.look(trainer))


def trainer_of(batch_size, *callbacks, normalized=True, dropout=False, samples=100, epochs=3, recipe=None):
    network = ResNet(10, (1, 1), (4, 8), normalized, seed=5)

    def with_dropout(images, train):
        logits = network(images, train)
        return F.dropout(logits, 0.3) if train else logits

    return Trainer(
        communicator=create_communicator(nn.get_current_context()),
        source=Few(samples),
        network=with_dropout if dropout else network,
        recipe=recipe or solver.momentum_sgd(1e-3),
        learning_rate=linear(0, epochs * samples, 0.05, 0.01),
        momentum=piecewise([(0, 0.5), (samples, 0.9)]),
        epochs=epochs,
        seed=7,
        callbacks=[BatchSizeControl(batch_size), *callbacks],
    )


def digest(variables):
    joined = hashlib.sha256()
    for name, variable in sorted(variables.items()):
        joined.update(name.encode() + variable.d.tobytes())
    return joined.hexdigest()


def equal_on_all_ranks():
    """Trainable parameters are bitwise equal on all ranks after every step, uneven and empty parts included."""
    check = Losses(lambda trainer: WORLD.allgather(digest(trainer.graphs.trainable)))
    trainer = trainer_of(ladder(2, [10, 100], [32, 65]), check)
    trainer.train()
    assert all(len(set(look)) == 1 for look in check.looks)
    assert len({look[0] for look in check.looks}) == len(check.looks), "a step changed nothing"
    assert trainer.seen == 300 and len(check.losses) == 5 + 3 + 3
    return {"losses": check.losses, "digest": digest(trainer.graphs.trainable)}


def losses():
    """Losses of a network without batch normalisation, whose samples do not know of each other."""
    collect = Losses()
    trainer_of(ladder(2, [10, 90], [20, 64]), collect, normalized=False).train()
    return {"losses": collect.losses}


def bare_loop():
    """The losses of `losses` by a plain nnabla loop on one process, which shares nothing with the trainer."""
    source, rate, momentum = Few(100), linear(0, 300, 0.05, 0.01), piecewise([(0, 0.5), (100, 0.9)])
    order = np.concatenate([SampleStream(100, seed=7).order(epoch) for epoch in range(3)])
    network, velocity, found, seen = ResNet(10, (1, 1), (4, 8), False, seed=5), {}, [], 0
    while seen < 300:
        size = min(2 if seen < 10 else 20 if seen < 90 else 64, 300 - seen)
        taken = order[seen : seen + size]
        images = nn.Variable.from_numpy_array(source.train_set.images[taken])
        labels = nn.Variable.from_numpy_array(source.train_set.labels[taken][:, None])
        loss = F.mean(F.softmax_cross_entropy(network(images, True), labels))
        for parameter in nn.get_parameters().values():
            parameter.g = 0
        loss.forward()
        loss.backward()
        for name, parameter in nn.get_parameters().items():
            gradient = parameter.g + (1e-3 * parameter.d if name.endswith("W") else 0)
            velocity[name] = momentum(seen) * velocity.get(name, 0) + rate(seen) * gradient
            parameter.d = parameter.d - velocity[name]
        found.append(float(loss.d))
        seen += size
    return {"losses": found}


def resume(folder):
    """A run that is given up and gone on with ends bitwise where one in a single piece ends."""
    recipe = solver.lars(1e-3, 0.1, 1e-6)
    sizes = ladder(16, [150, 210], [32, 40])
    whole = trainer_of(sizes, dropout=True, recipe=recipe)
    whole.train()

    class GiveUp(Callback):
        def after_step(self, trainer):
            if trainer.seen >= 180:
                raise KeyboardInterrupt

    # Saved at 112 samples, before the batch size changes; given up at 192, after it has.
    saving = Saving(folder, every=1, keep=2, about={"config": {}})
    first = trainer_of(sizes, TellAlgorithms(), saving, GiveUp(), dropout=True, recipe=recipe)
    try:
        first.train()
    except KeyboardInterrupt:
        saving.after_training(first)
    WORLD.Barrier()
    path = checkpoints.latest(folder)
    assert path == folder / "step-00000007"
    second = trainer_of(sizes, TellAlgorithms(), dropout=True, recipe=recipe)
    restore(second, checkpoints.read(path) if RANK == 0 else None, str(path))
    assert (second.step, second.seen, second.batch_size) == (7, 112, 16)
    second.train()
    assert digest(second.graphs.parameters) == digest(whole.graphs.parameters), "statistics included"
    assert second.step == whole.step and second.loss == whole.loss
    ends = [take(trainer, {}) for trainer in (whole, second)]
    if RANK == 0:
        for name, array in ends[0].solver.items():
            np.testing.assert_array_equal(array, ends[1].solver[name], err_msg=name)
    return {}


def write(folder):
    """Half a run of a network without batch normalisation, left behind in a folder."""

    class HalfWay(Saving):
        def after_step(self, trainer):
            if trainer.seen == 150:
                super().after_step(trainer)

    saving = HalfWay(folder, every=1e-9, keep=2, about={"config": {}})
    collect = Losses()
    trainer_of(ladder(10, [], []), collect, saving, normalized=False).train()
    return {"losses": collect.losses}


def go_on(folder):
    """The other half, on any number of ranks."""
    collect = Losses()
    trainer = trainer_of(ladder(10, [], []), collect, normalized=False)
    path = checkpoints.latest(folder)
    restore(trainer, checkpoints.read(path) if RANK == 0 else None, str(path))
    assert trainer.seen == 150
    trainer.train()
    return {"losses": collect.losses}


def evaluate():
    """Evaluation counts every test image once, with statistics combined by the law of total variance."""
    trainer = trainer_of(ladder(30, [], []), epochs=1)
    trainer.train()
    own = {name: parameter.d.copy() for name, parameter in trainer.graphs.parameters.items()}
    everybodys = WORLD.allgather(own)
    with nn.parameter_scope("expected"):
        logits = ResNet(10, (1, 1), (4, 8), True, seed=0)(
            nn.Variable.from_numpy_array(DIGITS.test_set.images), train=False
        )
        for name, parameter in nn.get_parameters(grad_only=False).items():
            each = np.stack([of_rank[name].astype(np.float64) for of_rank in everybodys])
            parameter.d = each.mean(axis=0)
            if name.endswith("/var"):
                means = np.stack([of_rank[name.replace("/var", "/mean")].astype(np.float64) for of_rank in everybodys])
                parameter.d = each.mean(axis=0) + means.var(axis=0)
    logits.forward()
    expected = float(np.mean(logits.d.argmax(axis=1) == DIGITS.test_set.labels))
    for batch in (1000, 7):
        found = trainer.evaluate(batch)
        assert found.top1 == expected and found.samples == 360
        log_sums = np.log(np.exp(logits.d).sum(axis=1))
        loss = np.mean(log_sums - logits.d[np.arange(360), DIGITS.test_set.labels])
        np.testing.assert_allclose(found.loss, loss, rtol=1e-4)
    for name, parameter in trainer.graphs.parameters.items():
        np.testing.assert_array_equal(parameter.d, own[name], err_msg=name)
    return {"top1": expected}


def broken():
    """A rank that fails in the middle of a step's callbacks."""

    class Broken(Callback):
        def after_step(self, trainer):
            if trainer.step == 3 and RANK == SIZE - 1:
                raise ZeroDivisionError("broken in step 3")

    trainer_of(ladder(16, [], []), Broken()).train()
    return {}


with ending_all_ranks():
    outcome = globals()[sys.argv[1]](*map(Path, sys.argv[2:]))
    if RANK == 0:
        print(json.dumps(outcome))

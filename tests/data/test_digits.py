import numpy as np
from sklearn.datasets import load_digits

from nnabla_torus.data.digits import Digits
from nnabla_torus.data.stream import SampleStream


def keys(images):
    return sorted((image * 16).astype(int).tobytes() for image in images)


def test_every_image_is_in_one_half_of_a_fixed_split():
    digits = Digits()
    assert (digits.train_samples, digits.test_samples, digits.classes) == (1437, 360, 10)
    images = load_digits().images.reshape(-1, 1, 8, 8) / 16
    assert keys(images) == keys(np.concatenate([digits.train_set.images, digits.test_set.images]))
    assert np.bincount(digits.test_set.labels, minlength=10).min() >= 20  # all classes are tested
    np.testing.assert_array_equal(digits.test_set.images, Digits().test_set.images)


def test_labels_stay_with_their_images():
    digits = Digits()
    truth = {image.tobytes(): label for image, label in zip(load_digits().images, load_digits().target)}
    for images, labels in (digits.train_set, digits.test_set):
        assert [truth[(image * 16).astype(float).tobytes()] for image in images] == labels.tolist()
    assert digits.train_set.images.dtype == np.float32 and digits.train_set.labels.dtype == np.int32


def test_reader_follows_the_stream():
    digits = Digits()
    stream = SampleStream(digits.train_samples, seed=3, rank=1, size=2)
    reader = digits.train(stream, 5)
    indices = np.concatenate([stream.take(5, 6).indices, stream.take(6, 3000).indices])
    images = np.concatenate([reader.read(6).images, reader.read(6).images, reader.read(3000).images])
    np.testing.assert_array_equal(images, digits.train_set.images[indices])


def test_test_samples_come_in_order_each_once():
    digits = Digits()
    batches = list(digits.test(10, 31, 8))
    assert [len(batch.labels) for batch in batches] == [8, 8, 5]
    np.testing.assert_array_equal(np.concatenate([batch.images for batch in batches]), digits.test_set.images[10:31])

"""Neighbours: distances and their gradients, the loss against enumeration, and the scikit-learn estimator."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import directloss as dl
from directloss.experiments import neighbor_training
from directloss.neighbors import distance
from directloss.neighbors.distance import negative_distance, without_diagonal


def embeddings(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["dense", "sparse"])
def test_distances_and_their_gradients_are_those_of_the_norm(share, monkeypatch):
    monkeypatch.setattr(distance, "_SPARSE", share)
    queries, candidates = embeddings(5, 3).requires_grad_(), embeddings(7, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(negative_distance, (queries, candidates))
    plain = -(queries[:, None] - candidates).norm(dim=-1)
    torch.testing.assert_close(negative_distance(queries, candidates), plain)


def test_distances_far_from_zero_keep_their_digits():
    near = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    far = without_diagonal(negative_distance(near + 1000, near + 1000))
    torch.testing.assert_close(far, without_diagonal(negative_distance(near, near)), atol=1e-3, rtol=1e-3)


def test_embeddings_that_are_none_are_explained():
    with pytest.raises(ValueError, match="embeddings: got list, expected a floating-point tensor"):
        dl.NeighborLoss(1)([[0.0], [1.0]], torch.tensor([0, 1]))


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["dense", "sparse"])
def test_coinciding_embeddings_have_no_gradient(share, monkeypatch):
    monkeypatch.setattr(distance, "_SPARSE", share)
    point = torch.zeros(2, 3, requires_grad=True)
    negative_distance(point, point).sum().backward()
    assert (point.grad == 0).all()


def test_the_diagonal_is_left_out():
    square = torch.arange(16.0).reshape(4, 4)
    rows = [[value for column, value in enumerate(row) if column != index] for index, row in enumerate(square.tolist())]
    assert without_diagonal(square).tolist() == rows


def test_the_loss_is_the_share_of_wrong_labels_among_the_nearest():
    x, labels = embeddings(12, 2), torch.arange(12) % 3
    expected = []
    for query in range(12):
        order = [i for i in (x - x[query]).norm(dim=1).argsort().tolist() if i != query][:4]
        expected.append(sum(int(labels[i] != labels[query]) for i in order) / 4)
    assert dl.NeighborLoss(4)(x, labels).item() == pytest.approx(sum(expected) / 12)


def test_candidates_can_be_given_apart():
    x, labels = embeddings(12, 2), torch.arange(12) % 3
    loss = dl.NeighborLoss(4)(x[:3], labels[:3], x[3:], labels[3:])
    nearest = torch.cdist(x[:3], x[3:]).topk(4, largest=False).indices
    assert loss.item() == pytest.approx((labels[3:][nearest] != labels[:3, None]).double().mean().item())


def test_its_gradient_is_the_direct_loss_of_the_distances():
    x, labels = embeddings(10, 2).requires_grad_(), torch.arange(10) % 2
    dl.NeighborLoss(3, epsilon=2.0)(x, labels).backward()
    again = x.detach().clone().requires_grad_()
    off = ~torch.eye(10, dtype=torch.bool)
    scores = -(again[:, None] - again + torch.eye(10)[..., None]).norm(dim=-1)[off].reshape(10, 9)
    cost = (labels != labels[:, None]).double()[off].reshape(10, 9) / 3
    dl.direct_loss(scores, cost, dl.Subset(3), epsilon=2.0, sides="both").backward()
    torch.testing.assert_close(x.grad, again.grad)


def test_a_step_along_it_separates_the_classes():
    x, labels = embeddings(60, 2).requires_grad_(), torch.arange(60) % 3
    optimizer, criterion = torch.optim.Adam([x], lr=0.1), dl.NeighborLoss(5)
    first = criterion(x, labels).item()
    for _ in range(100):
        optimizer.zero_grad()
        criterion(x, labels).backward()
        optimizer.step()
    assert criterion(x, labels).item() < first / 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(4, 2), torch.zeros(3)), "labels: got shape \\(3,\\) for 4 embeddings"),
        ((torch.zeros(4, 2), [0, 1, 0, 1]), "labels: got list"),
        ((torch.zeros(4), torch.zeros(4)), "expected a floating-point tensor of embeddings"),
        ((torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4)), "expected a floating-point tensor of embeddings"),
        ((torch.zeros(5, 2), torch.zeros(5), torch.zeros(5, 3), torch.zeros(5)), "2 dimensions and candidates 3"),
        ((torch.zeros(5, 2), torch.zeros(5), torch.zeros(5, 2)), "come together"),
        ((torch.zeros(3, 2), torch.zeros(3)), "only 2 candidates"),
        ((torch.full((5, 2), torch.nan), torch.zeros(5)), "NaN"),
    ],
)
def test_bad_input_is_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        dl.NeighborLoss(3)(*arguments)


def classifier(**options) -> dl.DirectNeighborsClassifier:
    return dl.DirectNeighborsClassifier(**{"n_neighbors": 3, "epochs": 3, "random_state": 0, **options})


# A sample of weight two is not two samples: of two, each is the other's nearest neighbour, and both take a place among
# the k. So no weighting can pass this check; scikit-learn's own neighbours take no weights.
NOT_PROMISED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a repeated sample is its own neighbour"
    for kind in ("dense", "sparse")
}
# A weight cannot outvote neighbours that it is not among, as three are not always; of more neighbours see below.
NOT_PROMISED["check_class_weight_classifiers"] = "three neighbours"


def test_a_class_of_great_weight_wins_wherever_it_is_a_neighbour():
    x, y = make_blobs(centers=3, random_state=0, cluster_std=20)
    train, test, labels, _ = train_test_split(x, y, test_size=0.5, random_state=0)
    model = classifier(n_neighbors=15, class_weight={0: 1000, 1: 0.0001, 2: 0.0001}).fit(train, labels)
    _, near = model.kneighbors(test)
    assert np.array_equal(model.predict(test) == 0, (labels[near] == 0).any(1))
    assert np.mean(model.predict(test) == 0) > 0.95


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(*pair, id=getattr(pair[1], "func", pair[1]).__name__ + str(index))
        for index, pair in enumerate(
            estimator_checks_generator(classifier(), expected_failed_checks=NOT_PROMISED, mark="skip")
        )
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)


@pytest.fixture(scope="module")
def fitted(digits):
    train, _, labels, _ = digits
    return dl.DirectNeighborsClassifier(epochs=15, random_state=0).fit(train, labels)


def test_it_learns_digits(fitted, digits):
    _, test, _, truth = digits
    assert fitted.score(test, truth) > 0.96
    assert fitted.loss_curve_[-1] < fitted.loss_curve_[0] / 3


def test_votes_neighbours_and_embeddings_agree(fitted, digits):
    train, test, labels, _ = digits
    shares, (distances, indices) = fitted.predict_proba(test), fitted.kneighbors(test)
    counted = np.stack([(labels[indices] == name).mean(1) for name in fitted.classes_], 1)
    np.testing.assert_allclose(shares, counted)
    np.testing.assert_array_equal(fitted.predict(test), fitted.classes_[counted.argmax(1)])
    apart = np.linalg.norm(fitted.transform(test)[:, None] - fitted.transform(train)[indices], axis=-1)
    np.testing.assert_allclose(distances, apart, rtol=1e-3, atol=1e-3)


def test_the_same_random_state_gives_the_same_bits(digits):
    train, test, labels, _ = digits
    one, two, other = (classifier(random_state=seed).fit(train, labels).transform(test) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_global_randomness_is_left_alone(digits):
    before = torch.get_rng_state()
    classifier(epochs=1).fit(digits[0], digits[2])
    assert torch.equal(before, torch.get_rng_state())


def test_it_pickles(fitted, digits):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(digits[1]), fitted.predict(digits[1]))


def test_it_works_in_pipelines_and_searches():
    x, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier(epochs=5)),
        {"directneighborsclassifier__n_neighbors": [1, 5]},
        cv=3,
    ).fit(x, y)
    assert search.best_score_ > 0.9
    assert clone(search.best_estimator_).get_params()["directneighborsclassifier__epochs"] == 5


def test_images_get_a_convolutional_net(digits):
    train, _, labels, _ = digits
    images = train[:200].reshape(-1, 1, 8, 8).astype(np.float32)
    model = classifier(epochs=2).fit(images, labels[:200])
    assert isinstance(model.module_, dl.nets.ResNet9)
    large = classifier(epochs=1).fit(images.repeat(3, 2).repeat(3, 3), labels[:200])
    assert isinstance(large.module_, dl.nets.LeNet)
    assert model.predict(images[:5]).shape == (5,)


def test_the_module_can_be_the_users(digits):
    train, _, labels, _ = digits
    model = classifier(module=lambda shape: torch.nn.Linear(shape[0], 7), epochs=1).fit(train, labels)
    assert model.transform(train[:4]).shape == (4, 7)


def test_the_random_state_is_also_of_the_users_module(digits):
    train, test, labels, _ = digits
    model = classifier(module=lambda shape: torch.nn.Linear(shape[0], 7), epochs=1)
    np.testing.assert_array_equal(*(clone(model).fit(train, labels).transform(test) for _ in range(2)))


def test_samples_of_another_shape_are_refused(digits):
    images = digits[0][:100].reshape(-1, 1, 8, 8)
    model = classifier(epochs=1).fit(images, digits[2][:100])
    for wrong in (images.repeat(2, 2), images[..., :1], digits[0][:5, :1]):
        with pytest.raises(ValueError, match=r"fitted with \(1, 8, 8\)|expecting 1 features"):
            model.predict(wrong)


@pytest.mark.parametrize(("k", "samples", "batch_size"), [(5, 10, 6), (200, 400, 256), (np.int64(3), 50, 1)])
def test_every_batch_has_enough_neighbours(digits, k, samples, batch_size):
    model = classifier(n_neighbors=k, batch_size=batch_size, epochs=1).fit(digits[0][:samples], digits[2][:samples])
    assert model.predict(digits[1][:3]).shape == (3,)


def test_the_progress_bar_shows_on_request(digits, capsys):
    classifier(epochs=1, verbose=1).fit(digits[0][:100], digits[2][:100])
    assert "wrong neighbours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, np.zeros(len(y))), "all 60 samples are of one class"),
        (lambda x, y: (x, y[:-1]), "inconsistent numbers of samples"),
        (lambda x, y: (np.where(x == x[0, 0], np.nan, x), y), "NaN"),
        (lambda x, y: (x[:3], y[:3]), "only 3 samples"),
        (
            lambda x, y: ([*x[:30].reshape(-1, 1, 8, 8), *x[30:].reshape(-1, 1, 4, 16)], y),
            "samples have different shapes",
        ),
        (lambda x, y: (x.reshape(60, 8, 8), y), "expected \\(features,\\) or \\(channels, height, width\\)"),
    ],
)
def test_bad_samples_are_explained(digits, change, message):
    x, y = digits[0][:60], digits[2][:60]
    with pytest.raises(ValueError, match=message):
        classifier(n_neighbors=3).fit(*change(x, y))


@pytest.mark.parametrize("options", [{"n_neighbors": 0}, {"epochs": 0}, {"epsilon": 0.0}])
def test_bad_parameters_are_explained(digits, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} is 0"):
        classifier(**options).fit(digits[0], digits[2])


# Threads, offsets, units


def test_the_same_random_state_gives_the_same_model_whichever_threads_fit(digits):
    train, test, labels, _ = digits

    def fit(seed):
        return classifier(epochs=1, random_state=seed % 3).fit(train[:100], labels[:100]).transform(test[:5])

    alone = [fit(seed) for seed in range(3)]
    with ThreadPoolExecutor(6) as pool:
        for seed, found in enumerate(pool.map(fit, range(36))):
            np.testing.assert_array_equal(found, alone[seed % 3])


def test_a_large_common_offset_changes_nothing():
    x, y = make_blobs(200, centers=3, random_state=0)
    x = np.round(x * 1024) / 1024  # exact at the offset too
    near, far = (classifier(epochs=5).fit(each[:150], y[:150]) for each in (x, x + 1.5e9))
    np.testing.assert_array_equal(near.predict(x[150:]), far.predict(x[150:] + 1.5e9))
    np.testing.assert_allclose(near.transform(x[150:]), far.transform(x[150:] + 1.5e9), atol=0.02)


def test_features_of_other_units_are_scaled_or_warned_about():
    x, y = load_wine(return_X_y=True)
    scores = {}
    for choice in ("auto", True):
        scores[choice] = classifier(epochs=30, scale_features=choice).fit(x[::2], y[::2]).score(x[1::2], y[1::2])
    assert scores["auto"] == scores[True] > 0.93
    with pytest.warns(UserWarning, match="times the median one.*scale_features=True or a StandardScaler"):
        classifier(epochs=1, scale_features=False).fit(x, y)


def test_features_of_one_unit_are_divided_by_one_number(digits):
    assert classifier(epochs=1).fit(digits[0], digits[2]).deviation_.shape == ()


# Weights, stopping, metrics


def test_weights_of_samples_and_classes_are_the_same_thing(digits):
    train, test, labels, _ = digits
    weight = np.where(labels == 3, 5.0, 1.0)
    one = classifier(epochs=2).fit(train, labels, sample_weight=weight).transform(test)
    two = classifier(epochs=2, class_weight={3: 5.0}).fit(train, labels).transform(test)
    plain = classifier(epochs=2).fit(train, labels).transform(test)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, plain)


def test_samples_without_weight_are_not_there(digits):
    train, test, labels, _ = digits
    weight = (np.arange(len(labels)) % 2).astype(float)
    one = classifier(epochs=2).fit(train, labels, sample_weight=weight)
    two = classifier(epochs=2).fit(train[1::2], labels[1::2])
    np.testing.assert_array_equal(one.predict_proba(test), two.predict_proba(test))


def test_early_stopping_returns_to_the_best_epoch(digits):
    train, test, labels, truth = digits
    model = classifier(epochs=200, early_stopping=True, n_iter_no_change=2, validation_fraction=0.2).fit(train, labels)
    scores = model.validation_scores_
    assert len(scores) == model.n_iter_ == len(model.loss_curve_) < 200
    assert scores.index(max(scores)) + 2 == len(scores) - 1
    assert model.score(test, truth) > 0.9


def test_a_warm_start_goes_on_with_the_module(digits):
    train, _, labels, _ = digits
    model = classifier(epochs=2, warm_start=True).fit(train, labels)
    module, first = model.module_, model.loss_curve_[0]
    model.fit(train, labels)
    assert model.module_ is module
    assert model.loss_curve_[0] < first
    with pytest.raises(ValueError, match="warm_start goes on from"):
        model.fit(train[:, :5], labels)


def test_near_neighbours_may_count_more(digits):
    train, test, labels, _ = digits
    model = classifier(epochs=2, weights="distance").fit(train, labels)
    distances, indices = model.kneighbors(test)
    votes = np.stack([((labels[indices] == name) / distances).sum(1) for name in model.classes_], 1)
    np.testing.assert_allclose(model.predict_proba(test), votes / votes.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_the_angle_may_be_the_distance(digits):
    train, test, labels, truth = digits
    model = classifier(epochs=15, metric="cosine", n_jobs=2).fit(train, labels)
    assert model.score(test, truth) > 0.95
    embedded, bank = model.transform(test[:4]), model.transform(train)
    cosine = embedded @ bank.T / np.linalg.norm(embedded, axis=1)[:, None] / np.linalg.norm(bank, axis=1)
    np.testing.assert_allclose(model.kneighbors(test[:4])[0], 1 + np.sort(-cosine)[:, :3], atol=1e-4)


def test_training_samples_are_not_their_own_neighbours(fitted, digits):
    distances, indices = fitted.kneighbors()
    assert distances.shape == (len(digits[0]), 5)
    assert not (indices == np.arange(len(digits[0]))[:, None]).any()


def test_embeddings_have_names(fitted, digits):
    names = fitted.get_feature_names_out()
    assert len(names) == fitted.transform(digits[1][:1]).shape[1]
    assert names[0] == "directneighborsclassifier0"


def test_data_frames_come_and_go(digits):
    pandas = pytest.importorskip("pandas")
    train, test, labels, _ = digits
    frame = pandas.DataFrame(train, columns=[f"pixel {index}" for index in range(64)])
    model = classifier(epochs=1).set_output(transform="pandas").fit(frame, pandas.Series(labels))
    embedded = model.transform(pandas.DataFrame(test, columns=frame.columns))
    assert list(embedded.columns) == list(model.get_feature_names_out())
    plain = classifier(epochs=1).fit(train, labels)
    np.testing.assert_array_equal(embedded.to_numpy(), plain.transform(test))
    np.testing.assert_array_equal(model.predict_proba(frame), plain.predict_proba(train))


@pytest.mark.parametrize("dispatch", [False, True])
def test_tensors_are_taken_as_arrays_are(digits, dispatch, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    train, test, labels, _ = digits
    plain = classifier(epochs=1).fit(train, labels).predict_proba(test)
    with sklearn.config_context(array_api_dispatch=dispatch):
        model = classifier(epochs=1).fit(torch.from_numpy(train), torch.from_numpy(labels))
        np.testing.assert_array_equal(model.predict_proba(torch.from_numpy(test)), plain)


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "mine"},
        {"metric": "far"},
        {"scale_features": "some"},
        {"validation_fraction": 1.5},
        {"n_iter_no_change": 0},
    ],
    ids=str,
)
def test_bad_choices_are_explained(digits, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} is .*expected"):
        classifier(**options).fit(digits[0], digits[2])


def test_the_loss_is_the_experiments_too():
    assert neighbor_training.NeighborLoss is dl.NeighborLoss

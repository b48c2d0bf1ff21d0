"""The nearest-neighbour experiment: each method end to end, exact resume, sparse steps, two processes, bad input."""

import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import two_processes

import directloss as dl
from directloss.cli import main
from directloss.errors import UserError
from directloss.experiments import curves, neighbor_training
from directloss.experiments.images import Images, accuracy, augment, embed
from directloss.experiments.neighbor_recipes import METHODS, Config, best, paper
from directloss.experiments.neighbor_training import Training, check_batch
from directloss.experiments.neighbor_training import train_cell as train
from directloss.experiments.neighbors import EXPERIMENT
from directloss.experiments.ranks import Ranks
from directloss.lab import checkpoints
from directloss.lab.store import Row, Store


@pytest.fixture(scope="module")
def images():
    return Images(dl.data.load("digits"), 200)


def small(method: str = "direct0", **changes) -> Config:
    return two_processes.tiny(method, **changes)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recipe", [best, paper])
def test_every_method_learns_something(method, recipe, images, tmp_path):
    config = recipe("digits", method, 3, "resnet9", 0)
    config = replace(config, width=4, epochs=3, validation=200, candidates=200, queries=min(config.queries, 50))
    if recipe is paper:
        config = replace(config, learning_rate=0.03 if config.optimizer == "momentum" else 0.01, epochs=12)
    net = Training(config, images, Ranks()).net
    bank, queries = (embed(net, images, part) for part in (images.train, images.test))
    untrained = 100 * accuracy(3, images, bank, queries, images.test_labels)
    result = train(config, images, tmp_path / "checkpoint.pt")
    assert result["accuracy"] > untrained + 5
    assert [point["epoch"] for point in result["curve"]] == list(range(1, config.epochs + 1))
    assert result["sigma"] == result["curve"][result["best_epoch"] - 1]["sigma"]
    assert (result["sigma"] > 0) == (method in ("direct1", "dsl", "annealed"))


def test_bfloat16_rounds_embeddings_and_nothing_else(images):
    exact, rounded = (Training(small(precision=name), images, Ranks()) for name in ("float32", "bfloat16"))
    inputs = images.normalize(images.train[:50])
    full, short = (one._embed(one.net, inputs) for one in (exact, rounded))
    assert full.dtype == short.dtype == torch.float32
    assert 0 < (full - short).norm() < 0.02 * full.norm()
    assert all(weight.dtype == torch.float32 for weight in rounded.net.parameters())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("dsl", {}),
        ("neuralsort-stochastic", {}),
        ("softmax-knn", {"optimizer": "muon", "weight_decay": 0.0, "net": "whitenet", "augment": "alternate-reflect"}),
        ("annealed", {"net": "whitenet", "augment": "flip-shift-erase", "rise": 0.3}),
        ("dsl", {"net": "whitenet", "scale_input": "one", "scale_learning_rate": 0.03, "precision": "bfloat16"}),
    ],
)
def test_a_killed_run_goes_on_exactly(method, options, images, tmp_path):
    config = small(method, epochs=3, **options)
    whole = train(config, images, tmp_path / "whole.pt")

    class KilledError(Exception):
        pass

    def die(share, note):
        if share > 2 / 3:
            raise KilledError

    with pytest.raises(KilledError):
        train(config, images, tmp_path / "parts.pt", progress=die)
    rest = train(config, images, tmp_path / "parts.pt")
    timed = ("seconds", "seconds_per_query", "seconds_per_epoch")
    for one, two in zip(whole["curve"], rest["curve"], strict=True):
        assert {k: v for k, v in one.items() if k not in timed} == {k: v for k, v in two.items() if k not in timed}
    assert whole["accuracy"] == rest["accuracy"]


@pytest.mark.parametrize(("method", "net"), [("direct0", "resnet9"), ("dsl", "resnet9"), ("dsl", "whitenet")])
def test_a_sparse_backward_pass_gives_the_same_gradients(method, net, images):
    gradients = []
    for sparse in (False, True):
        config = small(method, net=net, norm="group", sparse=sparse, sides="one", epsilon=-0.05)
        training = Training(config, images, Ranks())
        training.optimizer = torch.optim.SGD(training.net.parameters(), lr=0.0)
        batch = torch.arange(200)
        seen = training.step(batch, batch[:0])
        gradients.append([parameter.grad.clone() for parameter in training.net.parameters()])
    assert 0 < seen["active"] < 1
    for dense, sparse in zip(*gradients, strict=True):
        torch.testing.assert_close(dense, sparse, rtol=1e-4, atol=1e-6)


def test_queries_and_candidates_of_a_batch_are_apart(images):
    training = Training(small(queries=50), images, Ranks())
    seen = []
    for candidates, queries in training.batches():
        assert len(queries) == 50
        assert not set(candidates.tolist()) & set(queries.tolist())
        seen += candidates.tolist()
    assert len(set(seen)) == len(seen) > 0.8 * len(images.train)


def test_the_validation_images_are_not_trained_on(images):
    assert len(images.train) + len(images.held) == 1442
    rows = {image.numpy().tobytes() for image in images.train}
    assert sum(image.numpy().tobytes() in rows for image in images.held) < 3  # digits has few exact copies


def test_accuracy_is_a_majority_vote_with_the_nearer_first(images):
    inputs = images.normalize(images.test[:100]).flatten(1)
    bank = images.normalize(images.train).flatten(1)
    right = 0
    for query, truth in zip(inputs, images.test_labels, strict=False):
        nearest = images.train_labels[(bank - query).norm(dim=1).argsort()[:4]].tolist()
        right += max(nearest, key=lambda label: (nearest.count(label), -nearest.index(label))) == truth
    found = accuracy(4, images, bank, inputs, images.test_labels[:100])
    assert found == pytest.approx(right / 100)


@pytest.mark.parametrize("kind", ["shift", "shift-flip"])
def test_images_are_moved_by_two_pixels_at_most(kind):
    image = torch.zeros(50, 1, 9, 9, dtype=torch.uint8)
    image[:, :, 4, 3] = 7
    moved = augment(image, kind, torch.Generator().manual_seed(0))
    places = {tuple(place[1:]) for place in moved[:, 0].nonzero().tolist()}
    assert len(moved[:, 0].nonzero()) == 50
    assert {row for row, _ in places} == {2, 3, 4, 5, 6}
    assert {column for _, column in places} == ({1, 2, 3, 4, 5} if kind == "shift" else {1, 2, 3, 4, 5, 6, 7})


def test_a_border_that_reflects_repeats_the_image():
    image = torch.arange(25, dtype=torch.uint8).view(1, 1, 5, 5).expand(40, -1, -1, -1)
    moved = augment(image, "reflect", torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(image[:1].float(), (2, 2, 2, 2), "reflect").to(torch.uint8)
    windows = {padded[0, 0, i : i + 5, j : j + 5].numpy().tobytes() for i in range(5) for j in range(5)}
    assert {one.contiguous().numpy().tobytes() for one in moved[:, 0]} <= windows
    assert len({one.contiguous().numpy().tobytes() for one in moved[:, 0]}) > 10


def test_alternate_flips_mirror_each_image_in_every_second_epoch(images):
    training = Training(small(net="whitenet", augment="alternate"), images, Ranks())
    seen = []
    for epoch in range(4):
        training.epoch = epoch
        training.train_net = lambda inputs: seen.append(inputs) or training.net(inputs)
        training.step(torch.arange(100), torch.arange(0))
    plain = images.normalize(images.train[:100])
    for one, image in enumerate(plain):
        turned = [not torch.equal(batch[one], image) for batch in seen]
        assert turned in ([True, False, True, False], [False, True, False, True]) or torch.equal(image, image.flip(-1))
        assert torch.equal(seen[0][one].flip(-1), seen[1][one])
    assert 30 < training.turned[:100].sum() < 70


def test_a_square_is_erased_by_the_mean_of_each_image(images):
    varied = augment(images.train[:200], "erase", torch.Generator().manual_seed(0), side=4)
    for before, after in zip(images.train[:200], varied, strict=True):
        changed = (before != after)[0].nonzero()
        if len(changed):
            low, high = changed.min(0).values, changed.max(0).values
            assert (high - low < 4).all()
            assert set(after[0][tuple(changed.mT)].tolist()) == {int(before.float().mean())}


def test_one_scale_and_epsilon_are_in_the_units_of_the_embeddings(images):
    config = small("dsl", net="whitenet", norm="group", scale_input="one", sides="one", epsilon=-2.0, augment="none")
    found = []
    for factor in (1.0, 10.0):
        training = Training(config, images, Ranks())
        sigma = training.companion.log_sigma
        sigma.data += torch.tensor(factor).log()
        leaf = factor * training.net(images.normalize(images.train[:50]))
        loss, scale = training._loss(leaf, images.train_labels[:50], 50, leaf, torch.Generator().manual_seed(0))
        found.append((loss.item(), torch.autograd.grad(loss, [sigma])[0].item(), scale / factor))
    assert found[0][1] != 0
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_one_scale_starts_by_the_spread_and_is_annealed_to_its_end(images):
    training = Training(small("annealed", scale_start=3.0, scale_end=0.3, epochs=2), images, Ranks())
    embedded = training.net.train()(images.normalize(images.train[:200])).detach()
    start = 3 * torch.nn.functional.pdist(embedded).std().item()
    assert training.companion.log_sigma.exp().item() == pytest.approx(start, rel=1e-4)
    points = [training.run_epoch() for _ in range(2)]
    steps = 2 * (len(images.train) // 200)
    assert points[-1]["sigma"] < points[0]["sigma"] < start
    last = start * 0.1 ** ((steps - 1) / steps)
    assert training.companion.log_sigma.exp().item() == pytest.approx(last, rel=1e-4)


def test_mirrored_embeddings_are_a_column_of_their_own(images, tmp_path):
    config, path = small(mirror=True, epochs=1), tmp_path / "checkpoint.pt"
    result = train(config, images, path)
    training = Training(config, images, Ranks())
    checkpoints.restore(path, EXPERIMENT.key(config), training.restore)
    net = training.net
    mean = [(embed(net, images, part) + embed(net, images, part.flip(-1))) / 2 for part in (images.train, images.test)]
    assert result["mirrored_accuracy"] == 100 * accuracy(config.k, images, *mean, images.test_labels)
    assert result["mirrored_accuracy"] != result["accuracy"]
    (whole,) = EXPERIMENT.tables([row(0, "dsl", 5, 99.0, mirrored_accuracy=99.5), row(0, "dsl", 3, 98.0)], "")
    header, body = whole.cells()
    assert [line[header.index("mirrored %")] for line in body] == ["99.50", "-"]
    assert "mirrored_accuracy" not in train(small(epochs=1), images, tmp_path / "other.pt")


def test_the_classifier_of_softmax_knn_learns_with_the_net(images, tmp_path):
    training = Training(small("softmax-knn", smoothing=0.1), images, Ranks())
    before = training.companion.weight.clone()
    first = training.run_epoch()
    assert not torch.equal(before, training.companion.weight)
    assert training.run_epoch()["loss"] < first["loss"]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes of torchrun made: their folder, and what they printed."""
    folder = tmp_path_factory.mktemp("together")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", two_processes.__file__]
    done = subprocess.run(launch, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.parametrize("method", two_processes.METHODS)
def test_two_processes_train_together(method, images, together):
    first, second = (torch.load(together[0] / f"rank-{rank}.pt", weights_only=True)[method] for rank in (0, 1))
    for name, value in first["trained"].items():
        if "running" not in name:  # statistics of the rank's own batches
            assert torch.equal(value, second["trained"][name]), name
    assert first["result"]["processes"] == 2
    assert first["result"]["accuracy"] > 60
    assert second["result"] == {}
    one = two_processes.step(method, images, Ranks())
    start = two_processes.Training(two_processes.tiny(method, norm="group"), images, Ranks())
    before = {**start.net.state_dict(prefix="net."), **start.companion.state_dict(prefix="scale.")}
    for name, value in one.items():
        torch.testing.assert_close(first["step"][name], value, rtol=1e-4, atol=1e-6, msg=name)
        assert not torch.equal(value, before[name]) or (method == "neuralsort" and name.startswith("scale.")), name


def test_the_command_runs_in_two_processes(together):
    folder, printed = together
    (row,) = json.loads(printed)
    assert row["accuracy"] > 60
    (saved,) = Store(folder / "directloss.sqlite").rows("neighbors")
    assert saved["processes"] == 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


KEYS = (
    "data",
    "method",
    "k",
    "net",
    "recipe",
    "epochs",
    "accuracy",
    "mirrored_accuracy",
    "validation_accuracy",
    "sigma",
)
KEYS += ("seconds_per_epoch", "seconds_per_query", "seed")
QUICK = "knn --data digits --k 3 --epochs 1 --width 4 --candidates 200"


def test_the_command_prints_a_table_and_resumes(folder, capsys, monkeypatch):
    main([*QUICK.split(), "--methods", "direct0,neuralsort", "--output", "out"])
    printed = capsys.readouterr().out
    assert "neuralsort" in printed
    assert printed.count("resnet9-4") == 1  # what all rows share is said once
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "curves.csv",
        "curves.png",
        "curves.svg",
        "rows.csv",
        "table.md",
    ]
    monkeypatch.setattr(neighbor_training, "train", None)  # a second call has nothing left to train
    main([*QUICK.split(), "--methods", "direct0,neuralsort", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [tuple(row) for row in rows] == [KEYS] * 2


def row(seed, method, k, accuracy, **others):
    times = {"seconds_per_epoch": 3.0, "seconds_per_query": 0.0005, "validation_accuracy": 90.0, "sigma": 0.0}
    key = EXPERIMENT.key(replace(best("mnist", method, k, "lenet", seed), epochs=10))
    result = {"accuracy": accuracy, **times, **others}
    return Row("neighbors", str(key), 0, dict(key.config), result, "abc", "2026-01-01")


def test_tables_have_means_over_seeds_beside_the_paper():
    rows = [row(0, "dsl", 5, 99.0), row(1, "dsl", 5, 99.2), row(0, "relaxsubsample", 5, 98.0), row(0, "dsl", 2, 97.0)]
    means, single = EXPERIMENT.tables(rows, "")
    header, body = means.cells()
    assert header[:4] == ["method", "k", "accuracy %", "paper"]
    assert [line[:4] for line in body] == [
        ["dsl", "5", "99.10 ± 0.14", "99.4"],
        ["relaxsubsample", "5", "98.00", "99.3"],
        ["dsl", "2", "97.00", "-"],
    ]
    assert [line["accuracy"] for line in single.lines] == [99.0, 99.2, 98.0, 97.0]
    rows = [row(0, "dsl", 3, 99.0), row(1, "dsl", 3, 99.0, seconds_per_epoch=5.0), row(0, "neuralsort", 3, 99.0)]
    header, body = EXPERIMENT.tables(rows, "")[0].cells()
    at = header.index("s/epoch")
    assert [line[at : at + 2] for line in body] == [["4.0", "28.3"], ["3.0", "-"]]


def test_curves_show_the_method_by_colour_and_each_k_by_itself():
    point = {"epoch": 1, "loss": 0.1, "validation_accuracy": 0.9, "active": 0.5}
    cells = [("dsl", 1, 0), ("dsl", 1, 1), ("dsl", 5, 0), ("neuralsort", 5, 0)]
    rows = [
        {"data": "mnist", "method": method, "k": k, "seed": seed, "curve": [point | {"loss": 0.1 + seed}]}
        for method, k, seed in cells
    ]
    figure = curves.draw(rows)
    assert [axis.get_ylabel() for axis in figure.axes] == ["mnist, k = 1", "", "", "mnist, k = 5", "", ""]
    assert [axis.get_xlabel() for axis in figure.axes] == [""] * 3 + ["epoch"] * 3
    titles = [label for name, label in curves.CURVES.items() if name not in ("noise", "sigma")]  # none of them has any
    assert [axis.get_title() for axis in figure.axes] == [*titles, "", "", ""]
    one, five = figure.axes[0], figure.axes[3]
    assert [line.get_ydata()[0] for line in (*one.lines, *five.lines)] == pytest.approx([0.6, 0.1, 0.1])  # 0.6: a mean
    (band,) = one.collections
    assert band.get_datalim(one.transData).intervaly == pytest.approx([0.1, 1.1])
    colors = [line.get_color() for line in (*one.lines, *five.lines)]
    assert colors[0] == colors[1] != colors[2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["dsl", "neuralsort"]


def noisy(data, method, sigma, **others):
    point = {"epoch": 1, "loss": 0.1, "validation_accuracy": 0.9, "active": 0.5, "sigma": sigma, **others}
    return {"data": data, "method": method, "k": 5, "seed": 0, "curve": [point]}


def test_the_scale_has_a_panel_for_the_methods_that_have_noise():
    figure = curves.draw([noisy("mnist", "dsl", 3.0), noisy("mnist", "neuralsort", 0.0)])
    assert [axis.get_title() for axis in figure.axes] == [
        label for name, label in curves.CURVES.items() if name != "noise"
    ]
    assert [line.get_ydata().tolist() for line in figure.axes[-1].lines] == [[3.0]]
    assert figure.axes[-1].get_yscale() == "log"
    assert [text.get_text() for text in figure.legends[0].texts] == ["dsl", "neuralsort"]


def test_the_scale_is_drawn_in_spreads_of_the_distances_where_any_is_known():
    rows = [noisy("mnist", "dsl", 3.0), noisy("cifar-10", "dsl", 3.0, spread=6.0), noisy("cifar-10", "direct1", 1.0)]
    figure = curves.draw(rows)
    assert [axis.get_title() for axis in figure.axes[:4]] == [
        label for name, label in curves.CURVES.items() if name != "sigma"
    ]
    mnist, cifar = figure.axes[3], figure.axes[7]
    assert not mnist.axison
    assert not mnist.lines
    assert [line.get_ydata().tolist() for line in cifar.lines] == [[0.5]]
    assert cifar.get_yscale() == "log"


def test_a_net_that_cannot_take_the_images_is_refused(folder, capsys):
    for arguments, message in (
        ("--net lenet", "--net lenet is not for these images: size is 8"),
        ("--net lenet --width 4", "--width is of a resnet9 or a whitenet, but the net for digits is lenet"),
    ):
        with pytest.raises(SystemExit):
            main(["knn", "--data", "digits", *arguments.split()])
        assert message in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_the_paper_recipe_keeps_its_limit_and_nets():
    cells = EXPERIMENT.cells(data="mnist,cifar-10", recipe="paper", epsilon=-0.3)
    assert [(cell.net, cell.limit) for cell in cells] == [("lenet", 0.9999), ("resnet18", 0.9999)]
    (cell,) = EXPERIMENT.cells(recipe="paper", epsilon=-2.0, sides="both")
    assert (cell.epsilon, cell.limit, cell.sides) == (-2.0, 2.0, "both")


@pytest.mark.parametrize("data", ["mnist", "fashion-mnist", "cifar-10"])
def test_the_direct_methods_of_a_table_differ_in_their_scale_alone(data):
    scales = ("scale_input", "scale_start", "scale_end", "scale_learning_rate")
    *others, learned = (best(data, method, 5) for method in ("direct0", "direct1", "annealed", "dsl"))
    same = {name: getattr(learned, name) for name in scales} | {"method": "dsl"}
    assert {replace(config, **same) for config in others} == {learned}
    assert learned.scale_start == others[-1].scale_start > others[-1].scale_end


def test_settings_of_the_direct_loss_leave_a_relaxation_as_it_is():
    dsl, relaxed = EXPERIMENT.cells(data="cifar-10", methods="dsl,neuralsort")
    assert (dsl.sides, dsl.epsilon, dsl.samples) == ("one", -50.0, 30)
    assert relaxed.samples == 1
    for name in (
        "net",
        "width",
        "epochs",
        "candidates",
        "augment",
        "optimizer",
        "learning_rate",
        "weight_decay",
        "rise",
        "precision",
    ):
        assert getattr(dsl, name) == getattr(relaxed, name)
    (slower,) = EXPERIMENT.cells(methods="neuralsort", learning_rate=1e-4)
    assert slower.learning_rate == 1e-4


def test_batches_that_processes_cannot_share_are_refused():
    with pytest.raises(UserError, match="--k has 4, but a batch has 5 candidates; expected 1 to 3"):
        check_batch(small(candidates=5, k=4), 1000, ranks=2)
    with pytest.raises(UserError, match="--queries is 1, but there are 2 processes"):
        check_batch(small(queries=1), 1000, ranks=2)
    check_batch(small(queries=1), 201)


def test_sparse_needs_a_net_without_batch_statistics():
    with pytest.raises(ValueError, match="norm='group'"):
        small(sparse=True)


def test_a_row_names_the_commits_that_trained_it(folder, capsys, monkeypatch):
    command = [*QUICK.split(), "--json"]
    monkeypatch.setattr(neighbor_training, "code_version", lambda: "first")
    main(command)
    monkeypatch.setattr(neighbor_training, "code_version", lambda: "second")
    main([*command, "--store", "other.sqlite"])  # the checkpoint is finished: nothing is trained
    (row,) = Store(folder / "other.sqlite").rows("neighbors")
    assert row.code == "first"


def test_seeds_are_cells_of_their_own():
    cells = EXPERIMENT.cells(data="digits", k="1,3", seed="0,4")
    assert [(cell.seed, cell.k) for cell in cells] == [(0, 1), (0, 3), (4, 1), (4, 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--data nowhere", "--data has 'nowhere'; choose from"),
        ("--methods sgd", "--methods has 'sgd'; choose from direct0"),
        ("--net vgg", "--net has 'vgg'; choose from lenet"),
        ("--recipe mine", "--recipe has 'mine'; choose from best, paper"),
        ("--k 0", "--k has 0"),
        ("--k 200", "--k has 200, but a batch has 200 candidates; expected 1 to 199"),
        ("--k x", "--k has 'x'; expected whole numbers"),
        ("--epochs 0", "--epochs is 0; expected at least 1"),
        ("--epsilon 0", "--epsilon is 0"),
        ("--epsilon nan", "--epsilon is nan; expected a finite number"),
        ("--learning-rate 0", "--learning-rate is 0.0; expected a finite number above 0"),
        ("--learning-rate nan", "--learning-rate is nan; expected a finite number"),
        ("--augment spin", "augment has 'spin'; expected of none, flip"),
        ("--augment flip-alternate", "augment has both flip and alternate; give one of them"),
        ("--rise 1", "--rise is 1.0; expected at most 0.9"),
        ("--scale-start 0", "--scale-start is 0.0; expected a finite number above 0"),
        ("--sides none", "--sides has 'none'; choose from one, both"),
        (
            "--queries 1100",
            "a batch of 200 candidates and 1100 queries needs more images than the 1242 that digits has",
        ),
        ("--candidates 2000", "a batch of 2000 candidates and 0 queries needs more images than the 1242"),
        ("--threads 0", "--threads is 0"),
        ("--seed -1", "--seed has -1; expected at least 0"),
        ("--seed 0,1e20", "--seed has '1e20'; expected whole numbers"),
        (f"--seed {10**20}", f"--seed has {10**20}; expected at most {2**63 - 1}"),
    ],
)
def test_bad_options_are_one_line(folder, capsys, arguments, message):
    given = dict(zip(QUICK.split()[1::2], QUICK.split()[2::2], strict=True))
    given |= dict([arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        main(["knn", *(f"{name}={value}" for name, value in given.items())])
    printed = capsys.readouterr()
    assert stopped.value.code == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_checkpoint_of_another_configuration_is_refused(images, tmp_path):
    train(small(epochs=1), images, tmp_path / "checkpoint.pt")
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(UserError, match="checkpoint of another configuration"):
        train(small(epochs=1, k=4), images, tmp_path / "checkpoint.pt")
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\x80\x04cos\nsystem\n(S'true'\ntR."])
def test_a_broken_or_evil_checkpoint_is_refused(content, images, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"(is not a checkpoint|is damaged).*delete it to start again"):
        train(small(epochs=1), images, tmp_path / "checkpoint.pt")


def state(images, path):
    train(small(epochs=1), images, path)
    return torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=True)


@pytest.mark.parametrize("name", ["epoch", "curve", "best", "net", "scale_net", "optimizer", "criterion", "generator"])
def test_a_checkpoint_that_lacks_a_field_is_refused_in_one_line(name, images, tmp_path):
    path = tmp_path / "checkpoint.pt"
    saved = state(images, path)
    del saved[name]
    checkpoints.save(path, EXPERIMENT.key(small(epochs=1)), saved)
    with pytest.raises(UserError, match=r"not a whole checkpoint \(KeyError: .*delete it to start again"):
        train(small(epochs=1), images, path)


def test_a_checkpoint_whose_tensors_have_other_shapes_is_refused_in_one_line(images, tmp_path):
    path = tmp_path / "checkpoint.pt"
    saved = state(images, path)
    first = next(iter(saved["net"]))
    saved["net"][first] = saved["net"][first][:1]
    checkpoints.save(path, EXPERIMENT.key(small(epochs=1)), saved)
    with pytest.raises(UserError, match=r"not a whole checkpoint .*size mismatch") as refused:
        train(small(epochs=1), images, path)
    assert "\n" not in str(refused.value)


def test_a_single_changed_bit_of_a_checkpoint_is_found(images, tmp_path):
    path = tmp_path / "checkpoint.pt"
    state(images, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="checksum does not fit; delete it"):
        train(small(epochs=1), images, path)


def test_a_checkpoint_of_before_checksums_is_read(images, tmp_path):
    path = tmp_path / "checkpoint.pt"
    config = small(epochs=1)
    whole = train(config, images, path)
    saved = state(images, path) | {"config": EXPERIMENT.key(config).whole}
    torch.save(saved, path)
    assert train(config, images, path)["accuracy"] == whole["accuracy"]

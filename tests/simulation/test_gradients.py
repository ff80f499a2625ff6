"""What honest clients compute: every way gives the updates that plain float64 arithmetic gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tesseract_fl.models.gru import Gru, Outputs, Transposed
from tesseract_fl.models.small import Dnn, Logistic, Mlp
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation.evaluate import evaluate
from tesseract_fl.simulation.gradients import Clients, channels_last
from tesseract_fl.simulation.outer import outer_sums
from tesseract_fl.simulation.pooled import Pooled
from tesseract_fl.simulation.stacked import Stacked
from tesseract_fl.types import ConfigError, Matrix

Client = list[tuple[Tensor, Tensor]]
LR = 0.1


def convolutional(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(4))


# shape of the input, and a module for it with four classes
STACKABLE: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "dnn": ((1, 28, 28), lambda: Dnn().build((1, 28, 28), 4)),
    "dnn, colour, odd sizes": ((3, 13, 19), lambda: Dnn().build((3, 13, 19), 4)),
    "mlp": ((5, 3), lambda: Mlp(hidden=7).build((5, 3), 4)),
    "logistic": ((9,), lambda: Logistic().build((9,), 4)),
    "no bias": (
        (2, 9, 9),
        lambda: convolutional(nn.Conv2d(2, 17, 2, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
    ),
    "oblong kernels, three blocks, many filters": (
        (2, 30, 31),
        lambda: convolutional(
            nn.Conv2d(2, 40, (5, 2)), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(40, 3, (2, 3)), nn.ReLU(), nn.MaxPool2d((2, 2)),
            nn.Conv2d(3, 16, 1, padding="valid"), nn.ReLU(), nn.MaxPool2d(2, 2),
        ),
    ),
    "stride, padding, dilation, groups, other pools": (
        (2, 16, 16),
        lambda: convolutional(
            nn.Conv2d(2, 6, 3, stride=2, padding=1), nn.Tanh(), nn.AvgPool2d(2),
            nn.Sequential(nn.Conv2d(6, 4, 3, padding=2, dilation=2, groups=2, bias=False), nn.LeakyReLU()),
            nn.MaxPool2d(3, stride=1),
        ),
    ),
    "pooled first, then not": (
        (1, 14, 14),
        lambda: convolutional(
            nn.Conv2d(1, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3)
        ),
    ),
}  # fmt: skip


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inner(x)
        return out


def shared() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(6, 4))


OTHERS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "batch norm": (
        (2, 6, 6),
        lambda: convolutional(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
    ),
    "a layer used twice": ((6,), shared),
    "a module of the user's own": ((6,), lambda: nn.Sequential(Residual(), nn.Linear(6, 4))),
    "flatten over samples": (
        (6,),
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Flatten(0), nn.Unflatten(0, (-1, 4))),
    ),
}
ALL = STACKABLE | OTHERS


@pytest.fixture(autouse=True)
def _one_thread_for_the_reference() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(name: str) -> tuple[FlatModel, tuple[int, ...]]:
    shape, make = ALL[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = make()
        module(torch.zeros(2, *shape))  # lazy layers learn their size
    return FlatModel(module), shape


def draw(shape: Sequence[int], sizes: Sequence[int], steps: int = 1, classes: int = 4) -> list[Client]:
    rng = torch.Generator().manual_seed(5)
    return [
        [
            (channels_last(torch.randn(size, *shape, generator=rng)), torch.randint(0, classes, (size,), generator=rng))
            for _ in range(steps)
        ]
        for size in sizes
    ]


def exact(model: FlatModel, clients: Sequence[Client]) -> tuple[np.ndarray[Any, Any], list[float]]:
    """The updates and losses in float64, by torch's own optimiser."""
    rows, losses = [], []
    for batches in clients:
        module = deepcopy(model.module).double().train()
        optimiser = torch.optim.SGD(module.parameters(), lr=LR)
        found = []
        for x, y in batches:
            optimiser.zero_grad()
            loss = cross_entropy(module(x.double() if x.is_floating_point() else x), y)
            torch.autograd.backward(loss)
            optimiser.step()
            found.append(loss.item())
        after = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
        rows.append(after.numpy() - model.vector)
        losses.append(sum(found) / len(found))
    return np.stack(rows), losses


def played(model: FlatModel, clients: Sequence[Client], strategy: str, threads: int = 2) -> tuple[Matrix, list[float]]:
    out = np.full((len(clients), model.layout.d), np.nan, np.float32)
    losses = Clients(model, threads=threads, strategy=strategy).updates(clients, LR, out)
    return out, losses


def assert_right(model: FlatModel, clients: Sequence[Client], strategy: str) -> None:
    before = model.vector.copy()
    out, losses = played(model, clients, strategy)
    expected, expected_losses = exact(model, clients)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=3e-6 * np.abs(expected).max())
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    np.testing.assert_array_equal(model.vector, before)


@pytest.mark.parametrize("strategy", ["auto", "stacked", "vmap", "loop"])
@pytest.mark.parametrize("name", STACKABLE)
def test_every_way_gives_the_updates_of_exact_arithmetic(name: str, strategy: str) -> None:
    model, shape = build(name)
    assert_right(model, draw(shape, [4] * 5), strategy)


@pytest.mark.parametrize("strategy", ["auto", "vmap", "loop"])
@pytest.mark.parametrize("name", OTHERS)
def test_what_can_t_be_stacked_is_done_in_another_way(name: str, strategy: str) -> None:
    model, shape = build(name)
    assert Stacked.of(model) is None
    assert_right(model, draw(shape, [4] * 3), strategy)
    with pytest.raises(ConfigError, match="does not know every layer"):
        played(model, draw(shape, [4]), "stacked")


@pytest.mark.parametrize("strategy", ["auto", "stacked", "loop"])
@pytest.mark.parametrize("name", ["dnn", "mlp", "stride, padding, dilation, groups, other pools"])
def test_clients_may_have_batches_of_different_sizes(name: str, strategy: str) -> None:
    model, shape = build(name)
    assert_right(model, draw(shape, [3, 1, 8, 2, 60, 5]), strategy)


@pytest.mark.parametrize("strategy", ["auto", "vmap", "loop"])
@pytest.mark.parametrize("name", ["dnn", "mlp", "batch norm"])
def test_several_local_steps(name: str, strategy: str) -> None:
    model, shape = build(name)
    assert_right(model, draw(shape, [4] * 3, steps=3), strategy)


def test_clients_may_take_different_numbers_of_steps() -> None:
    model, shape = build("mlp")
    clients = [*draw(shape, [4]), *draw(shape, [4], steps=3), *draw(shape, [6], steps=2)]
    assert_right(model, clients, "auto")
    for strategy in ("stacked", "vmap"):
        with pytest.raises(ConfigError, match="can't do these local steps"):
            played(model, clients, strategy)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(max_examples=30)
@given(
    channels=st.integers(1, 5),
    size=st.tuples(st.integers(10, 15), st.integers(10, 15)),
    filters=st.tuples(st.integers(1, 35), st.integers(1, 35)),
    kernels=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    paddings=st.tuples(*[st.sampled_from([0, 1, (2, 0), (0, 3), "same", "valid"])] * 2),
    batch=st.integers(1, 5),
)
def test_pooled_convolutions_of_any_size(
    channels: int,
    size: tuple[int, int],
    filters: tuple[int, int],
    kernels: tuple[int, int],
    paddings: tuple[Any, Any],
    batch: int,
) -> None:
    torch.manual_seed(0)
    module = convolutional(
        nn.Conv2d(channels, filters[0], kernels[0], padding=paddings[0]), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(filters[0], filters[1], kernels[1], padding=paddings[1]), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    module(torch.zeros(1, channels, *size))
    model = FlatModel(module)
    stacked = Stacked.of(model)
    assert stacked
    assert isinstance(stacked.stages[0], Pooled)
    assert_right(model, draw((channels, *size), [batch, 2]), "stacked")


IMAGES: dict[str, Callable[..., Tensor]] = {
    "random": torch.randn,
    "zeros": torch.zeros,
    "all the same": torch.ones,
    "small whole numbers": lambda *shape: torch.randint(0, 2, shape).float(),
}


def two_blocks(channels: int, filters: int) -> tuple[Pooled, nn.Sequential]:
    """The second block is 3 × 3; the first only makes channels of the images."""
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(1, channels, 1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    stacked = Stacked.of(FlatModel(module))
    assert stacked
    (stage,) = stacked.stages
    assert isinstance(stage, Pooled)
    assert stage.blocks[1].by_winograd
    return stage, module


@settings(max_examples=60)
@given(
    kind=st.sampled_from([*IMAGES]),
    size=st.tuples(st.integers(8, 31), st.integers(8, 31)),
    channels=st.integers(1, 40),
    filters=st.integers(1, 52),
    batch=st.integers(1, 3),
)
def test_three_by_three_kernels_and_the_positions_that_they_say_won(
    kind: str, size: tuple[int, int], channels: int, filters: int, batch: int
) -> None:
    stage, module = two_blocks(channels, filters)
    y = stage.forward(IMAGES[kind](batch, 1, *size))
    block = stage.blocks[1]
    tags = torch.from_numpy(block.tags)[..., :filters].permute(0, 3, 1, 2).long()
    alive = tags < 4
    x = torch.from_numpy(block.x).double().requires_grad_()
    conv = deepcopy(module[3]).double()
    _, _, rows, columns = y.shape
    positions = conv(x[..., :channels].permute(0, 3, 1, 2))[:, :, : 2 * rows, : 2 * columns]
    windows = positions.unflatten(3, (columns, 2)).unflatten(2, (rows, 2)).movedim(3, 4).flatten(4)
    top = windows.amax(4)
    torch.testing.assert_close(y.double(), top.relu(), rtol=1e-5, atol=1e-5)
    won = windows.gather(4, tags.clamp(max=3)[..., None])[..., 0]  # rounding may choose between equals
    torch.testing.assert_close(won[alive], top[alive], rtol=1e-5, atol=1e-5)
    assert (top[~alive] < 1e-5).all()

    g = torch.randn(*y.shape)
    padded = np.zeros_like(block.out)
    padded[..., :filters] = g.permute(0, 2, 3, 1)
    out = torch.zeros(1, sum(parameter.numel() for parameter in stage.parameters))
    dx = block.backward(padded, np.array([0, batch]), out)
    expected = torch.autograd.grad((won * alive * g).sum(), [x, *conv.parameters()])
    for found, right in zip((torch.from_numpy(dx), *(part[0] for part in block.targets(out))), expected, strict=True):
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-5 * (1 + float(right.abs().max())))


def test_where_an_image_is_all_the_same_the_first_position_wins() -> None:
    stage, _ = two_blocks(30, 50)
    stage.forward(torch.ones(2, 1, 28, 28))
    assert set(stage.blocks[1].tags[..., :50].ravel().tolist()) == {0, 4}


def test_an_image_s_neighbours_change_no_bit_of_it() -> None:
    stage, _ = two_blocks(30, 50)
    x = torch.randn(7, 1, 30, 26)
    together = stage.forward(x).clone()
    assert all(torch.equal(stage.forward(x[i : i + 1])[0], together[i]) for i in range(7))
    assert torch.equal(stage.forward(x.flip(0)), together.flip(0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_and_spoils_no_other_patch(value: float) -> None:
    stage, module = two_blocks(5, 18)
    x = torch.randn(3, 1, 28, 28)
    clean = stage.forward(x).clone()
    x[1, 0, 9, 9] = value  # in the second block's row and column 4: windows 1 and 2
    found, expected = stage.forward(x), module(x).detach()
    assert not found[~expected.isfinite()].isfinite().any()
    torch.testing.assert_close(found[found.isfinite()], expected[found.isfinite()], rtol=1e-5, atol=1e-5)
    found[1, :, 1:3, 1:3] = clean[1, :, 1:3, 1:3]
    assert torch.equal(found, clean)


SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: Gru(width=5).build((9,), 4),
    "one layer, another width": lambda: nn.Sequential(
        nn.Embedding(4, 3), Outputs(3, 6, batch_first=True), nn.Linear(6, 4), Transposed()
    ),
    "gru of numbers": lambda: nn.Sequential(
        nn.Embedding(4, 3), nn.Tanh(), Outputs(3, 6, batch_first=True), nn.Linear(6, 4), Transposed()
    ),
    "no recurrence": lambda: nn.Sequential(nn.Embedding(4, 5), nn.Linear(5, 4), Transposed()),
    "one label per sequence": lambda: nn.Sequential(nn.Embedding(4, 5), nn.Flatten(), nn.Linear(45, 4)),
}


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_of_symbols_in_one_pass(name: str, optimiser: str) -> None:
    torch.manual_seed(3)
    model = FlatModel(SEQUENCES[name]())
    rng = torch.Generator().manual_seed(5)

    def client(size: int) -> Client:
        text = torch.randint(0, 4, (size, 10), generator=rng)
        return [(text[:, :-1], text[:, 0] if name == "one label per sequence" else text[:, 1:])]

    clients = [client(size) for size in (3, 3, 1, 8, 2, 60)]
    if optimiser == "sgd":
        assert_right(model, clients, "stacked")
    outs = [np.full((len(clients), model.layout.d), np.nan, np.float32) for _ in range(3)]
    for strategy, out in zip(("auto", "stacked", "loop"), outs, strict=True):
        Clients(model, strategy=strategy, optimiser=optimiser).updates(clients, LR, out)
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_allclose(outs[1], outs[2], rtol=1e-3, atol=1e-3 * LR)  # a gradient of about 1e-8 is all rounding
    x = clients[-1][0][0]
    torch.testing.assert_close(torch.cat(Clients(model).predict(x, 7)), model.module(x).detach())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Embedding(4, 3, padding_idx=0),
        nn.Embedding(4, 3, max_norm=1.0),
        nn.Sequential(nn.Embedding(4, 3), Outputs(3, 3)),
        nn.Sequential(nn.Embedding(4, 3), Outputs(3, 3, batch_first=True, bias=False)),
        nn.Sequential(nn.Embedding(4, 3), Outputs(3, 3, num_layers=2, batch_first=True, dropout=0.5)),
    ],
)
def test_sequence_layers_with_other_options_are_not_stacked(layer: nn.Module) -> None:
    assert Stacked.of(FlatModel(nn.Sequential(layer, nn.Linear(3, 4), Transposed()))) is None


def test_of_equal_positions_in_a_window_the_first_wins() -> None:
    model, _ = build("dnn")
    rng = np.random.default_rng(0)
    # sums of small whole numbers are exact in any order, and half of all windows have several maxima
    kernels = slice(0, model.layout.slots[4].start)
    model.vector[kernels] = rng.integers(-1, 2, kernels.stop)
    x = torch.from_numpy(rng.integers(0, 2, (6, 1, 28, 28)).astype(np.float32))
    clients: list[Client] = [[(x[i : i + 2], torch.tensor([0, 3]))] for i in (0, 2, 4)]
    for strategy in ("stacked", "loop"):
        assert_right(model, clients, strategy)


def test_a_position_that_is_exactly_zero_passes_no_gradient_on() -> None:
    model, _ = build("no bias")
    clients: list[Client] = [[(torch.zeros(3, 2, 9, 9), torch.tensor([0, 1, 2]))]]
    assert_right(model, clients, "stacked")


@pytest.mark.parametrize("strategy", ["stacked", "loop"])
@pytest.mark.parametrize("position", [0, 1, 28, 29])
def test_a_nan_is_not_lost_in_a_maximum(strategy: str, position: int) -> None:
    model, shape = build("dnn")
    clients = draw(shape, [2, 2, 2, 2])
    clients[1][0][0].view(2, -1)[0, position] = np.nan
    out, losses = played(model, clients, strategy)
    assert np.isnan(losses).tolist() == [False, True, False, False]
    assert np.isnan(out).any(axis=1).tolist() == [False, True, False, False]


@pytest.mark.parametrize("strategy", ["stacked", "vmap", "loop"])
@pytest.mark.parametrize("name", ["dnn", "mlp"])
def test_the_number_of_threads_changes_no_bit(name: str, strategy: str) -> None:
    model, shape = build(name)
    clients = draw(shape, [16] * 9)
    one, two, three = (played(model, clients, strategy, threads) for threads in (1, 2, 3))
    assert one[0].tobytes() == two[0].tobytes() == three[0].tobytes()
    assert one[1] == two[1] == three[1]


def test_memory_that_is_used_again_leaves_no_trace() -> None:
    model, shape = build("dnn")
    clients = Clients(model, strategy="stacked")
    for sizes in ([9, 9, 9], [2, 5], [30]):
        batches = draw(shape, sizes)
        out = np.empty((len(sizes), model.layout.d), np.float32)
        clients.updates(batches, LR, out)
        clients.predict(torch.randn(7, *shape), 3)
        np.testing.assert_array_equal(out, played(model, batches, "stacked")[0])
        model.vector[:] += out[0]


def test_the_way_is_chosen_by_what_is_fastest() -> None:
    def ways(name: str) -> Sequence[str]:
        model, shape = build(name)
        return Clients(model)._choose(draw(shape, [4])[0][0])

    assert ways("dnn") == ("stacked", "loop")
    assert ways("mlp") == ("stacked", "vmap", "loop")
    assert ways("batch norm") == ("vmap", "loop")


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU(), nn.GRU(3, 3, num_layers=2, dropout=0.1)])
def test_a_model_that_draws_random_numbers_is_an_error(layer: nn.Module) -> None:
    with pytest.raises(ConfigError, match="draws random numbers"):
        Clients(FlatModel(nn.Sequential(nn.Linear(3, 3), layer)))
    Clients(FlatModel(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))))


def test_a_frozen_parameter_is_an_error() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].bias.requires_grad_(False)
    with pytest.raises(ConfigError, match="bias is frozen"):
        FlatModel(module)


def test_samples_may_have_several_positions() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Flatten(), nn.Linear(10, 4)))  # 2 × 3 inputs
    assert_right(model, draw((2, 3), [4, 4]), "auto")
    pixels = FlatModel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2)))  # a class for every pixel
    x = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    assert_right(pixels, [[(x, torch.arange(8).view(2, 2, 2) % 4)]], "auto")
    assert Clients(pixels)._choose((x, torch.zeros(2, dtype=torch.int64))) == ("loop",)  # torch says what is wrong
    for each, inputs in ((model, torch.ones(3, 2, 3)), (pixels, x)):
        torch.testing.assert_close(torch.cat(Clients(each).predict(inputs, 2)), each.module(inputs).detach())


@pytest.mark.parametrize("strategy", ["stacked", "loop"])
@pytest.mark.parametrize("label", [-1, 4])
def test_a_label_that_is_no_class_is_an_error(strategy: str, label: int) -> None:
    model, shape = build("mlp")
    with pytest.raises(IndexError):
        played(model, [[(torch.zeros(2, *shape), torch.tensor([0, label]))]], strategy)


@pytest.mark.parametrize("shape", [(2, 28, 28), (1, 4, 4), (28, 28)])
def test_images_that_do_not_fit_are_an_error(shape: tuple[int, ...]) -> None:
    model, _ = build("dnn")
    for strategy in ("auto", "loop"):
        with pytest.raises(RuntimeError):
            played(model, draw(shape, [4]), strategy)
    clients = Clients(model)
    clients.updates(draw((1, 28, 28), [4]), LR, np.empty((1, model.layout.d), np.float32))
    with pytest.raises(ValueError, match="images of"):
        clients.updates(draw(shape, [4]), LR, np.empty((1, model.layout.d), np.float32))


def test_no_clients_no_updates() -> None:
    model, _ = build("mlp")
    assert Clients(model).updates([], LR, np.empty((0, model.layout.d), np.float32)) == []


@pytest.mark.parametrize("name", ALL)
def test_predictions_are_the_module_s_own(name: str) -> None:
    model, shape = build(name)
    x = draw(shape, [25])[0][0][0]
    model.module.eval()
    parts = Clients(model, threads=2).predict(x, 10)
    assert [len(part) for part in parts] == [10, 10, 5]
    torch.testing.assert_close(torch.cat(parts), model.module(x).detach(), rtol=1e-4, atol=1e-5)


def test_evaluation_counts_right_answers() -> None:
    model, shape = build("dnn")
    ((x, y),) = draw(shape, [250])[0]
    logits = model.module(x).detach()
    quality = evaluate(Clients(model), x, y)
    assert quality.accuracy == (logits.argmax(dim=1) == y).double().mean().item()
    assert quality.loss == pytest.approx(cross_entropy(logits, y).item(), rel=1e-5)


@settings(max_examples=40)
@given(samples=st.integers(1, 9), outputs=st.integers(1, 11), inputs=st.integers(1, 40), seed=st.integers(0, 1000))
def test_outer_sums(samples: int, outputs: int, inputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, x = rng.standard_normal((samples, outputs), np.float32), rng.standard_normal((samples, inputs), np.float32)
    out = np.full((outputs, inputs), np.nan, np.float32)
    outer_sums(np.ascontiguousarray(g.T), x, out)
    np.testing.assert_allclose(out, g.astype(np.float64).T @ x, rtol=1e-5, atol=1e-5)


def test_a_wide_linear_layer() -> None:
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(1030, 1025), nn.ReLU(), nn.Linear(1025, 4)))
    assert_right(model, draw((1030,), [3, 3, 5]), "stacked")

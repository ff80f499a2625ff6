"""FEMNIST as TensorFlow Federated, LEAF or the user's own npz has it."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tesseract_fl.data.femnist import Femnist
from tesseract_fl.data.partition import ByWriter
from tesseract_fl.types import DataError


def characters(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    writers = np.repeat(np.array([7, 3, 900], np.uint16), 20)
    arrays = {"images": rng.integers(0, 256, (60, 28, 28), np.uint8), "labels": np.arange(60) % 62, "writers": writers}
    return arrays | changes


def store(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **arrays)


def test_an_npz_with_writers_keeps_its_own_name(tmp_path: Path) -> None:
    store(tmp_path / "femnist/unipen62_28x28.npz", characters())
    store(tmp_path / "femnist/something_else.npz", {"x": np.zeros(3)})
    data = Femnist().read(tmp_path)
    assert data.name == "unipen62"
    assert data.train_x.shape == (54, 1, 28, 28)
    assert data.test_x.shape == (6, 1, 28, 28)
    assert data.groups is not None
    assert np.bincount(data.groups).tolist() == [18, 18, 18]
    assert data.checksum == Femnist(file="unipen62_28x28.npz").read(tmp_path).checksum
    assert Femnist().partition == "by_writer"


def test_writers_are_part_of_the_checksum(tmp_path: Path) -> None:
    checksums = []
    for names in ([1, 2, 3], [2, 1, 3]):  # the same samples, another order of the writers
        store(tmp_path / "femnist/femnist.npz", characters(writers=np.repeat(names, 20)))
        checksums.append(Femnist().read(tmp_path).checksum)
    assert checksums[0] != checksums[1]


def test_writers_may_have_names(tmp_path: Path) -> None:
    checksums = []
    for names in ([1, 2, 3], ["ann", "bob", "cy"]):
        store(tmp_path / "femnist/femnist.npz", characters(writers=np.repeat(names, 20)))
        checksums.append(Femnist().read(tmp_path).checksum)
    assert checksums[0] == checksums[1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (characters(images=np.zeros((60, 784), np.uint8)), "images must be n × height × width bytes"),
        (characters(images=np.zeros((60, 28, 28))), "images must be n × height × width bytes"),
        (characters(labels=np.zeros(59, np.int64)), "with a whole number as label and a writer each"),
        (characters(labels=np.zeros((60, 2), np.int64)), "with a whole number as label and a writer each"),
        (characters(labels=np.full(60, 0.7)), "with a whole number as label"),
        (characters(labels=np.full(60, "a")), "with a whole number as label"),
        (characters(images=np.zeros((60, 28, 28), np.uint8)), "nothing to learn from"),
        ({"images": np.zeros((0, 28, 28), np.uint8), "labels": np.zeros(0, int), "writers": np.zeros(0)}, "got uint8"),
        (characters(labels=np.array([object()] * 60)), "can't be read"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    store(tmp_path / "femnist/femnist.npz", arrays)
    with pytest.raises(DataError, match=message):
        Femnist().read(tmp_path)


def test_missing_damaged_and_ambiguous_archives(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no mine.npz in"):
        Femnist(file="mine.npz").read(tmp_path)
    for name in ("one.npz", "two.npz"):
        store(tmp_path / "femnist" / name, characters())
    with pytest.raises(DataError, match=r"one.npz, two.npz; choose with --set data.file=NAME"):
        Femnist().read(tmp_path)
    assert Femnist(file="two.npz").read(tmp_path).name == "two"
    path = tmp_path / "femnist/two.npz"
    path.write_bytes(path.read_bytes()[:999])
    with pytest.raises(DataError, match=r"two.npz is damaged or not an npz"):
        Femnist(file="two.npz").read(tmp_path)
    store(path, {"images": np.zeros(3)})
    with pytest.raises(DataError, match=r"has no array labels, writers; it has images"):
        Femnist(file="two.npz").read(tmp_path)


def letters(writer: str, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Ink on white paper, and what it says."""
    rng = np.random.default_rng(list(writer.encode()))
    return rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 62, count, np.int32)


TRAIN = {name: letters(name, count) for name, count in (("f1_02", 9), ("f0_41", 7), ("f2_17", 5))}
TEST = {name: letters(f"{name} tested", count) for name, count in (("f1_02", 2), ("f0_41", 1), ("f2_17", 1))}
BY_NAME = ["f0_41", "f1_02", "f2_17"]

Written = dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]]


def h5(written: Written, labels_as: tuple[int, ...] = (-1,)) -> bytes:
    h5py = pytest.importorskip("h5py")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for writer, (images, labels) in written.items():
            file[f"examples/{writer}/pixels"] = (images / 255).astype(np.float32)
            file[f"examples/{writer}/label"] = labels.reshape(labels_as)
    return content.getvalue()


def leaf(written: Written) -> str:
    return json.dumps(
        {
            "users": list(written),
            "num_samples": [len(labels) for _, labels in written.values()],
            "user_data": {
                writer: {"x": (images.reshape(-1, 784) / 255).tolist(), "y": labels.tolist()}
                for writer, (images, labels) in written.items()
            },
        }
    )


def store_h5(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fed_emnist_train.h5").write_bytes(h5(TRAIN))
    (folder / "fed_emnist_test.h5").write_bytes(h5(TEST))


def store_leaf(folder: Path) -> None:
    for part, written in (("train", TRAIN), ("test", TEST)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, writer in enumerate(written):
            path = folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json"
            path.write_text(leaf({writer: written[writer]}))


def normalised() -> npt.NDArray[np.float64]:
    """The training images with white as 0, by definition."""
    ink = 1 - np.concatenate([TRAIN[writer][0] for writer in BY_NAME]) / 255
    return np.asarray((ink - ink.mean()) / ink.std())


@pytest.mark.parametrize("folder", ["femnist", "."])
def test_tensorflow_federateds_files(tmp_path: Path, folder: str) -> None:
    store_h5(tmp_path / folder)
    data = Femnist().read(tmp_path)
    assert (data.name, data.classes, data.train_x.shape) == ("femnist", 62, (21, 1, 28, 28))
    assert data.train_x.dtype == np.float32
    np.testing.assert_allclose(data.train_x[:, 0], normalised(), atol=1e-5)
    assert data.train_y.tolist() == [label for writer in BY_NAME for label in TRAIN[writer][1]]
    assert data.test_y.tolist() == [label for writer in BY_NAME for label in TEST[writer][1]]
    assert data.groups is not None
    assert data.groups.tolist() == [0] * 7 + [1] * 9 + [2] * 5
    clients = ByWriter().split(data.train_y, 3, 62, np.random.default_rng(0), data.groups)
    assert sorted(len(own) for own in clients) == [5, 7, 9]


def test_labels_may_stand_in_a_column(tmp_path: Path) -> None:
    store_h5(tmp_path)
    first = Femnist().read(tmp_path).checksum
    (tmp_path / "fed_emnist_train.h5").write_bytes(h5(TRAIN, (-1, 1)))
    assert Femnist().read(tmp_path).checksum == first


@pytest.mark.parametrize("folder", ["femnist", "femnist/data", "."])
def test_leafs_files_hold_the_same(tmp_path: Path, folder: str) -> None:
    store_leaf(tmp_path / "json" / folder)
    store_h5(tmp_path / "h5")
    data = Femnist().read(tmp_path / "json")
    assert data.name == "femnist_leaf"
    assert data.checksum == Femnist().read(tmp_path / "h5").checksum


def test_leafs_writers_in_one_file_or_in_many_and_some_who_wrote_nothing(tmp_path: Path) -> None:
    store_leaf(tmp_path)
    first = Femnist().read(tmp_path)
    for path in tmp_path.glob("train/*.json"):
        path.unlink()
    silent = {"f0_99": (np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.int32))}
    (tmp_path / "train/all_data_niid_0_keep_0_train_9.json").write_text(leaf(silent | TRAIN))
    assert Femnist().read(tmp_path).checksum == first.checksum


def test_several_data_sets_are_to_be_chosen_from(tmp_path: Path) -> None:
    store_h5(tmp_path / "femnist")
    store_leaf(tmp_path / "femnist")
    store(tmp_path / "femnist/mine.npz", characters())
    with pytest.raises(DataError, match=r"mine.npz, fed_emnist_train.h5, train; choose with --set data.file=NAME"):
        Femnist().read(tmp_path)
    names = [Femnist(file=file).read(tmp_path).name for file in ("mine.npz", "fed_emnist_train.h5", "train")]
    assert names == ["mine", "femnist", "femnist_leaf"]
    for file in ("fed_emnist_test.h5", "test"):
        with pytest.raises(DataError, match=rf"data.file is {file}, but must be an npz, fed_emnist_train.h5 or train"):
            Femnist(file=file).read(tmp_path)


def packed() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:bz2") as tar:
        for name, part in (("./", b""), ("./fed_emnist_train.h5", h5(TRAIN)), ("./fed_emnist_test.h5", h5(TEST))):
            member = tarfile.TarInfo(name)
            member.type = tarfile.REGTYPE if part else tarfile.DIRTYPE
            member.size = len(part)
            tar.addfile(member, io.BytesIO(part))
    return content.getvalue()


def test_download(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = served / "femnist" / "fed_emnist.tar.bz2"
    archive.write_bytes(packed())
    with pytest.raises(DataError, match="not the published femnist: its checksum differs; nothing was kept"):
        Femnist().read(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(Femnist, "sha256", sha256(archive.read_bytes()).hexdigest())
    first = Femnist().read(tmp_path)
    archive.unlink()
    assert Femnist().read(tmp_path).checksum == first.checksum
    assert sorted(path.name for path in (tmp_path / "femnist").iterdir()) == sorted(Femnist.h5_files)


@pytest.mark.usefixtures("offline")
def test_no_files_and_no_network_says_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    with pytest.raises(DataError, match=r"Put fed_emnist_train.h5 and .* LEAF's folders .* npz .*--data-dir"):
        Femnist().read(tmp_path)


def test_nothing_is_downloaded_that_could_not_be_read(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served / "femnist" / "fed_emnist.tar.bz2").write_bytes(b"not to be asked for")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"Put fed_emnist_train.h5 .* pip install 'tesseract-fl\[roles\]'"):
        Femnist().read(tmp_path)


def test_half_of_the_files(tmp_path: Path) -> None:
    store_h5(tmp_path)
    (tmp_path / "fed_emnist_test.h5").unlink()
    with pytest.raises(DataError, match=r"fed_emnist_test.h5 is missing in .* put it next to it"):
        Femnist().read(tmp_path)
    (tmp_path / "fed_emnist_train.h5").unlink()
    store_leaf(tmp_path)
    for path in tmp_path.glob("test/*.json"):
        path.unlink()
    with pytest.raises(DataError, match=r"there is no JSON in .*test: .* put both there"):
        Femnist().read(tmp_path)


BYTES = {"f0_41": (255 * TRAIN["f0_41"][0].astype(np.int64), TRAIN["f0_41"][1])}
UNLABELLED = {"f0_41": (TRAIN["f0_41"][0], TRAIN["f0_41"][1][1:])}
HALF_LABELS = {"f0_41": (TRAIN["f0_41"][0], TRAIN["f0_41"][1] + 0.5)}


@pytest.mark.parametrize("written", [BYTES, UNLABELLED, HALF_LABELS])
def test_images_that_do_not_fit(tmp_path: Path, written: Any) -> None:
    store_h5(tmp_path / "h5")
    (tmp_path / "h5/fed_emnist_train.h5").write_bytes(h5(written))
    store_leaf(tmp_path / "json")
    (tmp_path / "json/train/all_data_0_niid_0_keep_0_train_9.json").write_text(leaf(written))
    for folder in ("h5", "json"):
        with pytest.raises(
            DataError, match=r"f0_41 must have images of 28 × 28 numbers from 0 to 1, each with a whole number"
        ):
            Femnist().read(tmp_path / folder)


def test_labels_of_another_alphabet(tmp_path: Path) -> None:
    store_leaf(tmp_path)
    images, labels = TRAIN["f0_41"]
    (tmp_path / "train/more.json").write_text(leaf({"f3": (images, labels + 62)}))
    with pytest.raises(DataError, match=r"femnist_leaf has labels from .*, not 0 to 61"):
        Femnist().read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", b"[]", b"[" * 100_000, b'{"users": []}', b'{"user_data": {"f0": {"x": ["I"], "y": [1]}}}'],
)
def test_what_is_not_femnist(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("h5py")
    for folder, file in (("h5", "fed_emnist_train.h5"), ("json", "train/all_data_0_train_9.json")):
        path = tmp_path / folder / file
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path.name} is damaged or has no "):
            Femnist().read(tmp_path / folder)


def test_nobody_wrote_anything(tmp_path: Path) -> None:
    store_leaf(tmp_path)
    for path in tmp_path.glob("train/*.json"):
        path.write_text(leaf({}))
    with pytest.raises(DataError, match="nobody wrote anything"):
        Femnist().read(tmp_path)

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from captioning.captioner import Captioner
from captioning.errors import raise_errors
from captioning.threads import WAITING, batched, in_threads, read_ahead, thread_count

CPU, GPU = torch.device("cpu"), torch.device("cuda")

pytestmark = pytest.mark.usefixtures("two_threads")


def test_cutting_leaves_out_nothing() -> None:
    assert list(batched("abcdefg", 3)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert list(batched("", 3)) == []


def test_two_items_are_worked_on_at_once_by_a_thread_each() -> None:
    both = threading.Barrier(2, timeout=60)

    def work(item: int) -> tuple[int, int]:
        both.wait()  # for the other thread
        torch.rand(400, 400).mm(torch.rand(400, 400)).exp()
        return item, torch.get_num_threads()

    assert list(in_threads(work, range(6), CPU)) == [(item, 1) for item in range(6)]
    assert torch.get_num_threads() == 2
    torch.set_num_threads(40)
    shares = list(in_threads(lambda _: torch.get_num_threads(), range(17), CPU))
    assert shares == [2] * 17


def test_threads_that_start_at_once_have_all_threads() -> None:
    def work() -> list[int]:
        list(in_threads(str, range(4), CPU))
        return [thread_count(CPU), torch.get_num_threads()]

    for _ in range(50):
        with ThreadPoolExecutor(3) as others:
            found = [others.submit(work) for _ in range(3)]
        assert [one.result() for one in found] == [[2, 2]] * 3


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_gradients_and_autocast_are_the_caller_s(gradients: bool, half: bool) -> None:
    weight = torch.ones(2, 2, requires_grad=True)

    def work(item: int) -> tuple[torch.dtype, bool, bool]:
        product = weight @ weight
        return product.dtype, product.requires_grad, torch.is_autocast_cache_enabled()

    with (
        torch.set_grad_enabled(gradients),
        torch.autocast("cpu", enabled=half, cache_enabled=not half),
    ):
        found = list(in_threads(work, range(3), CPU))
    assert found == [(torch.bfloat16 if half else torch.float32, gradients, not half)] * 3


def test_one_item_or_a_gpu_has_all_threads() -> None:
    def work(item: int) -> tuple[threading.Thread, int]:
        return threading.current_thread(), torch.get_num_threads()

    here = threading.current_thread(), 2
    for items, device, in_turn in ((1, CPU, False), (3, GPU, False), (3, CPU, True)):
        assert list(in_threads(work, range(items), device, in_turn=in_turn)) == [here] * items


def test_few_of_endless_items_are_taken_ahead() -> None:
    def endless(read: list[int]) -> Iterator[int]:
        while True:
            read.append(len(read))
            yield read[-1]

    worked, ahead = list[int](), list[int]()
    for read, results, most in (
        (worked, in_threads(str, endless(worked), CPU), 2 + WAITING + 1),
        (ahead, read_ahead(str, endless(ahead), 3), 3 + 1),
    ):
        for expected in range(5):
            assert next(results) == str(expected)
            assert len(read) <= expected + most
        results.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_does_not_wait_for_threads() -> None:
    def work() -> None:
        torch.ones(1000, 1000).exp().mean()  # in several threads

    work()
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(20)
    worker.kill()
    assert worker.exitcode == 0


def test_an_error_comes_after_the_results_before_it() -> None:
    found: list[int] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(in_threads(lambda item: 6 // (3 - item), range(9), CPU))
    assert found == [2, 3, 6]
    assert torch.get_num_threads() == 2


def test_captions_do_not_depend_on_the_number_of_threads(captioner: Captioner) -> None:
    captioner.freeze()
    images = torch.randint(0, 256, (11, 3, 64, 64), dtype=torch.uint8)
    torch.set_num_threads(1)
    expected = list(captioner.stream(images))
    torch.set_num_threads(2)
    captions = list(captioner.stream(images))
    for one, other in zip(raise_errors(captions), raise_errors(expected), strict=True):
        assert one.words == other.words
        assert one.score == pytest.approx(other.score, rel=1e-4)

"""Queue for the model: fairness, followers, and several active runs."""

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from pine_engine.errors import PineError
from pine_engine.scheduling.queue import USED_SHARE, FairQueue, QueueFullError, Ticket
from pine_engine.scheduling.shared import SharedRun
from pine_engine.scheduling.turns import Client


def test_queue_runs_all_one_at_a_time() -> None:
    queue, inside, most, turns = FairQueue(50), [0], [0], []

    def visit(number: int) -> None:
        with queue.join() as ticket:
            while ticket.wait(0.01):
                pass
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            turns.append(number)
            inside[0] -= 1

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1] and sorted(turns) == list(range(40))


PAGES = [Client("10.0.0.1", "page a"), Client("10.0.0.1", "page b"), Client("10.0.0.2", "page c")]
SCRIPTS = [Client("10.0.0.3"), Client("10.0.0.4"), Client("10.0.0.5"), Client("10.0.0.6")]


def served(queue: FairQueue, tickets: dict[str, AbstractContextManager[Ticket]]) -> str:
    """Lets all that wait have the model in turn; their names in that order."""
    entered = {name: ticket.__enter__() for name, ticket in tickets.items()}
    order = ""
    while entered:
        name = next(name for name, ticket in entered.items() if ticket.wait(0) == 0)
        del entered[name]
        tickets[name].__exit__(None, None, None)
        order += name
    return order


def test_queue_alternates_between_addresses_and_pages() -> None:
    queue = FairQueue(20)
    a, b, c = PAGES
    request = {"1": a, "2": a, "3": a, "4": b, "5": c, "6": SCRIPTS[0], "7": c}
    assert served(queue, {name: queue.join(visitor) for name, visitor in request.items()}) == "1564723"


def test_announced_places_match_the_order_of_runs() -> None:
    queue = FairQueue(20)
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(visitor)) for visitor in (PAGES[0], PAGES[0], PAGES[2])]
        assert [ticket.wait(0) for ticket in tickets] == [0, 2, 1]


def test_disconnected_client_lets_others_pass() -> None:
    queue, is_listening = FairQueue(20), [False]
    with ExitStack() as there:
        deaf = there.enter_context(queue.join(SCRIPTS[0], lambda: is_listening[0]))
        assert deaf.wait(0) == 1
        other = there.enter_context(queue.join(PAGES[0]))
        assert other.wait(0) == 0 and deaf.wait(0) == 2
        is_listening[0] = True
        assert deaf.wait(0) == 1
    with queue.join(SCRIPTS[0], lambda: True) as ticket:
        assert ticket.wait(0) == 0


@pytest.mark.parametrize("visitor", [PAGES[0], SCRIPTS[0]])
def test_one_visitor_has_a_share(visitor: Client) -> None:
    queue = FairQueue(20, max_runs_per_client=3)
    with ExitStack() as there:
        for _ in range(3):
            there.enter_context(queue.join(visitor))
        with pytest.raises(PineError, match="Too many runs"):
            there.enter_context(queue.join(visitor))
        there.enter_context(queue.join(PAGES[1]))
        there.enter_context(queue.join(SCRIPTS[1]))


def test_scripts_leave_half_of_the_places_to_pages() -> None:
    queue = FairQueue(4, max_runs_per_client=20)
    with ExitStack() as there:
        for script in SCRIPTS[:3]:  # one has the model
            there.enter_context(queue.join(script))
        with pytest.raises(PineError, match="full for scripts"):
            there.enter_context(queue.join(SCRIPTS[3]))
        for page in PAGES[:2]:
            there.enter_context(queue.join(page))


def test_full_queue_removes_a_run_of_the_largest_user() -> None:
    queue = FairQueue(3)
    greedy, other, third = Client("10.0.0.1", "a"), Client("10.0.0.2", "b"), Client("10.0.0.3", "c")
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(greedy)) for _ in range(4)]
        assert tickets[0].wait(0) == 0
        assert there.enter_context(queue.join(other)).wait(0) == 1
        assert there.enter_context(queue.join(third)).wait(0) == 2
        for ticket in tickets[2:]:
            with pytest.raises(PineError, match="removed from the queue"):
                ticket.wait(0)
        assert tickets[1].wait(0) == 3
        with pytest.raises(PineError, match="full: 3 waiting"):
            there.enter_context(queue.join(other))  # would have as many as the others
    assert queue.waiting == 0


def start(ticket: Ticket) -> SharedRun[int]:
    """Start the computation of a run whose turn it is."""
    assert ticket.wait(0) == 0
    return ticket.start(SharedRun(ticket.request, (number for number in range(3))))


def test_follower_takes_no_place_but_is_limited() -> None:
    queue = FairQueue(1, max_runs_per_client=2)
    with ExitStack() as there:
        active = start(there.enter_context(queue.join(PAGES[0], request="a")))
        waiting = there.enter_context(queue.join(PAGES[1]))
        follower = there.enter_context(queue.join(PAGES[0], request="a"))
        assert follower.wait(0) == 0 and follower.computation is active and follower.is_follower
        with pytest.raises(QueueFullError, match="Too many runs: got 2"):
            there.enter_context(queue.join(PAGES[0], request="a"))
        with pytest.raises(QueueFullError, match="is full"):  # as many followers as places
            there.enter_context(queue.join(PAGES[1], request="a"))
        assert queue.waiting == 1 == waiting.wait(0)


def test_disconnected_client_does_not_follow() -> None:
    queue, is_listening = FairQueue(2), [False]
    with queue.join(request="a") as first:
        start(first)
        with queue.join(SCRIPTS[0], lambda: is_listening[0], "a") as ticket:
            assert ticket.wait(0) == 2
            is_listening[0] = True
            assert ticket.wait(0) == 0 and ticket.is_follower


def test_full_queue_removes_no_follower() -> None:
    queue = FairQueue(3)
    greedy, other = Client("10.0.0.1", "a"), Client("10.0.0.2", "b")
    with ExitStack() as there:
        first = there.enter_context(queue.join(greedy, request="a"))
        *_, last = [there.enter_context(queue.join(greedy)) for _ in range(3)]
        start(first)
        follower = there.enter_context(queue.join(greedy, request="a"))
        there.enter_context(queue.join(other))
        with pytest.raises(QueueFullError, match="removed"):
            last.wait(0)
        assert follower.wait(0) == 0


def test_waiting_run_is_woken_to_follow() -> None:
    queue, ahead = FairQueue(2), list[int]()
    with queue.join(request="a") as first, queue.join(request="a") as second:
        assert first.wait(0) == 0
        waiter = threading.Thread(target=lambda: ahead.append(second.wait(60)))
        waiter.start()
        waiter.join(0.1)
        assert waiter.is_alive()
        start(first)
        waiter.join(10)
    assert ahead == [0]


@pytest.mark.parametrize("request_of_second", ["b", None])
def test_other_request_starts_its_own_computation(request_of_second: str | None) -> None:
    queue = FairQueue(2, max_active=2, free_memory=lambda: 1e9)
    with queue.join(request="a", **sized(1)) as first, queue.join(**sized(1)) as second:
        second.request = request_of_second
        assert first.wait(0) == second.wait(0) == 0
        assert start(first) is not start(second) and not second.is_follower


def started(tickets: Iterable[Ticket]) -> list[bool]:
    """Return for each run whether it may start, or has started."""
    return [ticket.wait(0) == 0 for ticket in tickets]


def queue_with_memory(max_waiting: int = 20, *, is_allocated: bool = True) -> FairQueue:
    """Return a queue for runs of 100 bytes at a time, of which active ones may have allocated theirs."""

    def free_memory() -> float:
        return 100 / USED_SHARE - sum(queue._sizes.values()) * is_allocated

    queue = FairQueue(max_waiting, max_active=10, free_memory=free_memory)
    return queue


def sized(num_bytes: float | None) -> dict[str, Any]:
    """Return the arguments of a run of this size."""
    return {"measure": lambda: num_bytes}


def test_runs_start_while_their_memory_is_free() -> None:
    queue = queue_with_memory()
    with ExitStack() as there:
        leaves = ExitStack()
        small = leaves.enter_context(queue.join(PAGES[0], **sized(50)))
        sizes = (25, 50, 25, None)
        tickets = [there.enter_context(queue.join(PAGES[1], **sized(size))) for size in sizes]
        assert started([small, *tickets]) == [True, True, False, False, False]
        assert [ticket.wait(0) for ticket in tickets] == [0, 2, 3, 4]
        leaves.close()
        assert started(tickets) == [True, True, True, False]
        assert queue.waiting == 1


@pytest.mark.parametrize("is_allocated", [True, False])
def test_active_runs_never_take_more_than_the_free_memory(is_allocated: bool) -> None:
    queue = queue_with_memory(is_allocated=is_allocated)
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(PAGES[0], **sized(30))) for _ in range(20)]
        num_active = sum(started(tickets))
    # Runs that have not allocated yet are seen as if they had, and half of the memory is a reserve for them.
    assert num_active == (3 if is_allocated else 5) and num_active * 30 <= 100 / USED_SHARE


def test_run_is_measured_once_its_model_is_loaded() -> None:
    queue, num_bytes = queue_with_memory(), list[float]()
    with ExitStack() as there:
        tickets = [
            there.enter_context(queue.join(one, measure=lambda: num_bytes[0] if num_bytes else None))
            for one in SCRIPTS[:3]
        ]
        assert started(tickets) == [True, False, False]
        num_bytes.append(40)
        start(tickets[0])  # which has waited for the model
        assert started(tickets) == [True, True, False]


def test_large_run_is_not_passed_by_small_ones() -> None:
    queue = queue_with_memory()
    with ExitStack() as there:
        with queue.join(PAGES[0], **sized(10)) as active:
            assert active.wait(0) == 0
            runs = [there.enter_context(queue.join(PAGES[1], **sized(size))) for size in (1000, 10)]
            assert started(runs) == [False, False]
        assert started(runs) == [True, False]


def test_memory_is_occupied_until_the_last_follower_leaves() -> None:
    queue = queue_with_memory()
    with ExitStack() as there:
        with queue.join(PAGES[0], request="a", **sized(60)) as active:
            start(active)
            follower = ExitStack()
            ticket = follower.enter_context(queue.join(PAGES[1], request="a"))
            other = there.enter_context(queue.join(PAGES[2], **sized(40)))
            third = there.enter_context(queue.join(PAGES[2], **sized(10)))
            assert started([ticket, other, third]) == [True, True, False]
        assert third.wait(0) == 2
        follower.close()
        assert third.wait(0) == 0


def test_active_runs_take_no_place_in_the_queue() -> None:
    queue = queue_with_memory(1)
    queue.max_active = 2
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(PAGES[0], **sized(1))) for _ in range(3)]
        assert started(tickets) == [True, True, False]
        with pytest.raises(QueueFullError, match="is full: 1 waiting"):
            there.enter_context(queue.join(PAGES[0], **sized(1)))
        assert started(tickets) == [True, True, False]


def test_address_starts_half_of_the_runs_while_others_wait() -> None:
    queue = FairQueue(20, max_active=4, free_memory=lambda: 1e9)
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(PAGES[0], **sized(1))) for _ in range(6)]
        waiting = [there.enter_context(queue.join(PAGES[2], **sized(1))) for _ in range(3)]
        assert started([*tickets, *waiting]) == [True, True, *[False] * 4, True, True, False]
        assert queue.is_awaited


def test_address_takes_all_places_if_no_other_waits() -> None:
    queue = FairQueue(20, max_active=4, free_memory=lambda: 1e9)
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(PAGES[0], **sized(1))) for _ in range(5)]
        assert started(tickets) == [True] * 4 + [False]
        other = there.enter_context(queue.join(PAGES[2], **sized(1)))
        assert other.wait(0) == 4 and tickets[4].wait(0) == 5


def test_places_freed_by_the_largest_address_go_to_others() -> None:
    queue = FairQueue(20, max_active=4, free_memory=lambda: 1e9)
    with ExitStack() as there:
        leaving = [ExitStack() for _ in range(4)]
        active = [one.enter_context(queue.join(PAGES[0], **sized(1))) for one in leaving]
        assert all(started(active))
        mine = [there.enter_context(queue.join(PAGES[0], **sized(1))) for _ in range(3)]
        theirs = [there.enter_context(queue.join(PAGES[2], **sized(1))) for _ in range(3)]
        for one in leaving[:2]:
            one.close()
        assert started([*mine, *theirs]) == [False] * 3 + [True, True, False]


def test_run_that_no_listening_client_waits_for_is_not_awaited() -> None:
    queue = FairQueue(20)
    with ExitStack() as there:
        assert there.enter_context(queue.join(PAGES[0])).wait(0) == 0
        assert not queue.is_awaited
        there.enter_context(queue.join(PAGES[1], lambda: False)).wait(0)
        assert not queue.is_awaited
        there.enter_context(queue.join(PAGES[2])).wait(0)
        assert queue.is_awaited


def test_estimated_wait_counts_the_age_of_active_runs(clock: list[float]) -> None:
    queue = FairQueue(20, max_active=2, free_memory=lambda: 1e9)
    with queue.join(PAGES[0], **sized(1)) as ticket:
        ticket.wait(0)
        clock[0] += 10
    with ExitStack() as there:
        tickets = [there.enter_context(queue.join(one, **sized(1))) for one in (PAGES[0], PAGES[2])]
        assert all(started(tickets))
        assert [queue.seconds(ahead) for ahead in (2, 3, 4, 5)] == [10, 10, 20, 20]
        clock[0] += 8
        assert [queue.seconds(ahead) for ahead in (2, 3, 4)] == [2, 2, 12]
        clock[0] += 92  # longer than the last ones: as long again
        assert [queue.seconds(ahead) for ahead in (2, 3)] == [100, 100]


def test_estimated_wait_counts_a_computation_from_its_first_run(clock: list[float]) -> None:
    queue = FairQueue(20)
    with queue.join(PAGES[0]) as ticket:
        ticket.wait(0)
        clock[0] += 10
    with queue.join(PAGES[0], request="a") as first:
        assert first.wait(0) == 0
        start(first)
        clock[0] += 8
        with queue.join(PAGES[1], request="a") as follower:
            assert follower.wait(0) == 0 and follower.is_follower
            assert queue.seconds(1) == 2

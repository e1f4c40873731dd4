"""What is done with many items, and where: see `Job` and `Workers`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cost(NamedTuple):
    """What an item takes: at least so many seconds, and about so many bytes at most."""

    seconds: float = 0.0
    nbytes: int = 0


class Job(Generic[Item, Result]):
    """One kind of work on many items, which have nothing to do with each other.

    A job is sent to each process that takes part, started there, and then called. It is pickled
    before it has started, with items and results.
    """

    def start(self) -> None:
        """Makes ready what all items need, such as a device; called once in each process."""

    def needs(self, item: Item) -> Sequence[Hashable]:
        """What has to be compiled for an item; equal ones are compiled by one worker for all."""
        return ()

    def compile(self, need: Any) -> None:
        """Compiles one of the `needs` by `gen.compile`, whose cache has it afterwards."""

    def __call__(self, item: Item) -> Result:
        """Does the work on an item. A GenError ends all of it."""
        raise NotImplementedError

    def cost(self, item: Item) -> Cost:
        """What processes that share a machine have to know of an item; nothing is small."""
        return Cost()

    def title(self, item: Item) -> str:
        """What is done with an item, in a few words."""
        return str(item)

    def spoilt(self) -> bool:
        """Whether this process can do nothing more, as after a kernel has failed on a GPU."""
        return False


class Workers(Protocol):
    """Those who do a job."""

    def map(self, job: Job[Item, Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """The results as they come, each with its item's index.

        Every item is done once, and again only where a worker was lost with it. What is not done
        when the iterator is closed is given up. Raises what the job raises.
        """
        ...


class Here:
    """This process, which does one item after another, in their order."""

    def map(self, job: Job[Item, Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """See Workers; an item is done when its result is asked for."""
        job.start()
        for index, item in enumerate(items):
            yield index, job(item)


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Results of `Workers.map` in the order of their items, each as soon as it can be."""
    early: dict[int, Result] = {}
    following = 0
    for index, result in results:
        early[index] = result
        while following in early:
            yield early.pop(following)
            following += 1

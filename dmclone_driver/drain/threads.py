# SPDX-License-Identifier: Apache-2.0
"""Do the same for many things, a few at a time.

The threads are daemons: the program can end while they wait for an answer.
"""

import collections.abc
import queue
import threading
from typing import Any


def start(function: collections.abc.Callable[[Any], Any],
          items: collections.abc.Iterable[Any],
          at_once: int) -> queue.SimpleQueue:
    """Begin to apply a function to items, in their order.

    :param function: raises nothing
    :param at_once: number of threads
    :returns: a queue that gets (item, result), as results come
    """
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    results: queue.SimpleQueue = queue.SimpleQueue()
    for item in items:
        waiting.put(item)

    def work() -> None:
        while True:
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            results.put((item, function(item)))
    for _number in range(min(waiting.qsize(), at_once)):
        threading.Thread(target=work, daemon=True).start()
    return results


def each(function: collections.abc.Callable[[Any], Any],
         items: collections.abc.Sequence[Any],
         at_once: int) -> collections.abc.Iterator[tuple[Any, Any]]:
    """Apply a function to items; yield (item, result), as results come."""
    results = start(function, items, at_once)
    for _number in items:
        yield results.get()

# SPDX-License-Identifier: Apache-2.0
"""Do something in a thread while something else is done."""

import collections.abc
import contextlib
import threading
from typing import Any
from typing import TypeVar

from oslo_context import context as oslo_context

Result = TypeVar('Result')


@contextlib.contextmanager
def beside(function: collections.abc.Callable[..., Result], *args: Any
           ) -> collections.abc.Iterator[collections.abc.Callable[[], Result]]:
    """Run a function in a thread while the body of the context runs.

    The context ends after the function, whatever fails: only then is known
    what has to be removed. An error of the body hides one of the function.

    :returns: context manager, which gives the body a function that waits for
        the other one; it returns its result, or raises its error
    """
    results: list[Result] = []
    errors: list[Exception] = []
    # That of the request, for log lines.
    context = oslo_context.get_current()

    def run() -> None:
        if context is not None:
            context.update_store()
        try:
            results.append(function(*args))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)

    def result() -> Result:
        thread.join(None)
        for error in errors:
            raise error
        return results[0]

    thread.start()
    try:
        yield result
    finally:
        thread.join(None)

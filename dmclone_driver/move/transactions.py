# SPDX-License-Identifier: Apache-2.0
"""Transactions: repeated after a deadlock; told of only after the commit."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import functools
from typing import Any
from typing import Concatenate
from typing import ParamSpec
from typing import TypeVar

from cinder import context as cinder_context
from cinder import objects
from oslo_db import api as oslo_db_api
from oslo_log import log as logging
from sqlalchemy import orm

from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

#: The key of what a session does after its commit; see :func:`after_commit`.
_LATER = 'dmclone_later'

#: What a transaction is about: a volume, or a row's id.
First = TypeVar('First', bound='str | objects.Volume | objects.Snapshot')
Rest = ParamSpec('Rest')
Result = TypeVar('Result')


def transaction(step: Step | None = None) -> collections.abc.Callable[
        [collections.abc.Callable[Concatenate[orm.Session, First, Rest],
                                  Result]],
        collections.abc.Callable[
            Concatenate[cinder_context.RequestContext, First, Rest],
            Result]]:
    """Run a function in one transaction; repeat it after a deadlock.

    The whole transaction is repeated: Cinder's own functions repeat only
    themselves after the database has rolled back everything.

    :param step: that the function completes; its first argument is a volume,
        or a row's id
    """
    def decorate(
        function: collections.abc.Callable[
            Concatenate[orm.Session, First, Rest], Result],
    ) -> collections.abc.Callable[
        Concatenate[cinder_context.RequestContext, First, Rest], Result
    ]:
        @oslo_db_api.wrap_db_retry(max_retries=5, retry_on_deadlock=True)
        def in_transaction(context: cinder_context.RequestContext,
                           row: First, *args: Rest.args,
                           **kwargs: Rest.kwargs) -> Result:
            with db_api.main_context_manager.writer.using(context):
                session = context.session
                result = function(session, row, *args, **kwargs)
            for later, values in session.info.pop(_LATER, ()):
                later(*values)
            return result

        @functools.wraps(function)
        def run(context: cinder_context.RequestContext, row: First,
                *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
            result = in_transaction(context.elevated(), row, *args, **kwargs)
            if step and result is not False:
                steps.reached(step, getattr(row, 'id', row))
            return result
        return run
    return decorate


def after_commit(session: orm.Session,
                 function: collections.abc.Callable[..., None],
                 *args: Any) -> None:
    """Call a function once the transaction is committed, never if it fails.

    :param function: that neither fails nor waits
    """
    session.info.setdefault(_LATER, []).append((function, args))


def log_after_commit(session: orm.Session, level: int, line: str,
                     values: dict[str, Any]) -> None:
    """Log a line once the transaction is committed; never if it fails."""
    after_commit(session, LOG.log, level, line, values)


def lock(session: orm.Session,
         *ids: str | None) -> list[models.Volume | None]:
    """Lock rows in the order of their ids; return None for absent ones."""
    rows = session.query(models.Volume).filter_by(deleted=False).filter(
        models.Volume.id.in_(ids)
    ).order_by(models.Volume.id).with_for_update().all()
    by_id = {row.id: row for row in rows}
    return [by_id.get(row_id) for row_id in ids]

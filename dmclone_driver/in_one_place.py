# SPDX-License-Identifier: Apache-2.0
"""Operations on a volume that must not be moving, or move meanwhile."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import contextlib
import functools
from typing import Any
from typing import Protocol

from cinder import context as cinder_context
from cinder.message import message_field
from cinder import objects
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import lookups
from dmclone_driver.move import messages
from dmclone_driver.move.preflight import Preflight

# A method whose first argument is a volume.
_Method = collections.abc.Callable[..., Any]


class _Part(Protocol):
    """A part of the driver whose methods can be decorated."""

    _backend: backend_module.Backend
    _preflight: Preflight


def required(action: str, hydrating: bool = False, prepared: bool = False
             ) -> collections.abc.Callable[[_Method], _Method]:
    """Refuse an operation while its volume (first argument) is moving.

    It has the volume's lock, and the volume's row as it is now.

    :param action: a translated verb
    :param hydrating: whether the volume may be hydrating
    :param prepared: whether it may also have a prepared move
    """
    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def run(self: _Part, volume: objects.Volume, *args: Any,
                **kwargs: Any) -> Any:
            context = backend_module.context_of(volume)
            with self._backend.lock(volume.id):
                self._preflight.refuse_if_gone(context, volume, action)
                (self._preflight.refuse_unless_here if prepared else
                 self._preflight.refuse_while_prepared if hydrating else
                 self._preflight.refuse_while_moving)(
                     context, volume, action)
                return method(self, volume, *args, **kwargs)
        return run
    return decorate


def refuse_if_moved_meanwhile(
        preflight: Preflight, volume: objects.Volume, action: str,
        undo: collections.abc.Callable[[], None]) -> None:
    """Refuse a snapshot that may lack writes on the volume's new home.

    The new home switches over by itself when its guest writes, without the
    volume's lock on this node.

    :param action: a translated verb
    :param undo: function that removes the snapshot, or the clone
    :raises: NotHere, ReadLagsBehind
    """
    context = backend_module.context_of(volume)
    try:
        if lookups.has_moved(context, volume):
            preflight.refuse_if_gone(context, volume, action)
            raise exception.ReadLagsBehind(volume=volume.id)
    except Exception:
        with excutils.save_and_reraise_exception():
            undo()


@contextlib.contextmanager
def staying(backend: backend_module.Backend, preflight: Preflight,
            context: cinder_context.RequestContext, volume: objects.Volume
            ) -> collections.abc.Iterator[None]:
    """Refuse to move a volume while this node writes an image to it.

    Cinder allows a volume to be attached while an image is copied to it.
    """
    with (messages.telling(volume, message_field.Action.COPY_IMAGE_TO_VOLUME),
          backend.lock(volume.id)):
        preflight.refuse_if_gone(context, volume, _('copy an image to'))
        preflight.refuse_while_prepared(context, volume,
                                        _('copy an image to'))
        preflight.staying.add(volume.id)
    try:
        yield
    finally:
        preflight.staying.discard(volume.id)

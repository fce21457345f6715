# SPDX-License-Identifier: Apache-2.0
"""Checks that LVM ignores the volumes of guests, as each program calls it."""

import collections.abc
import dataclasses
import json
import os
import re

from cinder.volume import configuration as cinder_configuration

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

NAME = 'LVM filter'
SYSTEM_FOLDER = '/etc/lvm'

_ID = '6f1f24b6-6c4c-4c0e-9a4e-1f6f0f3f2a10'


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of LVM that decide which devices it reads."""

    filters: tuple[tuple[str, ...], ...]
    devices_file: str | None

    def accepts(self, *names: str) -> bool:
        """Whether LVM reads a device that has these names.

        It has to pass both filters.
        """
        return all(_passes(each, names) for each in self.filters)


def folder_of(configuration: cinder_configuration.Configuration,
              host: Host) -> str | None:
    """Return Cinder's LVM_SYSTEM_DIR, None for LVM's default.

    See LVM.__init__ in cinder/brick/local_dev/lvm.py.
    """
    path = configuration.lvm_conf_file
    if not path or path.lower() == 'none' or not host.exists(path):
        return None
    return os.path.dirname(path)


def parse(text: str) -> Settings:
    """Return the settings of ``lvmconfig --typeconfig full devices``."""
    found = dict(re.findall(r'^\s*(\w+)=(.*)$', text, re.MULTILINE))
    return Settings(
        filters=tuple(tuple(_array(found.get(name, '[]')))
                      for name in ('global_filter', 'filter')),
        # Absent in versions without that file.
        devices_file=_string(found.get('devicesfile', '""'))
        if found.get('use_devicesfile', '0') == '1' else None)


def _array(text: str) -> list[str]:
    """Return an array of strings in LVM's syntax, as in JSON."""
    return json.loads(text) if text.startswith('[') else [_string(text)]


def _string(text: str) -> str:
    return json.loads(text)


def _passes(patterns: collections.abc.Iterable[str],
            names: collections.abc.Iterable[str]) -> bool:
    """Apply a filter to a device (_accept_p in lvm2's lib/filters/regex).

    The first pattern that matches a name decides about that name. One
    accepted name accepts the device. Otherwise one rejected name rejects it.
    """
    verdicts = {_verdict(patterns, name) for name in names}
    return 'a' in verdicts or 'r' not in verdicts


def _verdict(patterns: collections.abc.Iterable[str], name: str) -> str:
    """Return ``a``, ``r`` or nothing; a pattern is such as ``r|^/dev/x|``."""
    return next((pattern[0] for pattern in patterns
                 if re.search(pattern[2:-1], name)), '')


def _devices(prefix: str) -> dict[str, tuple[str, ...]]:
    """Return examples of the driver's devices, with their names.

    :param prefix: target_prefix
    """
    return {
        _('handles of volumes (/dev/mapper/dmclone-*)'): (
            '/dev/mapper/dmclone-' + _ID, '/dev/dm-1000'),
        _('disks of sources (/dev/disk/by-path/*-iscsi-*:dmclone-*)'): (
            '/dev/disk/by-path/ip-192.0.2.1:3260-iscsi-%sdmclone-%s-lun-1' %
            (prefix, _ID), '/dev/sdzz',
            '/dev/disk/by-id/wwn-0x60000000000000000e00000000010001')}


def check(configuration: cinder_configuration.Configuration,
          host: Host) -> collections.abc.Iterator[Result]:
    """Yield one result for Cinder and the driver, and one for the others.

    :raises: ProcessExecutionError
    """
    folder = folder_of(configuration, host)
    section = configuration.config_group
    if folder is not None and folder != SYSTEM_FOLDER:
        yield _check(host, folder, configuration.target_prefix, section)
        section = ''
    yield _check(host, None, configuration.target_prefix, section)


def _check(host: Host, folder: str | None, prefix: str,
           section: str) -> Result:
    who = _('Cinder and this driver') if section else _(
        'programs other than Cinder')
    settings = parse(host.lvm_settings(folder))
    place = folder or SYSTEM_FOLDER
    if settings.devices_file:
        path = os.path.join(place, 'devices', settings.devices_file)
        text = host.read(path)
        # LVM ignores its filters if the file exists.
        if text is not None:
            return _check_file(path, text, who, section)
    seen = [what for what, names in _devices(prefix).items()
            if settings.accepts(*names)]
    if seen:
        return result.failed(
            NAME, _('LVM, as %(who)s call it, reads the %(what)s') % {
                'who': who, 'what': _(' and the ').join(seen)},
            _('merge etc/lvm/lvmlocal.conf of this driver into '
              '%s/lvmlocal.conf') % place, section)
    return result.ok(NAME, _(
        'LVM, as %(who)s call it, ignores the volumes of guests (%(place)s)')
        % {'who': who, 'place': place}, section)


def _check_file(path: str, text: str, who: str, section: str) -> Result:
    if 'dmclone' in text:
        return result.failed(
            NAME, _('the devices file %s lists devices of this driver')
            % path, _('remove them with lvmdevices --deldev'), section)
    return result.ok(NAME, _(
        'LVM, as %(who)s call it, reads only the devices that %(path)s '
        'lists') % {'who': who, 'path': path}, section)

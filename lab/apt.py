# SPDX-License-Identifier: Apache-2.0
"""Debian packages: of this machine's suite, and single ones of others.

Every address comes from this machine's apt configuration, so that its
mirrors, proxies and keyrings are used.
"""

import glob
import os
import pathlib
import re
import shutil
import subprocess

from lab import command
from lab import errors

_POLICY = pathlib.Path('/usr/sbin/policy-rc.d')
_POLICY_KEPT = pathlib.Path('/usr/sbin/policy-rc.d.dmclone-lab-kept')


def codename():
    """Return the suite of this machine, bookworm for Debian 12."""
    for line in pathlib.Path('/etc/os-release').read_text().splitlines():
        if line.startswith('VERSION_CODENAME='):
            return line.partition('=')[2].strip().strip('"')
    raise errors.LabError('/etc/os-release names no VERSION_CODENAME')


def _stanzas(text):
    """Yield sources in the stanza format, as dictionaries."""
    for block in re.split(r'\n\s*\n', text):
        lines = [line for line in block.splitlines()
                 if line.strip() and not line.startswith('#')]
        fields, key = {}, None
        for line in lines:
            if line[0] not in ' \t':
                key, _, line = line.partition(':')
                key = key.lower()
            fields[key] = (fields.get(key, '') + '\n' + line.strip()).strip()
        if fields.get('enabled', 'yes').lower() != 'no':
            yield fields


def _one_liners(text):
    """Yield sources in the one-line format, as the same dictionaries."""
    form = r'(deb(?:-src)?)\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s*(.*)'
    for line in text.splitlines():
        match = re.match(form, line.partition('#')[0].strip())
        if match:
            types, options, uri, suite, components = match.groups()
            fields = {'types': types, 'uris': uri, 'suites': suite,
                      'components': components}
            for option in (options or '').split():
                key, _, value = option.partition('=')
                fields[key.lower()] = value
            yield fields


def sources():
    """Return all enabled package sources of this machine."""
    found = []
    for path in ['/etc/apt/sources.list',
                 *sorted(glob.glob('/etc/apt/sources.list.d/*'))]:
        text = (pathlib.Path(path).read_text() if os.path.isfile(path)
                else '')
        if path.endswith('.sources'):
            found += _stanzas(text)
        elif path.endswith('.list'):
            found += _one_liners(text)
    return [s for s in found if 'deb' in s.get('types', '').split()
            and 'main' in s.get('components', '').split()]


def _line(source, suite):
    options = ' signed-by=%s' % source['signed-by'] \
        if source.get('signed-by', '').startswith('/') else ''
    uri = source['uris'].split()[0]
    return 'deb [arch=amd64%s] %s %s main' % (options, uri, suite)


def own_lines():
    """Return the source lines of this machine's suite and its updates."""
    name = codename()
    lines = [_line(source, suite) for source in sources()
             for suite in source['suites'].split()
             if suite == name or re.fullmatch(
                 name + r'(-updates|-security|/updates)', suite)]
    if not lines:
        raise errors.LabError('found no package source for %s in '
                              '/etc/apt/sources.list*' % name)
    return lines


def lines_of(suite):
    """Return the source lines of another suite, from the same mirror."""
    name = codename()
    return [_line(source, suite) for source in sources()
            if name in source['suites'].split()][:1]


def missing(packages):
    """Return those of the packages that are not installed."""
    form = '${Package} ${db:Status-Status}\n'
    out = command.attempt(['dpkg-query', '-W', '-f', form, *packages])[1]
    there = {line.split()[0] for line in out.splitlines()
             if line.endswith(' installed')}
    return [package for package in packages if package not in there]


def _forbid_daemons():
    """Forbid packages to start their daemons; see _allow_daemons."""
    if _POLICY_KEPT.exists():       # an earlier run was killed
        return
    if _POLICY.exists():
        _POLICY.rename(_POLICY_KEPT)
    _POLICY.write_text('#!/bin/sh\n# dmclone-lab\nexit 101\n')
    _POLICY.chmod(0o755)


def _allow_daemons():
    if _POLICY.exists() and '# dmclone-lab' in _POLICY.read_text():
        _POLICY.unlink()
    if _POLICY_KEPT.exists():
        _POLICY_KEPT.rename(_POLICY)


def install(packages):
    """Install packages on this machine without starting their daemons."""
    env = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
    lock = ['-o', 'DPkg::Lock::Timeout=300']
    _forbid_daemons()
    try:
        command.run(['apt-get', 'update', *lock], timeout=600, env=env)
        command.run(['apt-get', 'install', '-y', '--no-install-recommends',
                     *lock, *packages], timeout=1800, env=env)
    finally:
        _allow_daemons()


def _download(packages, folder, env):
    """Download packages; `meta:NAME` is the first dependency of NAME."""
    names = []
    for package in packages:
        kind, _, name = package.rpartition(':')
        if kind == 'meta':
            out = command.run(['apt-cache', 'depends', name], env=env)
            name = out.partition('Depends: ')[2].split()[0]
        names.append(name)
    command.run(['apt-get', 'download', *names], timeout=600, env=env,
                cwd=folder)


def unpack(suite, packages, folder):
    """Download packages of any suite and unpack them into a folder."""
    work = folder / 'apt'
    for name in ('lists/partial', 'cache/archives/partial', 'debs'):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / 'status').touch()
    (work / 'sources.list').write_text('\n'.join(lines_of(suite)) + '\n')
    config = work / 'apt.conf'
    config.write_text(
        'Dir::State "%(w)s";\nDir::State::lists "%(w)s/lists";\n'
        'Dir::State::status "%(w)s/status";\nDir::Cache "%(w)s/cache";\n'
        'Dir::Etc::sourcelist "%(w)s/sources.list";\n'
        'Dir::Etc::sourceparts "-";\nAPT::Sandbox::User "root";\n'
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n'
        % {'w': work})
    env = dict(os.environ, APT_CONFIG=str(config))
    command.run(['apt-get', 'update'], timeout=300, env=env)
    _download(packages, work / 'debs', env)
    for package in (work / 'debs').iterdir():
        command.run(['dpkg', '-x', package, folder])
    shutil.rmtree(work)


def make_root(packages, newer, tarball, log):
    """Build the root file system of a small Debian as a tar file.

    :param newer: names of source packages to take from the backports
    """
    suite = codename() + '-backports'
    pins = 'Package: %s\nPin: release n=%s\nPin-Priority: 900\n' % (
        ' '.join('src:' + name for name in newer), suite)
    argv = ['mmdebstrap', '--variant=custom', '--mode=root', '--format=tar',
            '--include=' + ','.join(packages),
            "--setup-hook=printf '%s' > \"$1/etc/apt/preferences.d/newer\"" %
            pins.replace('\n', '\\n'), codename(), tarball, '-']
    with open(log, 'wb') as out:
        done = subprocess.run(
            [str(a) for a in argv], stdout=out, stderr=out,
            input='\n'.join([*own_lines(), *lines_of(suite)]).encode(),
            timeout=1800)
    if done.returncode:
        raise errors.LabError(
            'mmdebstrap failed: %s' % pathlib.Path(log).read_text()[-3000:])

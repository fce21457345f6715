# SPDX-License-Identifier: Apache-2.0
"""The files in a node's shared folder, written before it boots."""

import shutil

from lab import config_nova
from lab import kernel
from lab import network
from lab import paths

_SSH = 'Host *\n  StrictHostKeyChecking no\n  LogLevel ERROR\n'


def _host_folders(packaged):
    """Return the folders of the host that the node has at the same path."""
    if packaged:
        return []
    folders = [paths.CHECKOUT, paths.VENV.resolve()]
    interpreter = paths.base_interpreter()
    if str(interpreter) not in ('/usr', '/'):
        folders.append(interpreter)
    return [folder for folder in folders if folder.is_dir()]


def _driver_files(target, packaged):
    """Copy the checkout's files for /etc, if they exist."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if packaged:
        return
    etc = paths.CHECKOUT / 'etc'
    wanted = {rule: 'etc/udev/rules.d/' + rule.name
              for rule in (etc / 'udev').glob('**/*.rules')}
    wanted[etc / 'lvm/lvmlocal.conf'] = 'etc/lvm/lvmlocal.conf'
    for source, name in wanted.items():
        if source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)


def _modules(target, kind):
    """Copy the modules that replace those of the node's kernel."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in kernel.replacements(kind):
        shutil.copy(path, target / path.name)


def write(node):
    """Write all files of the shared folder except Cinder's settings."""
    share = node.machine.share
    (share / 'enabled').mkdir(parents=True, exist_ok=True)
    package = node.settings.package
    values = {'NAME': node.name, 'IP': node.ip,
              'MGMT_IP': network.node_mgmt_ip(node.machine.number),
              'TARGET': node.settings.target,
              'MODE': node.settings.mode,
              'PACKAGED': 'yes' if package else '',
              'VENV': '/usr' if package else paths.VENV,
              'CHECKOUT': '' if package else paths.CHECKOUT,
              'INSTANCES': node.machine.instances,
              'VENV_FOLDER': '/usr' if package else paths.VENV.resolve(),
              'LOGS': node.machine.logs,
              'LAB_FOLDERS': ' '.join(map(str, _host_folders(package)))}
    (share / 'node.env').write_text(''.join(
        '%s="%s"\n' % item for item in values.items()))
    (share / 'hosts').write_text(network.hosts(node.settings.names()))
    for name in ('node-boot', 'lab-service'):
        shutil.copy(paths.TEMPLATES / name, share / name)
        (share / name).chmod(0o755)
    _driver_files(share / 'files', package)
    if package and not (share / 'driver.deb').exists():
        shutil.copy(package, share / 'driver.deb')
    _modules(share / 'modules', node.settings.kernel)
    if node.settings.nova:
        _libvirt_files(share / 'files', node.name)


def _libvirt_files(target, name):
    """Write libvirt's settings, and the key with which nodes copy disks."""
    texts = {'etc/libvirt/libvirtd.conf': config_nova.libvirtd(name),
             'etc/libvirt/qemu.conf': config_nova.QEMU,
             'root/.ssh/config': _SSH,
             'root/.ssh/id_ed25519': paths.SSH_KEY.read_text()}
    for path, text in texts.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text)
        (target / path).chmod(0o600)

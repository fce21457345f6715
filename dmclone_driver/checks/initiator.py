# SPDX-License-Identifier: Apache-2.0
"""Checks of open-iscsi, with which a node imports sources."""

import re

from cinder.volume import configuration as cinder_configuration

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

#: The socket by which iscsiadm reaches iscsid (ISCSIADM_NAMESPACE in
#: open-iscsi's usr/mgmt_ipc.h). systemd may listen for iscsid.
SOCKET = '@ISCSIADM_ABSTRACT_NAMESPACE'
CONFIGURATION = '/etc/iscsi/iscsid.conf'
INITIATOR_NAME = '/etc/iscsi/initiatorname.iscsi'

#: The algorithms that each target answers to. A target takes the first of the
#: initiator's list that it knows.
#:
#: tgt knows MD5, and gives its SHA1 the number 7, which elsewhere is SHA256
#: (chap_initiator_auth_create_challenge in tgt's usr/iscsi/chap.c;
#: iscsi_chap_algs in open-iscsi's usr/config.h). A login with that fails.
#: LIO: drivers/target/iscsi/iscsi_target_auth.c, since Linux 5.5.
ANSWERS = {'tgtadm': ('MD5', 'SHA256'),
           'lioadm': ('MD5', 'SHA1', 'SHA256', 'SHA3-256')}
#: Those of them with which a login succeeds.
WORKING = {'tgtadm': ('MD5',), 'lioadm': ANSWERS['lioadm']}


def check_service(host: Host) -> Result:
    """Check that iscsid can be reached, and that the node has a name."""
    # A kernel without names of other network namespaces shows only its own.
    text = host.read('/proc/net/unix') or ''
    if SOCKET not in text:
        return result.failed(
            'iscsid', _('iscsid of open-iscsi does not run here'),
            _('start iscsid.service or iscsid.socket; in a container, use '
              "the host's network"))
    name = re.search(r'^\s*InitiatorName\s*=\s*(\S+)', host.read(
        INITIATOR_NAME) or '', re.MULTILINE)
    if not name:
        return result.failed(
            'iscsid', _('%s names no initiator') % INITIATOR_NAME,
            _('write InitiatorName=$(iscsi-iname) into it, and restart '
              'iscsid'))
    return result.ok('iscsid', name[1])


def check_chap(configuration: cinder_configuration.Configuration,
               host: Host) -> Result:
    """Check that logins to sources can succeed.

    Sources are exported with CHAP always. All nodes should have the same
    iSCSI target and the same configuration of open-iscsi.
    """
    name, section = 'CHAP algorithms', configuration.config_group
    helper = configuration.target_helper
    if helper not in ANSWERS:
        return result.not_applicable(
            name, _('there is no such target_helper'), section)
    text = host.read(CONFIGURATION)
    if text is None:
        return result.unknown(
            name, _('there is no %s here') % CONFIGURATION,
            _('install open-iscsi; in a container, mount the file'), section)
    found = re.findall(
        r'^\s*node\.session\.auth\.chap_algs\s*=\s*(.*?)\s*$', text,
        re.MULTILINE)
    # The default of open-iscsi; with several lines the last one counts.
    offered = [each.strip().upper() for each in
               (found[-1] if found else 'MD5').split(',')]
    # FIPS forbids it to both sides.
    fips = (host.read('/proc/sys/crypto/fips_enabled') or '0').strip() != '0'
    working = [each for each in WORKING[helper]
               if not (fips and each == 'MD5')]
    chosen = next((each for each in offered if each in ANSWERS[helper]), None)
    if chosen in working:
        return result.ok(name, chosen, section)
    return result.failed(
        name, _('open-iscsi offers %(offered)s (%(file)s), with which no '
                'login to the target of %(helper)s succeeds, so that no '
                'volume moves') % {
                    'offered': ', '.join(offered), 'file': CONFIGURATION,
                    'helper': helper},
        _('put %s first in node.session.auth.chap_algs') % ' or '.join(working)
        if working else _('use target_helper = lioadm on all nodes'), section)

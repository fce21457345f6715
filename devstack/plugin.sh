# SPDX-License-Identifier: Apache-2.0
#
# plugin.sh - DevStack plugin of dmclone_driver
#
# Sourced by DevStack at each phase; the variables are in devstack/settings.

_XTRACE_DMCLONE=$(set +o | grep xtrace)
set +o xtrace

DMCLONE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DMCLONE_UDEV_RULE=/etc/udev/rules.d/11-dm-dmclone.rules
DMCLONE_MULTIPATH_CONF=/etc/multipath/conf.d/dmclone.conf
DMCLONE_LVM_CONF=/etc/lvm/lvmlocal.conf

# Before the installation
# -----------------------

function check_dmclone_settings {
    # DevStack would find these faults late or not at all.
    local backends=,$CINDER_ENABLED_BACKENDS,

    if [[ ! $CINDER_TARGET_HELPER =~ ^(lioadm|tgtadm)$ ]]; then
        die $LINENO "dmclone_driver exports sources with lioadm or tgtadm." \
            "Set CINDER_TARGET_HELPER to one of them instead of" \
            "'$CINDER_TARGET_HELPER'."
    fi
    # DevStack installs, starts and cleans only its own target.
    if [[ ${DMCLONE_TARGET_HELPER:-$CINDER_TARGET_HELPER} \
            != "$CINDER_TARGET_HELPER" \
            || " $DMCLONE_OPTIONS" == *" target_helper="* ]]; then
        die $LINENO "dmclone_driver uses DevStack's iSCSI target. Remove" \
            "DMCLONE_TARGET_HELPER, and target_helper from DMCLONE_OPTIONS;" \
            "set CINDER_TARGET_HELPER, the same on all nodes."
    fi
    if [[ $backends =~ ,dmclone(:[^,]*)?,(.*,)?dmclone[:,] ]]; then
        die $LINENO "A node can have one backend of dmclone_driver, and" \
            "CINDER_ENABLED_BACKENDS has two: $CINDER_ENABLED_BACKENDS"
    fi
    # LIO would not get the port, and only transfers of data would fail.
    if [[ $CINDER_TARGET_HELPER == lioadm ]] && pgrep -x tgtd > /dev/null; then
        die $LINENO "tgtd is running and owns the iSCSI port, but" \
            "CINDER_TARGET_HELPER is lioadm. Disable it:" \
            "sudo systemctl disable --now tgt"
    fi
}

function load_dmclone_modules {
    local module missing=""

    for module in dm-clone dm-zero; do
        sudo modprobe "$module" || missing+=" $module"
    done
    if [[ -n $missing ]]; then
        die $LINENO "The kernel $(uname -r) has no$missing. dmclone_driver" \
            "needs Linux 5.12 or later with DM_CLONE and DM_ZERO, such as" \
            "the kernels of Ubuntu, of Fedora, and of Debian's backports" \
            "from 7.2 on. Debian's own kernels (12 and 13) and those of RHEL" \
            "and its rebuilds are built without DM_CLONE."
    fi
    if [[ $CINDER_TARGET_HELPER == lioadm ]]; then
        sudo modprobe iscsi_target_mod || die $LINENO \
            "The kernel $(uname -r) has no iscsi_target_mod, which lioadm" \
            "needs. In Ubuntu's kernels for virtual machines it is in the" \
            "package linux-modules-extra-$(uname -r)."
    fi
}

function install_dmclone_packages {
    # Not the target: install_cinder in DevStack's lib/cinder installs the
    # one that CINDER_TARGET_HELPER names. A second one takes its port.
    install_package lvm2
    if is_ubuntu; then
        install_package dmsetup open-iscsi thin-provisioning-tools
    else
        install_package device-mapper iscsi-initiator-utils \
            device-mapper-persistent-data
    fi
}

function install_dmclone_host_files {
    # Before the first device: udev has to know the flags when it appears.
    sudo install -m 0644 \
        "$DMCLONE_DIR/etc/udev/rules.d/11-dm-dmclone.rules" \
        "$DMCLONE_UDEV_RULE"
    sudo udevadm control --reload
    # multipathd may be installed later.
    sudo install -D -m 0644 \
        "$DMCLONE_DIR/etc/multipath/conf.d/dmclone.conf" \
        "$DMCLONE_MULTIPATH_CONF"
    reload_dmclone_multipath
    install_dmclone_lvm_settings
}

function remove_dmclone_host_files {
    sudo rm -f "$DMCLONE_UDEV_RULE" "$DMCLONE_MULTIPATH_CONF"
    sudo udevadm control --reload || true
    reload_dmclone_multipath
    remove_dmclone_lvm_settings
}

function reload_dmclone_multipath {
    if pgrep -x multipathd > /dev/null; then
        sudo multipathd reconfigure || true
    fi
}

function install_dmclone_lvm_settings {
    # At the end of stack.sh, set_lvm_filter in DevStack's lib/lvm writes a
    # list of the present loop devices into lvm.conf. They have other numbers
    # after a reboot. The filter in this file replaces that list.
    remove_dmclone_lvm_settings
    if sudo grep -qs '^[[:space:]]*global_filter' "$DMCLONE_LVM_CONF"; then
        warn $LINENO "$DMCLONE_LVM_CONF has a global_filter. Add that of \
$DMCLONE_DIR/etc/lvm/lvmlocal.conf to it."
        return 0
    fi
    { echo "# dmclone_driver: begin";
        cat "$DMCLONE_DIR/etc/lvm/lvmlocal.conf";
        echo "# dmclone_driver: end"; } \
        | sudo tee -a "$DMCLONE_LVM_CONF" > /dev/null
}

function remove_dmclone_lvm_settings {
    sudo sed -i \
        '/^# dmclone_driver: begin$/,/^# dmclone_driver: end$/d' \
        "$DMCLONE_LVM_CONF" 2> /dev/null || true
}

# Installation
# ------------

function install_dmclone {
    # Without dependencies: all belong to Cinder, and pip would replace a
    # checkout of another version by the release on the package index.
    pip_install --no-deps -e "$DMCLONE_DIR"
    "${PYTHON:-python3}" -c "from cinder import objects
objects.register_all()
import dmclone_driver.driver" || die $LINENO \
        "dmclone_driver cannot be imported beside the Cinder in" \
        "$CINDER_DIR; see requirements.txt for the versions that it needs."
}

function configure_dmclone_chap {
    # tgt has MD5, and SHA1 under the number 7 (CHAP_DIGEST_ALG_SHA1 in its
    # usr/iscsi/chap.c), which is SHA256 in open-iscsi. configure_nova in
    # DevStack's lib/nova allows SHA3-256 and SHA256 only, which LIO has.
    if [[ $CINDER_TARGET_HELPER == tgtadm ]]; then
        iniset -sudo /etc/iscsi/iscsid.conf DEFAULT \
            node.session.auth.chap_algs MD5
        restart_service iscsid
    fi
}

function install_dmclone_rootwrap_filter {
    # configure_rootwrap in DevStack's lib/rootwrap has recreated the folder.
    sudo install -D -o root -g root -m 0644 \
        "$DMCLONE_DIR/etc/cinder/rootwrap.d/dmclone.filters" \
        "$CINDER_CONF_DIR/rootwrap.d/dmclone.filters"
}

function configure_dmclone_threads {
    if [[ $DMCLONE_NATIVE_THREADS == True ]]; then
        SYSTEMD_ENV_VARS["c-vol"]+=" OS_CINDER_DISABLE_EVENTLET_PATCHING=true"
    fi
}

# Removal of what a stopped driver has left
# -----------------------------------------

function remove_dmclone_sessions {
    # By the numbers of the sessions: cleanup_nova in DevStack's lib/nova has
    # already deleted the records of all targets.
    # Before the devices: requests that wait for a source get errors.
    local session target

    for session in $(sudo iscsiadm -m session 2> /dev/null \
            | sed -n 's/^[^[]*\[\([0-9]*\)\].*:dmclone-.*/\1/p'); do
        sudo iscsiadm -m session -r "$session" --logout || true
    done
    for target in $(sudo iscsiadm -m node 2> /dev/null \
            | sed -n 's/.* \([^ ]*:dmclone-[^ ]*\).*/\1/p'); do
        sudo iscsiadm -m node -T "$target" -o delete || true
    done
}

function _dmclone_devices {
    sudo dmsetup info -c --noheadings -o uuid 2> /dev/null \
        | grep '^DMCLONE-' || true
}

function remove_dmclone_devices {
    # Each pass removes the devices on which no other lies any more.
    local uuid before="" left

    left=$(_dmclone_devices)
    while [[ -n $left && $left != "$before" ]]; do
        for uuid in $left; do
            sudo dmsetup remove --uuid "$uuid" 2> /dev/null || true
        done
        before=$left
        left=$(_dmclone_devices)
    done
    if [[ -n $left ]]; then
        left=${left//$'\n'/ }
        warn $LINENO "Devices of dmclone_driver are still in use: $left"
    fi
}

# Volume groups
# -------------

function _dmclone_group_is_on_file {
    # As lib/lvm in DevStack names the files of the groups that it creates.
    [[ -e $DATA_DIR/$1$BACKING_FILE_SUFFIX ]]
}

function init_dmclone_volume_group {
    # init_dmclone_volume_group NAME SIZE
    # An operator's own group is used as it is: init_lvm_volume_group would
    # remove all logical volumes from it.
    if _dmclone_group_is_on_file "$1" || ! sudo vgs "$1"; then
        init_lvm_volume_group "$1" "$2"
    fi
}

function clean_dmclone_volume_group {
    # clean_dmclone_volume_group NAME
    if _dmclone_group_is_on_file "$1"; then
        clean_lvm_volume_group "$1"
    fi
}

# Cinder's backend
# ----------------
# lib/cinder in DevStack calls these functions for each backend of the type
# dmclone in CINDER_ENABLED_BACKENDS.

function configure_cinder_backend_dmclone {
    local be_name=$1
    local option

    iniset "$CINDER_CONF" "$be_name" volume_backend_name "$be_name"
    iniset "$CINDER_CONF" "$be_name" volume_driver \
        dmclone_driver.driver.DMCloneVolumeDriver
    iniset "$CINDER_CONF" "$be_name" volume_group "$DMCLONE_VOLUME_GROUP"
    iniset "$CINDER_CONF" "$be_name" lvm_type default
    iniset "$CINDER_CONF" "$be_name" volume_clear "$CINDER_VOLUME_CLEAR"
    iniset "$CINDER_CONF" "$be_name" target_helper "$CINDER_TARGET_HELPER"
    iniset "$CINDER_CONF" "$be_name" target_prefix "$CINDER_TARGET_PREFIX"
    iniset "$CINDER_CONF" "$be_name" target_port "$CINDER_TARGET_PORT"
    iniset "$CINDER_CONF" "$be_name" target_ip_address "$CINDER_MY_IP"
    if [[ -n $DMCLONE_METADATA_VOLUME_GROUP ]]; then
        iniset "$CINDER_CONF" "$be_name" dmclone_metadata_volume_group \
            "$DMCLONE_METADATA_VOLUME_GROUP"
    fi
    for option in $DMCLONE_OPTIONS; do
        iniset "$CINDER_CONF" "$be_name" "${option%%=*}" "${option#*=}"
    done
}

function init_cinder_backend_dmclone {
    # What an earlier run has left would keep its logical volumes open.
    remove_dmclone_sessions
    remove_dmclone_devices
    init_dmclone_volume_group "$DMCLONE_VOLUME_GROUP" \
        "$DMCLONE_VOLUME_GROUP_SIZE"
    if [[ -n $DMCLONE_METADATA_VOLUME_GROUP ]]; then
        init_dmclone_volume_group "$DMCLONE_METADATA_VOLUME_GROUP" \
            "$DMCLONE_METADATA_VOLUME_GROUP_SIZE"
    fi
}

function cleanup_cinder_backend_dmclone {
    # cleanup_cinder is called when Nova's guests and all targets are gone.
    remove_dmclone_sessions
    remove_dmclone_devices
    clean_dmclone_volume_group "$DMCLONE_VOLUME_GROUP"
    if [[ -n $DMCLONE_METADATA_VOLUME_GROUP ]]; then
        clean_dmclone_volume_group "$DMCLONE_METADATA_VOLUME_GROUP"
    fi
}

# Phases
# ------

if is_service_enabled c-vol; then
    if [[ $1 == stack && $2 == pre-install ]]; then
        check_dmclone_settings
        load_dmclone_modules
        install_dmclone_packages
        install_dmclone_host_files

    elif [[ $1 == stack && $2 == install ]]; then
        install_dmclone
        configure_dmclone_chap

    elif [[ $1 == stack && $2 == post-config ]]; then
        install_dmclone_rootwrap_filter
        configure_dmclone_threads
    fi

    if [[ $1 == unstack ]]; then
        # It would rebuild devices that are removed. They are removed in
        # cleanup_cinder_backend_dmclone, when no guest uses them any more.
        stop_process c-vol
    fi

    if [[ $1 == clean ]]; then
        remove_dmclone_host_files
    fi
fi

$_XTRACE_DMCLONE

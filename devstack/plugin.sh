# plugin.sh - devstack plugin of dmclone_driver
#
# Sourced by devstack; the variables are in devstack/settings.

_XTRACE_DMCLONE=$(set +o | grep xtrace)
set +o xtrace

DMCLONE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

function install_dmclone_packages {
    install_package lvm2
    if is_ubuntu; then
        install_package dmsetup open-iscsi tgt
    else
        install_package device-mapper iscsi-initiator-utils targetcli
    fi
    # Before the first volume: a volume cannot be attached without the target.
    sudo modprobe dm-clone
}

function install_dmclone_udev_rule {
    # Before the first device: udev has to know the flags when it appears.
    sudo install -m 0644 \
        "$DMCLONE_DIR/etc/udev/rules.d/11-dm-dmclone.rules" \
        "$DMCLONE_UDEV_RULE"
    sudo udevadm control --reload
    if [[ -d /etc/multipath ]]; then
        sudo install -D -m 0644 \
            "$DMCLONE_DIR/etc/multipath/conf.d/dmclone.conf" \
            /etc/multipath/conf.d/dmclone.conf
    fi
}

function install_dmclone_rootwrap_filter {
    sudo install -D -o root -g root -m 0644 \
        "$DMCLONE_DIR/etc/cinder/rootwrap.d/dmclone.filters" \
        "$CINDER_CONF_DIR/rootwrap.d/dmclone.filters"
}

function _dmclone_backing_file {
    echo "$DATA_DIR/$1.dmclone-backing"
}

function create_dmclone_volume_group {
    # create_dmclone_volume_group NAME SIZE
    local vg=$1
    local size=$2
    local file device

    sudo vgs "$vg" > /dev/null 2>&1 && return 0

    file=$(_dmclone_backing_file "$vg")
    [[ -f $file ]] || truncate -s "$size" "$file"
    device=$(sudo losetup --find --show "$file")
    sudo vgs "$vg" > /dev/null 2>&1 || sudo vgcreate "$vg" "$device"
}

function remove_dmclone_volume_group {
    # remove_dmclone_volume_group NAME : only if this plugin created it
    local vg=$1
    local file device

    file=$(_dmclone_backing_file "$vg")
    [[ -f $file ]] || return 0
    sudo vgremove -f "$vg" || true
    for device in $(sudo losetup -n -O NAME -j "$file"); do
        sudo pvremove -ff -y "$device" || true
        sudo losetup -d "$device"
    done
    rm -f "$file"
}

# devstack calls the next three functions for each backend of the type
# dmclone in CINDER_ENABLED_BACKENDS.

function configure_cinder_backend_dmclone {
    local be_name=$1
    local option

    iniset "$CINDER_CONF" "$be_name" volume_backend_name "$be_name"
    iniset "$CINDER_CONF" "$be_name" volume_driver \
        dmclone_driver.driver.DMCloneVolumeDriver
    iniset "$CINDER_CONF" "$be_name" volume_group "$DMCLONE_VOLUME_GROUP"
    iniset "$CINDER_CONF" "$be_name" target_helper "$DMCLONE_TARGET_HELPER"
    iniset "$CINDER_CONF" "$be_name" target_ip_address "$HOST_IP"
    if [[ -n $DMCLONE_METADATA_VOLUME_GROUP ]]; then
        iniset "$CINDER_CONF" "$be_name" dmclone_metadata_volume_group \
            "$DMCLONE_METADATA_VOLUME_GROUP"
    fi
    for option in $DMCLONE_OPTIONS; do
        iniset "$CINDER_CONF" "$be_name" "${option%%=*}" "${option#*=}"
    done
}

function init_cinder_backend_dmclone {
    create_dmclone_volume_group "$DMCLONE_VOLUME_GROUP" \
        "$DMCLONE_VOLUME_GROUP_SIZE"
    if [[ -n $DMCLONE_METADATA_VOLUME_GROUP ]]; then
        create_dmclone_volume_group "$DMCLONE_METADATA_VOLUME_GROUP" \
            "$DMCLONE_METADATA_VOLUME_GROUP_SIZE"
    fi
}

function cleanup_cinder_backend_dmclone {
    remove_dmclone_devices
    remove_dmclone_volume_group "$DMCLONE_VOLUME_GROUP"
    if [[ -n $DMCLONE_METADATA_VOLUME_GROUP ]]; then
        remove_dmclone_volume_group "$DMCLONE_METADATA_VOLUME_GROUP"
    fi
}

function remove_dmclone_devices {
    # Remove the devices that a stopped driver has left, from the topmost
    # down. A handle that is still open is kept.
    local role uuid
    for role in export handle source gate; do
        for uuid in $(sudo dmsetup info -c --noheadings -o uuid 2> /dev/null \
                | grep "^DMCLONE-$role-"); do
            sudo dmsetup remove --uuid "$uuid" || true
        done
    done
}

DMCLONE_THREADS_DROPIN="/etc/systemd/system/devstack@c-vol.service.d"

function configure_dmclone_threads {
    # A drop-in, since devstack rewrites the unit at each start.
    sudo rm -rf "$DMCLONE_THREADS_DROPIN"
    if [[ $DMCLONE_NATIVE_THREADS == True ]]; then
        sudo mkdir -p "$DMCLONE_THREADS_DROPIN"
        printf '[Service]\nEnvironment=%s\n' \
            OS_CINDER_DISABLE_EVENTLET_PATCHING=1 \
            | sudo tee "$DMCLONE_THREADS_DROPIN/dmclone.conf" > /dev/null
    fi
    sudo systemctl daemon-reload
}

if is_service_enabled c-vol; then
    if [[ $1 == stack && $2 == pre-install ]]; then
        install_dmclone_packages
        install_dmclone_udev_rule

    elif [[ $1 == stack && $2 == install ]]; then
        setup_develop "$DMCLONE_DIR"

    elif [[ $1 == stack && $2 == post-config ]]; then
        # After devstack has recreated rootwrap.d.
        install_dmclone_rootwrap_filter
        configure_dmclone_threads
    fi

    if [[ $1 == unstack ]]; then
        remove_dmclone_devices
    fi

    if [[ $1 == clean ]]; then
        remove_dmclone_devices
        sudo rm -rf "$DMCLONE_THREADS_DROPIN" "$DMCLONE_UDEV_RULE" \
            /etc/multipath/conf.d/dmclone.conf
        sudo udevadm control --reload || true
    fi
fi

$_XTRACE_DMCLONE

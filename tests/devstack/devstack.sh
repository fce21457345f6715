# SPDX-License-Identifier: Apache-2.0
#
# The functions of stand_in.sh with the code of a checkout of DevStack, in
# $DEVSTACK_DIR. Its folder is linked into the machine, so that the checkout
# stays as it is.

mkdir -p "$MACHINE/devstack"
ln -sfn "$DEVSTACK_DIR"/* "$MACHINE/devstack"
TOP_DIR=$MACHINE/devstack
RC_DIR=$TOP_DIR
FILES=$TOP_DIR/files
cd "$TOP_DIR" || exit 1
source "$TOP_DIR/functions"

function load_functions {
    cp "$MACHINE/local.conf" "$TOP_DIR/local.conf"
    rm -f "$TOP_DIR/.localrc.auto"
    extract_localrc_section "$TOP_DIR/local.conf" "$TOP_DIR/localrc" \
        "$TOP_DIR/.localrc.auto"
    source "$TOP_DIR/stackrc"
    source "$MACHINE_SH"
    # The distribution of a node that can use the driver.
    os_VENDOR=Ubuntu os_PACKAGE=deb os_RELEASE=24.04 os_CODENAME=noble
    DISTRO=noble
    DATA_DIR=$DEST/data
    STACK_USER=$(id -un)
    # setup_develop changes no constraints then.
    REQUIREMENTS_DIR=""
    SYSTEMD_DIR=$MACHINE/etc/systemd/system
    # The plugin's work tree, which git_clone leaves as it is.
    GLOBAL_VENV=False
    LIBVIRT_TYPE=qemu
}

function load_libraries {
    local name
    for name in apache tls infra libraries lvm rpc_backend database keystone \
            glance nova placement cinder stack; do
        source "$TOP_DIR/lib/$name"
    done
    CINDER_CONF_DIR=$MACHINE/etc/cinder
    CINDER_CONF=$CINDER_CONF_DIR/cinder.conf
    CINDER_API_PASTE_INI=$CINDER_CONF_DIR/api-paste.ini
    CINDER_BIN_DIR=$MACHINE/bin
    NOVA_CONF_DIR=$MACHINE/etc/nova
    mkdir -p "$CINDER_DIR/etc/cinder" "$NOVA_DIR/etc/nova" \
        "$CINDER_CONF_DIR" "$NOVA_CONF_DIR"
    touch {"$CINDER_DIR/etc/cinder","$NOVA_DIR/etc/nova"}/api-paste.ini
    source "$MACHINE_SH"
    # Databases, messages, tokens, guests and Tempest are not simulated.
    for name in async_runfunc clean_iptables \
            configure_keystone_authtoken_middleware \
            configure_keystoneauth configure_nova_hypervisor \
            create_nova_conf database_connection_url git_clone \
            init_cinder_service_user_conf iniset_rpc_backend \
            recreate_database remove_uwsgi_config setup_logging \
            write_uwsgi_config; do
        eval "function $name { return 0; }"
    done
}

function configure_rootwrap {
    sudo rm -rf "$CINDER_CONF_DIR/rootwrap.d"
}

function load_tempest {
    # extras.d/80-tempest.sh does it in the phase "source".
    return 0
}

function install_services {
    if is_service_enabled cinder; then
        stack_install_service cinder
        configure_cinder
    fi
    if is_service_enabled nova; then
        configure_nova
    fi
}

function finish_stack {
    if is_service_enabled cinder; then
        set_lvm_filter
    fi
}

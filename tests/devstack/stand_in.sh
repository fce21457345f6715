# SPDX-License-Identifier: Apache-2.0
#
# A stand-in for DevStack: the functions and phases that its documentation
# (doc/source/plugins.rst) promises to plugins, and what lib/cinder, lib/nova
# and lib/lvm do around a backend, as far as the plugin depends on it.
# devstack.sh has the same functions with DevStack's own code.

declare -A GITREPO GITDIR GITBRANCH SYSTEMD_ENV_VARS

function die {
    shift
    echo "die: $*" >&2
    exit 1
}

function warn {
    # Other words are ignored.
    echo "warn: $2" >&2
}

function echo_summary {
    echo "$*"
}

function trueorfalse {
    case ${!2:-} in
        1 | [yY]es | YES | [tT]rue | TRUE) echo True;;
        0 | [nN]o | NO | [fF]alse | FALSE) echo False;;
        *) echo "$1";;
    esac
}

function is_ubuntu {
    return 0
}

function is_fedora {
    return 1
}

function is_service_enabled {
    local service
    for service in "$@"; do
        if [[ ,$ENABLED_SERVICES, == *,$service,* ]]; then
            return 0
        fi
        if [[ $service == cinder && ,$ENABLED_SERVICES == *,c-* ]]; then
            return 0
        fi
    done
    return 1
}

function iniset {
    # Of several values of an option the last is valid.
    local file=$1
    if [[ $1 == -sudo ]]; then
        shift
        record "sudo iniset $*"
        file=$MACHINE_ROOT$1
        mkdir -p "$(dirname "$file")"
    fi
    printf '[%s]\n%s = %s\n' "$2" "$3" "$4" >> "$file"
}

function restart_service {
    sudo systemctl restart "$1"
}

function setup_develop {
    pip_install -e "$1"
}

function stop_process {
    if is_service_enabled "$1"; then
        sudo systemctl stop "devstack@$1.service"
    fi
}

function define_plugin {
    return 0
}

function enable_plugin {
    GITREPO[$1]=$2
    GITDIR[$1]=$DEST/$1
    GITBRANCH[$1]=${3:-master}
    DEVSTACK_PLUGINS+=" $1"
}

function fetch_plugins {
    local plugin
    for plugin in $DEVSTACK_PLUGINS; do
        if [[ ! -d ${GITDIR[$plugin]} ]]; then
            git clone --quiet --branch "${GITBRANCH[$plugin]}" \
                "${GITREPO[$plugin]}" "${GITDIR[$plugin]}" || die 0 "git"
        fi
    done
}

function run_phase {
    local plugin file
    for plugin in $DEVSTACK_PLUGINS; do
        case $1 in
            override_defaults) file=override-defaults;;
            source) file=settings;;
            *) file=plugin.sh;;
        esac
        source "${GITDIR[$plugin]}/devstack/$file" "$@"
    done
}

function load_plugin_settings {
    run_phase source
}

# What the scripts of DevStack do.

function load_functions {
    # functions and stackrc, with the settings in local.conf
    STACK_USER=stack
    VOLUME_NAME_PREFIX=volume-
    SERVICE_IP_VERSION=4
    ENABLED_SERVICES=key,n-api,n-cpu,n-sch,g-api,c-sch,c-api,c-vol,tempest
    HOST_IP=192.0.2.1
    sed -n '/^\[\[local|localrc\]\]/,/^\[\[test-config/{/^\[\[/!p}' \
        "$MACHINE/local.conf" > "$MACHINE/localrc"
    source "$MACHINE/localrc"
    DATA_DIR=$DEST/data
    VOLUME_BACKING_FILE_SIZE=${VOLUME_BACKING_FILE_SIZE:-30G}
}

function load_libraries {
    VOLUME_GROUP_NAME=${VOLUME_GROUP_NAME:-stack-volumes}
    BACKING_FILE_SUFFIX=-backing-file
    CINDER_CONF_DIR=/etc/cinder
    CINDER_CONF=$MACHINE/etc/cinder/cinder.conf
    CINDER_ENABLED_BACKENDS=${CINDER_ENABLED_BACKENDS:-lvm:lvmdriver-1}
    CINDER_TARGET_HELPER=${CINDER_TARGET_HELPER:-lioadm}
    CINDER_TARGET_PREFIX=${CINDER_TARGET_PREFIX:-iqn.2010-10.org.openstack:}
    CINDER_TARGET_PORT=${CINDER_TARGET_PORT:-3260}
    CINDER_VOLUME_CLEAR=${CINDER_VOLUME_CLEAR:-zero}
    CINDER_MY_IP=$HOST_IP
    if [[ $SERVICE_IP_VERSION == 6 ]]; then
        CINDER_MY_IP=$HOST_IPV6
    fi
}

function load_tempest {
    # Before the settings of plugins.
    TEMPEST_VOLUME_VENDOR=${TEMPEST_VOLUME_VENDOR:-Open Source}
    TEMPEST_STORAGE_PROTOCOL=${TEMPEST_STORAGE_PROTOCOL:-iSCSI}
}

function install_services {
    if is_service_enabled cinder; then
        case $CINDER_TARGET_HELPER in
            tgtadm) install_package tgt;;
            lioadm) install_package targetcli-fb;;
        esac
        configure_cinder
    fi
    if is_service_enabled n-cpu; then
        iniset -sudo /etc/iscsi/iscsid.conf DEFAULT \
            node.session.auth.chap_algs SHA3-256,SHA256
    fi
}

function each_backend {
    local backend
    if is_service_enabled c-vol; then
        for backend in ${CINDER_ENABLED_BACKENDS//,/ }; do
            if type "$1_cinder_backend_${backend%%:*}" > /dev/null 2>&1; then
                "$1_cinder_backend_${backend%%:*}" "${backend##*:}"
            fi
        done
    fi
}

function configure_cinder {
    mkdir -p "$MACHINE$CINDER_CONF_DIR"
    sudo rm -rf "$CINDER_CONF_DIR/rootwrap.d"
    each_backend configure
}

function init_lvm_volume_group {
    # A group on a file, which a unit of systemd attaches at each boot.
    local file=$DATA_DIR/$1$BACKING_FILE_SUFFIX
    if ! sudo vgs "$1"; then
        truncate -s "$2" "$file"
        printf '%s\n' "ExecStart=losetup --find $file" \
            "ExecStop=losetup -j $file -n -O NAME | xargs losetup -d" \
            | sudo tee "/etc/systemd/system/$1$BACKING_FILE_SUFFIX.service" \
            > /dev/null
        sudo systemctl enable --now "$1$BACKING_FILE_SUFFIX.service"
        sudo vgcreate "$1" "$(sudo losetup --associated "$file" -n -O NAME)"
    fi
    sudo lvremove -f "$1"
}

function clean_lvm_volume_group {
    sudo lvremove -f "$1"
    sudo vgremove -f "$1"
    if [[ -n $(sudo lvs --noheadings -o lv_name "$1" 2> /dev/null) ]]; then
        return
    fi
    sudo systemctl disable --now "$1$BACKING_FILE_SUFFIX.service"
    sudo rm -f "/etc/systemd/system/$1$BACKING_FILE_SUFFIX.service"
    rm -f "$DATA_DIR/$1$BACKING_FILE_SUFFIX"
}

function init_cinder {
    each_backend init
}

function start_cinder {
    if is_service_enabled c-vol; then
        iniset -sudo /etc/systemd/system/devstack@c-vol.service Service \
            Environment "${SYSTEMD_ENV_VARS["c-vol"]} MALLOC_ARENA_MAX=1"
    fi
}

function finish_stack {
    return 0
}

function cleanup_nova {
    local target
    if is_service_enabled n-cpu; then
        for target in $(sudo iscsiadm --mode node \
                | grep "$VOLUME_NAME_PREFIX" | cut -d ' ' -f2); do
            sudo iscsiadm --mode node -T "$target" --logout || true
        done
        sudo iscsiadm --mode node --op delete || true
    fi
}

function stop_cinder {
    stop_process c-vol
}

function cleanup_cinder {
    local target
    case $CINDER_TARGET_HELPER in
        tgtadm) sudo systemctl stop tgt;;
        lioadm)
            for target in $(sudo cinder-rtstool get-targets); do
                sudo cinder-rtstool delete "$target"
            done;;
    esac
    each_backend cleanup
}

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh SCRIPT: what DevStack's stack.sh, unstack.sh and clean.sh do around a
# volume backend, in their order, on the machine in $MACHINE. Uses DevStack's
# own functions if DEVSTACK_DIR is set, and another kind of machine if
# MACHINE_SH is.

set -o errexit
here=$(cd "$(dirname "$0")" && pwd)
MACHINE_SH=${MACHINE_SH:-$here/machine.sh}
export LC_ALL=C

if [[ -n $DEVSTACK_DIR ]]; then
    source "$here/devstack.sh"
else
    source "$here/stand_in.sh"
fi
source "$MACHINE_SH"
load_functions

function phase {
    record "# $*"
    run_phase "$@"
}

case $1 in
    stack)
        fetch_plugins
        phase override_defaults
        load_libraries
        load_tempest
        phase source
        phase stack pre-install
        record "# install_services"
        install_services
        phase stack install
        if is_service_enabled cinder; then
            record "# init_cinder"
            init_cinder
        fi
        phase stack post-config
        if is_service_enabled cinder; then
            record "# start_cinder"
            start_cinder
        fi
        phase stack extra
        finish_stack;;
    unstack)
        phase override_defaults
        load_libraries
        load_plugin_settings
        set +o errexit
        phase unstack
        record "# cleanup_nova"
        cleanup_nova
        record "# cleanup_cinder"
        stop_cinder
        cleanup_cinder;;
    clean)
        # It does not run override_defaults.
        load_libraries
        set +o errexit
        load_plugin_settings
        phase clean
        record "# cleanup_cinder"
        cleanup_cinder;;
esac
compgen -v TEMPEST_ | while read -r name; do
    declare -p "$name"
done > "$MACHINE/variables"

# SPDX-License-Identifier: Apache-2.0
#
# Instead of machine.sh: a node of the laboratory, on which the commands of
# DevStack and the plugin are executed. Packages are not installed, since the
# node has them. It has no systemd, so its services are the laboratory's, and
# the test runs the units of volume groups at a boot.

# shellcheck disable=SC1091
. /lab/node.env
MACHINE_ROOT=""
PYTHON=$VENV/bin/python
export PYTHONPATH=$CHECKOUT PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
export PATH=$VENV/bin:$PATH

function record {
    printf '%s\n' "$*" >> "$MACHINE/log"
}

function sudo {
    record "sudo $*"
    "$@"
}

function unit_line {
    # unit_line OPTION UNIT: run a command of a unit
    sed -n "s/^$1=//p" "/etc/systemd/system/$2" | bash
}

function systemctl {
    case "$1 ${*: -1}" in
        "enable "*) unit_line ExecStart "$3";;
        "disable "*) unit_line ExecStop "$3";;
        "stop devstack@c-vol.service") lab-service stop cinder-volume;;
        "stop tgt") lab-service stop tgtd;;
        "restart iscsid") lab-service restart iscsid;;
    esac
}

function install_package {
    record "install_package $*"
}

function pip_install {
    record "pip_install $*"
}

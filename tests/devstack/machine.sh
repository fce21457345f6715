# SPDX-License-Identifier: Apache-2.0
#
# A machine in the folder $MACHINE: what DevStack and the plugin do as root is
# written to its file "log", and done to its files only. Sourced after the
# functions of DevStack, or of the stand-in for it.
#
#   etc/             the machine's /etc
#   groups/          a file for each volume group
#   devices          a line for each device: UUID, and the UUID below it
#   sessions         a line for each iSCSI session: number and name
#   records          a line for each target that open-iscsi knows
#   processes        the names of other processes that run
#   missing-modules  the modules that the kernel does not have

MACHINE_ROOT=$MACHINE

function record {
    printf '%s\n' "$*" >> "$MACHINE/log"
}

function machine_has {
    # machine_has FILE LINE
    grep -qxsF -- "$2" "$MACHINE/$1"
}

function machine_forget {
    # machine_forget FILE PATTERN: remove lines
    sed -i "/$2/d" "$MACHINE/$1"
}

function machine_file {
    # Run a command with the machine's /etc, if it stays in the machine.
    local word words=() written
    for word in "$@"; do
        if [[ $word == /etc/* ]]; then
            word=$MACHINE$word
        fi
        words+=("$word")
    done
    written=${words[-1]}
    if [[ $written != "$MACHINE"/* ]]; then
        return 0
    fi
    if [[ $1 == install && $written != */ ]]; then
        # Without another user's rights.
        mkdir -p "$(dirname "$written")"
        if [[ -f ${words[-2]} ]]; then
            cp "${words[-2]}" "$written"
        else
            mkdir -p "$written"
        fi
        return 0
    fi
    if [[ $1 == tee ]]; then
        mkdir -p "$(dirname "$written")"
    fi
    "${words[@]}"
}

function machine_dmsetup {
    # dmsetup info -c ... | dmsetup remove --uuid UUID
    if [[ $1 == info ]]; then
        cut -d' ' -f1 "$MACHINE/devices"
    elif [[ $1 == remove ]]; then
        if grep -q " $3\$" "$MACHINE/devices" || machine_has busy "$3"; then
            return 1
        fi
        machine_forget devices "^$3\\b"
    fi
}

function machine_iscsiadm {
    local words="$*"
    case $words in
        "-m session")
            sed 's/\(.*\) \(.*\)/tcp: [\1] 192.0.2.9:3260,1 \2 (non-flash)/' \
                "$MACHINE/sessions"
            [[ -s $MACHINE/sessions ]] || return 21;;
        "-m session -r "*)
            machine_forget sessions "^$4 ";;
        "-m node" | "--mode node")
            sed 's/^/192.0.2.9:3260,1 /' "$MACHINE/records"
            [[ -s $MACHINE/records ]] || return 21;;
        "--mode node --op delete")
            : > "$MACHINE/records";;
        "-m node -T "*delete)
            machine_forget records "^$4\$";;
        *"--logout")
            # Needs the record of the target.
            machine_has records "$4" || return 21
            machine_forget sessions " $4\$";;
    esac
}

function sudo {
    while [[ $1 == *=* || $1 == -[EH] ]]; do
        shift
    done
    record "sudo $*"
    case $1 in
        modprobe) ! machine_has missing-modules "$2";;
        vgs) [[ -e $MACHINE/groups/$2 ]];;
        vgcreate) : > "$MACHINE/groups/$2";;
        vgremove) rm -f "$MACHINE/groups/$3";;
        losetup) echo /dev/loop7;;
        dmsetup) machine_dmsetup "${@:2}";;
        iscsiadm) machine_iscsiadm "${@:2}";;
        cat | cp | grep | install | mkdir | rm | sed | tee | test)
            machine_file "$@";;
        xargs) cat > /dev/null;;
    esac
}

function pgrep {
    machine_has processes "$2"
}

function systemctl {
    record "systemctl $*"
}

function install_package {
    record "install_package $*"
    if [[ " $* " == *" tgt "* ]]; then
        # Its package starts it.
        echo tgtd >> "$MACHINE/processes"
    fi
}

function pip_install {
    record "pip_install $*"
}

function wait_for_service {
    return 0
}

function iscsi-iname {
    echo iqn.2016-04.com.open-iscsi:machine
}

function sleep {
    return 0
}

# Python of the environment with Cinder; the plugin imports the driver with it.
PYTHON=$MACHINE/bin/cinder-python

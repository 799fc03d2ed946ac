#!/bin/sh
# A poller for Harken's kind `exec`: the disks of this machine, and whether they are filling up.
# It reads nothing from what it is asked but the method and the id, so it needs no JSON parser.

id() { printf '%s\n' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$(id)" "$1"; }
items() {
    df -P | awk 'NR > 1 && $1 !~ /^(tmpfs|devtmpfs|udev|shm)$/ && $6 ~ /^[A-Za-z0-9_.\/-]+$/ {
        used = $5 + 0
        state = used >= 95 ? "full" : used >= 80 ? "filling" : "ok"
        printf "%s{\"id\":\"%s\",\"state\":\"%s\",", separator, $6, state
        printf "\"data\":{\"state\":\"%s\",\"used\":%d}}", state, used
        separator = ","
    }'
}

while read -r line; do
    case "$line" in
    *'"method":"initialize"'*) answer '{"name":"disks","identity":"transition"}' ;;
    *'"method":"poll_tick"'*) answer "{\"items\":[$(items)],\"cursor\":null,\"more\":false}" ;;
    *'"method":"shutdown"'*) answer null && exit ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$(id)" ;;
    esac
done

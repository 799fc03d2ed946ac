#!/bin/sh
# A poller without any library: each tick shows the next number.
number() { printf '%s\n' "$line" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$(number id)" "$1"; }

while read -r line; do
    case "$line" in
    *'"method":"initialize"'*) answer '{"name":"count"}' ;;
    *'"method":"poll_tick"'*)
        last=$(($(number cursor) + 1))
        more=$([ $((last % 3)) -eq 0 ] && echo false || echo true)
        item="{\"id\":$last,\"state\":\"new\",\"data\":{\"square\":$((last * last))}}"
        answer "{\"items\":[$item],\"cursor\":$last,\"more\":$more}"
        ;;
    *'"method":"shutdown"'*) answer null; exit ;;
    esac
done

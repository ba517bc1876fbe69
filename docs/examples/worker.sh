#!/bin/sh
# worker.sh URL QUEUE NAME DIR: carries out runs, one at a time. The program DIR/HANDLER reads the run from its stdin.
url=$1 queue=$2 name=$3 programs=$4 lease=600
key=${WATCHBELL_KEY-}
unset WATCHBELL_KEY
life=$(python3 -c 'import time; print(time.time_ns() // 1000)') || exit 1
number=0 cookie='' results=''

# Reads an answer, and prints what the loop needs of it, quoted for the shell.
read_answer='
import json, shlex, sys
answer, sent, lease = json.load(sys.stdin), json.loads(sys.argv[1]), int(sys.argv[2])
acked = [ack["id"] for ack in answer["acks"]]
run = (answer["runs"] or [{}])[0]
told = {"cookie": answer["cookie"], "id": run.get("id", ""), "token": run.get("token", ""),
        "handler": run.get("handler", ""), "run": json.dumps(run),
        "most": int(min(lease, run.get("timeout_ms", lease * 1000) / 1000)) + 1,
        "results": ",".join(json.dumps(one) for one in sent if one["id"] not in acked)}
print("\n".join(f"{name}={shlex.quote(str(value))}" for name, value in told.items()))'

uptime() { cut -d. -f1 /proc/uptime; }

while :; do
    number=$((number + 1))
    until=$(($(uptime) + lease)) # the lease counts from before the claim is sent
    answer=$(printf '%s' "${key:+header = \"authorization: Bearer $key\"}" |
        curl -sS -K - --max-time 30 -w '%{http_code}' -H 'content-type: application/json' -d '{
            "worker": "'"$name"'", "incarnation": '"$life"', "since": '"$life"',
            "number": '"$number"', "settled": '$((number - 1))', "cookie": "'"$cookie"'",
            "queues": ["'"$queue"'"], "free": 1, "wait_ms": 20000, "lease_ms": '"$lease"'000, "done": ['"$results"']
        }' "$url/v1/claim")
    body=${answer%???}
    status=${answer#"$body"}
    if [ "$status" = 409 ]; then
        echo "a later life of this worker was heard: this one stops" >&2
        exit 1
    fi
    if [ "$status" != 200 ] || ! told=$(printf '%s' "$body" | python3 -c "$read_answer" "[$results]" "$lease"); then
        echo "the claim was answered with $status: again in a second" >&2
        sleep 1
        continue
    fi
    eval "$told"
    left=$((until - $(uptime)))
    if [ -z "$id" ] || [ "$left" -le 0 ]; then
        continue
    fi
    printf '%s' "$run" | timeout -k 5 "$((most < left ? most : left))" "$programs/$handler"
    code=$?
    if [ "$code" -eq 0 ]; then result=succeeded; else result=failed; fi
    results="${results:+$results,}{\"id\": \"$id\", \"token\": $token, \"result\": \"$result\", \"exit_code\": $code}"
done

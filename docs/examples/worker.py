#!/usr/bin/env python3
"""worker.py URL QUEUE NAME DIR: carries out runs, one at a time. The program DIR/HANDLER reads the run from its stdin."""
import json, os, subprocess, sys, time, urllib.request as http

(url, queue, name, programs), key, lease = sys.argv[1:], os.environ.pop("WATCHBELL_KEY", None), 600
head = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
life, number, cookie, done = time.time_ns() // 1000, 0, None, []
while True:
    number, until = number + 1, time.monotonic() + lease  # the lease counts from before the claim is sent
    said = {"worker": name, "incarnation": life, "since": life, "number": number, "settled": number - 1, "cookie": cookie,
            "queues": [queue], "free": 1, "wait_ms": 20_000, "lease_ms": lease * 1000, "done": done}
    try:
        answer = json.load(http.urlopen(http.Request(url + "/v1/claim", json.dumps(said).encode(), head), timeout=30))
    except Exception as why:
        print(why, file=sys.stderr)
        if getattr(why, "code", None) == 409: sys.exit("a later life of this worker was heard: this one stops")
        time.sleep(1); continue
    cookie, done = answer["cookie"], [one for one in done if one["id"] not in [ack["id"] for ack in answer["acks"]]]
    for run in answer["runs"] if time.monotonic() < until else []:
        seconds = int(min(until - time.monotonic(), run.get("timeout_ms", lease * 1000) / 1000)) + 1
        program = ["timeout", "-k", "5", str(seconds), f"{programs}/{run.get('handler', '')}"]
        code = subprocess.run(program, input=json.dumps(run).encode()).returncode
        done.append({"id": run["id"], "token": run["token"], "result": "failed" if code else "succeeded", "exit_code": code})

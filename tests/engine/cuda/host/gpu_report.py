"""gpu_report.py BUILD ROOT [WORD]: dpe-bench --gpu-report on the emulated device, once for each planted fault (those with WORD in
them): the file names the fault, what it does and on which shapes, and nothing else as its cause. Exit status 1 where one does
not."""
import os
import re
import subprocess
import sys
import tempfile

OUTCOMES = {"wrong": "WRONG", "fails": "FAILS", "hangs": "HANGS"}
# What is said of a fault of a kind, wherever it is.
REASONS = {"wrong": "(expected the logits of the CPU within .*, the largest |NaN or infinity (after layer|in the logits))", "fails": "failed in ",
           "hangs": "no answer in time"}

# Where another way helps: kernel, device, tokens, kinds, the way that is left out and the one that is used.
WAYS = [
    ("dpe_attention_wgmma_kernel", "capability=90", 24, "wrong fails hangs", "wgmma", "mma"),
    ("attention_mma", "capability=80", 24, "wrong fails hangs", "mma", "plain"),
    ("decode", "capability=80", 24, "wrong fails hangs", "decode", "attention"),
    ("combine", "capability=80", 24, "wrong fails hangs", "decode", "attention"),
    ("fill_table", "capability=80", 24, "wrong fails hangs", "decode", "attention"),
    ("product_few", "capability=80", 24, "wrong fails hangs", "product_few", "cublas"),
    ("graph", "capability=80", 24, "wrong fails hangs", "graph", "launches"),
    ("attention_combine", "capability=80,processors=8", 1030, "wrong", "parts", "whole"),
]
# Where nothing else helps: kernel, and the call that fails.
CALLS = [("embed", "dpe_kernel_embed"), ("rmsnorm", "dpe_kernel_rmsnorm"), ("rotate_rows", "dpe_kernel_rotate"),
         ("activate", "dpe_kernel_activate"), ("likelihood", "dpe_kernel_nll"), ("product", "dpe_rt_product")]
# … and of which no call fails: kernel, and in which part of the model it is.
FIRST, BETWEEN, LAST = ("wrong from the first queries on: embedding, norm or products",
                        "the first queries are right, those of the next layer are not: attention or MLP",
                        "the queries of all layers are right: the last layer, the head or likelihoods")
PLACES = [("embed", FIRST), ("product", FIRST), ("activate", BETWEEN), ("likelihood", LAST)]
# Kernels that only some families have.
FAMILIES = [("gemma2", "plain"), ("gpt_oss", "sinks"), ("gpt_oss", "grouped"), ("gpt_oss", "combine"), ("qwen3_moe", "choose"),
            ("qwen3_5", "carry"), ("qwen3_5", "recur_tokens"), ("qwen3_5", "output_gate"), ("nsa", "merge"), ("nsa", "compress"), ("nsa", "represent")]


def faults(root, small):
    """With a small model for most of them: (fault, device, tokens, shape, what the report has to say, line by line or as patterns)."""
    for kernel, device, tokens, kinds, way, other in WAYS:
        for kind in kinds.split():
            step = rf"^  {way} is left out, {other} is used: .*{REASONS[kind]}"
            alone = rf"^  .*\b{way}\b.*: {OUTCOMES[kind]}( \(.*\))?\n    .*{REASONS[kind]}.*\n    shapes: {tokens} tokens"
            right = rf"^  .*\b{other}\b.*: right, differences up to"
            yield f"{kind}:{kernel}", device, tokens, small, [step, alone, right]
    for kernel, call in CALLS:
        for kind in ("fails", "hangs"):
            say = rf": {OUTCOMES[kind]}( \(.*\))?\n    .*{call}.*\n    shapes: "
            yield f"{kind}:{kernel}", "capability=80", 24, small, [say]
    for kernel, place in PLACES:
        yield f"wrong:{kernel}", "capability=80", 24, small, [rf": WRONG\n    .*{REASONS['wrong']}.*{place}"]
    for family, kernel in FAMILIES:
        shape = os.path.join(root, "tests/golden/families", family)
        yield f"wrong:{kernel}", "capability=90", 48, shape, [rf"^{family}, .*", rf": WRONG\n    .*{REASONS['wrong']}"]


def report(bench, work, fault, device, tokens, shape):
    """The text of a report, and what is wrong with the command."""
    path = os.path.join(work, "report")
    environment = dict(os.environ, DPE_FAKE_FAULT=fault, DPE_FAKE_CUDA=device, DPE_DEVICE_SELF_TEST=str(tokens),
                       DPE_CUDA_MODULE=os.path.join(bench, "tests/libdpe_cuda_emulated.so"), XDG_CACHE_HOME=work)
    ran = subprocess.run([os.path.join(bench, "bin/dpe-bench"), "--gpu-report", path, "--shape", shape, "--device", "cuda"],
                         env=environment, capture_output=True, text=True, check=False)
    text = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        os.remove(path)
    bad = ran.returncode != 69 or "which" not in ran.stderr
    return text, f"exit {ran.returncode}: {ran.stderr}" if bad else ""


def main():
    bench, root, *words = sys.argv[1:]
    n = missed = 0
    with tempfile.TemporaryDirectory() as work:
        small = os.path.join(work, "small")
        subprocess.run([sys.executable, os.path.join(root, "tests/cli/tiny_model.py"),
                        os.path.join(root, "data/reference/tokenizer.json"), small, "tensor"], check=True)
        for fault, device, tokens, shape, said in faults(root, small):
            if words and words[0] not in fault:
                continue
            text, bad = report(bench, work, fault, device, tokens, shape)
            missing = [pattern for pattern in said if not re.search(pattern, text, re.M)]
            n += 1
            if bad or missing:
                missed += 1
                print(f"{fault}, {os.path.basename(shape)}: NOT NAMED; {bad} expected {missing} in:\n{text}", flush=True)
            else:
                print(f"{fault}, {os.path.basename(shape)}: named", flush=True)
    print(f"{n} faults, {missed} not named")
    return 0 if missed == 0 and n > 0 else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Time of a decoded token under the transformers adapter and under the model's own attention, on the CPU; by
hand, with a Python that has transformers 5:

    python3 tests/bench/adapter_decode.py [--tokens 2048] [--share 0.75] [--threads 2] [MODEL]

MODEL is a folder; without one, a random model of SmolLM2's shape with 8 layers. Prints medians over 48 decoded
tokens of one step, of all of its attention modules (projections, rotation and cache included) and of the
attention function alone, in milliseconds, for the model's own attention ("sdpa", "eager"), the adapter, and
the adapter that keeps no rotated keys. The kinds take turns, token by token.
"""
import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "outputs", "transformers"), os.path.join(HERE, "..", "golden")]
import dpe_transformers  # noqa: E402
from adapter_transformers import make_table  # noqa: E402

DECODED = 48


def own_model():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=9, num_key_value_heads=3,
        vocab_size=4096, max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True))


class Clock:
    """Seconds spent in the attention modules of a model."""

    def __init__(self, model):
        self.seconds = self.function = 0.0
        for layer in model.base_model.layers:
            layer.self_attn.register_forward_pre_hook(self.begin)
            layer.self_attn.register_forward_hook(self.end)

    def begin(self, *_):
        self.started = time.perf_counter()

    def end(self, *_):
        self.seconds += time.perf_counter() - self.started


def timed_function(name, clock):
    """The registered attention function, with its time added to clock.function."""
    interface = transformers.AttentionInterface()
    function = interface[name] if name in interface.valid_keys() else \
        transformers.models.llama.modeling_llama.eager_attention_forward

    def call(*args, **kwargs):
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        clock.function += time.perf_counter() - begin
        return result
    return call


def prepare(kind, model, table):
    clock = Clock(model)
    if kind.startswith("dpe"):
        dpe_transformers.apply(model, table, keep_keys=kind == "dpe")
        for layer in model.base_model.layers:
            layer.self_attn.bench_clock = clock
        return clock
    transformers.AttentionInterface.register("timed_" + kind, timed_function(kind, clock))
    mask = transformers.AttentionMaskInterface()
    transformers.AttentionMaskInterface.register("timed_" + kind, mask[kind])
    model.set_attn_implementation("timed_" + kind)
    return clock


def timed_dpe(module, *args, **kwargs):
    """The adapter's function: one name for all models, so that the clock lies on the module."""
    begin = time.perf_counter()
    result = dpe_transformers.dpe_attention_forward(module, *args, **kwargs)
    module.bench_clock.function += time.perf_counter() - begin
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--share", type=float, default=0.75)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("model", nargs="?")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    kinds = ("sdpa", "eager", "dpe", "dpe, nothing kept")
    runs = {}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for kind in kinds:
            model = own_model() if args.model is None else transformers.AutoModelForCausalLM.from_pretrained(
                args.model, dtype=torch.float32)
            model.eval()
            table = make_table(os.path.join(folder, "t.json"), model, args.tokens, 256, [2.0, 3.0, 4.0, 8.0], args.share,
                               trained=args.tokens // 8)
            clock = prepare(kind, model, table)
            ids = torch.randint(0, 4000, (1, args.tokens), generator=torch.Generator().manual_seed(2))
            cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
            runs[kind] = (model, clock, cache, [])
        transformers.AttentionInterface.register("dpe", timed_dpe)
        for step in range(DECODED + 2):
            for kind, (model, clock, cache, times) in runs.items():
                clock.seconds = clock.function = 0.0
                begin = time.perf_counter()
                model(torch.tensor([[step]]), past_key_values=cache, use_cache=True)
                if step >= 2:
                    times.append((time.perf_counter() - begin, clock.seconds, clock.function))
    print(f"{args.tokens} tokens, {args.threads} threads, {torch.__version__}, transformers {transformers.__version__}")
    print(f"{'':20} {'step':>9} {'attention':>10} {'function':>9}   (ms)")
    medians = {kind: [1000 * statistics.median(column) for column in zip(*run[3])] for kind, run in runs.items()}
    for kind, values in medians.items():
        print(f"{kind:20} {values[0]:9.2f} {values[1]:10.2f} {values[2]:9.2f}")
    for base in ("sdpa", "eager"):
        ratios = [a / b for a, b in zip(medians["dpe"], medians[base])]
        print(f"dpe / {base:14} {ratios[0]:9.2f} {ratios[1]:10.2f} {ratios[2]:9.2f}")


if __name__ == "__main__":
    main()

"""Writes rope_golden.h: frequencies and attention factors of every rope type as transformers computes
them (float32), which test_frequencies.c compares with dpe_rope_native.

    python3 tests/golden/make_rope.py > tests/golden/rope_golden.h     (transformers 5)
"""
import math

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SHORT = [1.0 + 0.05 * j for j in range(16)]
LONG = [1.0 + 1.75 * j for j in range(16)]
CASES = [  # name, head_dim, max_position, length, rope parameters
    ("default", 64, 2048, 4096, dict(rope_type="default", rope_theta=10000.0)),
    ("linear", 64, 8192, 4096, dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    ("dynamic short", 64, 2048, 1000, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    ("dynamic long", 128, 8192, 131072,
     dict(rope_type="dynamic", rope_theta=500000.0, factor=16.0)),
    ("yarn", 128, 131072, 131072, dict(rope_type="yarn", rope_theta=500000.0, factor=16.0,
                                       original_max_position_embeddings=8192)),
    ("yarn given factors", 64, 32768, 100,
     dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, attention_factor=1.386, beta_fast=24.0,
          beta_slow=2.0, original_max_position_embeddings=4096)),
    ("yarn mscale", 64, 163840, 100,
     dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, mscale=0.707, mscale_all_dim=1.0,
          original_max_position_embeddings=4096)),
    ("yarn not truncated", 64, 131072, 100,
     dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, truncate=False,
          original_max_position_embeddings=4096)),
    ("longrope short", 32, 131072, 4096,
     dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG,
          factor=32.0, original_max_position_embeddings=4096)),
    ("longrope long", 32, 131072, 4097,
     dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG,
          factor=32.0, original_max_position_embeddings=4096)),
    ("longrope given factor", 32, 131072, 9000,
     dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG,
          factor=32.0, attention_factor=1.19, original_max_position_embeddings=4096)),
    ("llama3", 128, 131072, 131072,
     dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
          high_freq_factor=4.0, original_max_position_embeddings=8192)),
    ("llama3 small", 64, 131072, 100,
     dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0,
          high_freq_factor=4.0, original_max_position_embeddings=8192)),
]


def number(x):
    return "NAN" if x is None else repr(float(x))


def main():
    print("/* Written by make_rope.py with transformers; don't edit. */")
    print("static const double golden_short[] = {%s};" % ", ".join(map(number, SHORT)))
    print("static const double golden_long[] = {%s};" % ", ".join(map(number, LONG)))
    print("static const struct golden_rope golden_ropes[] = {")
    for name, head_dim, max_position, length, rope in CASES:
        config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                             max_position_embeddings=max_position, rope_parameters=dict(rope))
        if rope["rope_type"] == "default":
            theta = rope["rope_theta"]
            inv = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)
            a = 1.0
        else:
            inv, a = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=length)
        print('    {"%s", DPE_ROPE_%s, %d, %d, %d,' % (name, rope["rope_type"].upper(), head_dim,
                                                   max_position, length))
        keys = ["rope_theta", "factor", "original_max_position_embeddings", "attention_factor",
                "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "low_freq_factor",
                "high_freq_factor"]
        print("     {%s}, %d, %r," % (", ".join(number(rope.get(k)) for k in keys),
                                      rope.get("truncate", True), float(a)))
        rows = ["%.9g" % x for x in inv.tolist()]
        print("     {" + ",\n      ".join(", ".join(rows[i:i + 6]) for i in range(0, len(rows), 6)) +
              "}},")
    print("};")


main()

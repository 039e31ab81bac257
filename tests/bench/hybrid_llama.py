#!/usr/bin/env python3
"""A hybrid of Qwen3.5-0.8B's shape with random weights: prompts and decoding in dpe-bench and in llama.cpp (qwen35), as llama.py measures them.

    hybrid_llama.py DPE_BENCH LLAMA_CPP WORK [--tiny] [--depths 4096] [--threads 2] [--rounds 2] [--cores 0,1]

By hand, on an idle machine. Needs torch and transformers (5.24), LLAMA_CPP's sources, which have its converter, and what llama.py needs. WORK gets
the folder (BF16, 1.5 GB) and the GGUF file that the converter makes of it, both once. --tiny: a shape that tries the script alone."""
import argparse
import os
import pathlib
import sys

import llama

SHAPE = dict(vocab_size=248320, hidden_size=1024, intermediate_size=3584, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2,
             head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128)
TINY = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=32, linear_value_head_dim=32)

def make(folder, gguf_file, args):
    """The model in both forms; llama.cpp's converter needs no tokenizer here."""
    import torch
    import transformers
    sys.path[:0] = [os.path.join(args.llama, "gguf-py"), args.llama]
    import gguf
    from conversion import ModelBase, get_model_class
    from conversion.base import TextModel

    torch.manual_seed(3)
    rope = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True,
                mrope_section=[2, 1, 1] if args.tiny else [11, 11, 10])
    config = transformers.Qwen3_5TextConfig(**(TINY if args.tiny else SHAPE), max_position_embeddings=262144, tie_word_embeddings=True,
                                            rope_parameters=rope, bos_token_id=None, eos_token_id=None)
    transformers.Qwen3_5ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    TextModel.set_vocab = lambda model: (model.gguf_writer.add_tokenizer_model("none"),
                                         model.gguf_writer.add_vocab_size(model.hparams["vocab_size"]))
    made = get_model_class(ModelBase.load_hparams(folder, False)["architectures"][0])
    made.set_vocab, made.no_mtp = TextModel.set_vocab, True
    with torch.inference_mode():
        made(folder, gguf.LlamaFileType.MOSTLY_BF16, gguf_file).write()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("llama")
    parser.add_argument("work")
    parser.add_argument("--tiny", action="store_true")
    args = llama.arguments(parser, "4096", "2")
    folder = os.path.join(args.work, "tiny" if args.tiny else "qwen35")
    gguf_file = pathlib.Path(folder + ".gguf")
    if not gguf_file.exists():
        make(pathlib.Path(folder), gguf_file, args)
    for threads in args.threads:
        llama.measure(args.bench, folder, str(gguf_file), threads, args.depths, args.rounds, args.work)


if __name__ == "__main__":
    main()

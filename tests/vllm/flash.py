"""flash_attn_varlen_func in plain PyTorch: what its docstring says, for calls over pages. Its arguments are those of the function in the
vLLM that is installed, read from its source, since that file cannot be imported without a card. Rows that see no key have the output 0 and a
log-sum-exp of the sign that EMPTY has: FlashAttention 2 gives infinity, 3 its negative."""
import ast
import math
import os

import torch
import vllm

EMPTY = float(os.environ.get("DPE_TEST_EMPTY", "inf"))


def arguments():
    path = os.path.join(os.path.dirname(vllm.__file__), "vllm_flash_attn", "flash_attn_interface.py")
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = next(one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "flash_attn_varlen_func")
    return [one.arg for one in found.args.args]


ARGUMENTS = arguments()


def flash_attn_varlen_func(**given):
    unknown = set(given) - set(ARGUMENTS)
    assert not unknown, f"flash_attn_varlen_func has no {unknown}"
    q, k, v, softcap = given["q"], given["k"], given["v"], given.get("softcap", 0.0)
    left, right = given["window_size"]
    starts, lengths, table = given["cu_seqlens_q"], given["seqused_k"], given["block_table"]
    assert given["causal"] and given["return_softmax_lse"] and given["fa_version"] in (2, 3, 4)
    assert (left, right) == (-1, -1) or left >= 0 and right == 0
    assert all(one.dtype == torch.int32 for one in (starts, lengths, table)) and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    assert int((starts[1:] - starts[:-1]).max()) <= given["max_seqlen_q"] and int(lengths.max()) <= given["max_seqlen_k"]
    out, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), EMPTY, dtype=torch.float32)
    size = k.shape[1]
    for text, keys in enumerate(lengths.tolist()):
        begin, end = starts[text:text + 2].tolist()
        for row in range(begin, end):
            last = row - begin + keys - (end - begin)  # aligned to the bottom right corner
            first = max(0, last - left) if left >= 0 else 0
            if last < first:
                continue
            at = torch.arange(first, last + 1)
            block, place = table[text].long()[at // size], at % size
            for kv in range(k.shape[2]):
                group = slice(kv * q.shape[1] // k.shape[2], (kv + 1) * q.shape[1] // k.shape[2])
                logits = q[row, group].float() @ k[block, place, kv].float().T * given["softmax_scale"]
                logits = softcap * torch.tanh(logits / softcap) if softcap else logits
                lse[group, row] = torch.logsumexp(logits, dim=-1)
                out[row, group] = (torch.softmax(logits, dim=-1) @ v[block, place, kv].float()).to(q.dtype)
    return out, lse


assert math.isinf(EMPTY)

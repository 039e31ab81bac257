"""Models in vLLM under a DPE table: DPE_TABLE=table.h5 vllm serve MODEL (outputs/vllm/README.md).

The table decides for each text, from the tokens of its prompt and of what may be generated, once. Up to the trained length
vLLM's own attention runs it; above, the layers that move run under the entry's plan, which dpe_attention computes.
"""
import os


def register():
    """The entry point vllm.general_plugins: called in every process of vLLM, before it reads its arguments. Without
    DPE_TABLE the plugin changes nothing."""
    if os.environ.get("DPE_TABLE"):
        from dpe_vllm import hooks

        hooks.install()

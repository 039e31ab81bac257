"""Models in vLLM under a DPE table: DPE_TABLE=table.h5 vllm serve MODEL (outputs/vllm/README.md).

The table decides for each text, from the tokens of its prompt and of what may be generated, once. Up to the trained length
vLLM's own attention runs it; above, the layers that move run under the entry's plan, which dpe_attention computes.
DPE_PLAN=auto: the formula in the place of a table, of which nothing was measured.
DPE_ENGINE=1: an engine of dpe-detect and other tools, whose plans run texts of any length.
"""
import os


def register():
    """The entry point vllm.general_plugins: called in every process of vLLM, before it reads its arguments. Without
    DPE_TABLE, DPE_PLAN and DPE_ENGINE the plugin changes nothing."""
    if os.environ.get("DPE_TABLE") or os.environ.get("DPE_PLAN") or os.environ.get("DPE_ENGINE") == "1":
        from dpe_vllm import hooks

        hooks.install()

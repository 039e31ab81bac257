#!/usr/bin/env python3
"""readme_paths.py ROOT: every path that a README or another document names is there, and every heading that a link names. A link
is relative to its document; a source file in backquotes may be named by the end of its path, and in a row of a table that begins
with a folder it lies in it."""
import fnmatch
import os
import re
import sys

root = os.path.abspath(sys.argv[1])
SOURCE = re.compile(r"[\w./*-]+\.(?:c|h|cu|cuh|py|sh|cmake|html)")
FOREIGN = {"pred/call_api.py"}  # of programs that are described
tree = set()
for folder, folders, names in os.walk(root):
    folders[:] = [name for name in folders if not name.startswith((".", "build", "__pycache__"))]
    tree.update(os.path.relpath(os.path.join(folder, name), root) for name in folders + names)


def named(path, below):
    """Whether a file of the tree below this folder has such an end of its path."""
    return any((name.startswith(below + os.sep) or below == ".") and
               fnmatch.fnmatch("/" + name, "*/" + path) for name in tree)


def headings(document):
    """What links call the headings of a document."""
    with open(document, encoding="utf-8") as file:
        lines = re.findall(r"^#+ (.*)$", file.read(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", line).lower()).strip().replace(" ", "-") for line in lines}


wrong = []
readmes = sorted(name for name in tree if name.endswith(".md"))
for readme in readmes:
    here = os.path.dirname(readme)
    with open(os.path.join(root, readme), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            row = re.match(r"\| `([\w/]+)/` \|", line)
            folder = os.path.normpath(os.path.join(here, row.group(1))) if row else "."
            quoted = re.findall(r"`([^`\s]+)`", line)
            links = [link for link in re.findall(r"\]\(([^)#\s]+)", line) if "://" not in link]
            links += [path for path in quoted if path.startswith(".") and SOURCE.fullmatch(path)]
            missing = [link for link in links if not os.path.exists(os.path.join(root, here, link))]
            missing += [path + "#" + anchor for path, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", line)
                        if "://" not in path and (not path or path.endswith(".md") and path not in missing) and
                        anchor not in headings(os.path.join(root, here, path) if path else os.path.join(root, readme))]
            if row and not os.path.isdir(os.path.join(root, folder)):
                missing.append(row.group(1) + "/")
            missing += [path for path in quoted if SOURCE.fullmatch(path) and not path.startswith(".") and
                        path not in FOREIGN and not named(path, folder)]
            wrong += [f"{readme}:{number}: {path}: expected a file, folder or heading of the tree, found none" for path in missing]
# Variables that programs and adapters read stand in one table, which is a section of dpe(1).
with open(os.path.join(root, "engine/README.md"), encoding="utf-8") as file:
    table = file.read().partition("\n## Environment\n")[2].partition("\n## ")[0]
READ = re.compile(r"""(?:getenv\(|set_from\(\w+, \w+, |environ\.get\()"(\w+)"|\$\{(DPE_\w+):-""")
read = set()
for name in tree:
    if name.endswith((".c", ".h", ".py", ".sbatch")) and not name.startswith("tests" + os.sep):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            read.update((found[0] or found[1], name) for found in READ.findall(file.read()))
wrong += [f"{name}: {variable}: expected it under \"Environment\" in engine/README.md, found it not" for variable, name in sorted(read)
          if not re.search(rf"`{variable}[`=]", table)]
wrong += ["expected more variables that are read"] * (len(read) < 20)
print("\n".join(wrong))
sys.exit(1 if wrong or len(readmes) < 10 else 0)

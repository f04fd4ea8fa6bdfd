"""Compiling: compile.py one | make. One large C file through gcc, or eight smaller ones through make -j2. With -pipe,
so that no difference between file systems behind /tmp is measured."""
import os
import shutil
import subprocess
import sys
import time

FUNCTION = """
int work_{name}(int *values, int count)
{{
    int total = {name};
    for (int i = 0; i < count; i++) {{
        switch (values[i] % 7) {{
        case 0: total += values[i] * {name}; break;
        case 1: total ^= values[i] << 3; break;
        case 2: total -= values[(i + {name}) % count]; break;
        default: values[i] = total;
        }}
    }}
    return total;
}}
"""
MAKEFILE = "OBJECTS = {objects}\nall: $(OBJECTS)\n%.o: %.c\n\tgcc -pipe -O1 -c -o $@ $<\n"


def write_source(path, functions):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(FUNCTION.format(name=name) for name in range(functions))


def prepare(kind):
    os.mkdir("build")
    if kind == "one":
        write_source("build/large.c", 120)
        return ["gcc", "-pipe", "-O1", "-c", "-o", "build/large.o", "build/large.c"]
    names = [f"part{number}" for number in range(8)]
    for name in names:
        write_source(f"build/{name}.c", 20)
    with open("build/Makefile", "w", encoding="ascii") as file:
        file.write(MAKEFILE.format(objects=" ".join(f"{name}.o" for name in names)))
    return ["make", "-s", "-j2", "-C", "build"]


def main():
    command = prepare(sys.argv[1])
    try:
        started = time.monotonic_ns()
        subprocess.run(command, check=True)
        print(time.monotonic_ns() - started)
    finally:
        shutil.rmtree("build")


main()

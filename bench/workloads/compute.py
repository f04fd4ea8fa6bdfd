"""The interpreter alone: arithmetic, dictionaries, strings."""
import time

started = time.monotonic_ns()
counts = {}
for number in range(300_000):
    word = str(number * number % 9973)
    counts[word] = counts.get(word, 0) + 1
sum(number * number for number in range(1_000_000))
print(time.monotonic_ns() - started)
